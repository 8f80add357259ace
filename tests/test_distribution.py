"""What `python -m build` makes can be published, has what users need, and runs where it is installed."""

import os
import subprocess
import sys
import sysconfig
import tarfile
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest

import holdfast
from tests.house import run_document
from tests.house.source import ROOT

DISTRIBUTION = f"holdfast_queue-{holdfast.__version__}"
INFO = f"{DISTRIBUTION}.dist-info"
TIMEOUT_S = 250


def python(*words, folder=ROOT, env=None, program=sys.executable):
    """Run this Python, or that of an environment; its output."""
    done = subprocess.run(
        [program, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# What `python -m build` does, but in one process, with nothing installed and without asking for what is.
BUILD = """
import os, sys, tarfile
from hatchling import build
folder, root = sys.argv[1:]
os.chdir(root)
name = build.build_sdist(folder)
tarfile.open(os.path.join(folder, name)).extractall(folder + ".unpacked")
os.chdir(os.path.join(folder + ".unpacked", name.removesuffix(".tar.gz")))
build.build_wheel(folder)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with both archives; the wheel is made from the other, so that one is whole too."""
    folder = tmp_path_factory.mktemp("dist")
    python("-c", BUILD, folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    """The path of the wheel."""
    return built / f"{DISTRIBUTION}-py3-none-any.whl"


def environment(folder):
    """An empty virtual environment; its Python."""
    python("-m", "venv", "--without-pip", folder)
    return folder / "bin" / "python"


def run_readme(program, folder):
    """Run every block of the README with what is installed there, in an empty folder."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    variables |= {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "HOLDFAST_LOG_FORMAT": "text"}
    runs = f"import sys; sys.path.append({str(Path(run_document.__file__).parent)!r})\n"
    runs += "import pathlib, run_document as r\n"
    runs += f"assert r.run(pathlib.Path({str(ROOT / 'README.md')!r}), r.CommandLine()) > 5"
    folder.mkdir()
    python("-P", "-c", runs, folder=folder, env=variables, program=program)


@pytest.mark.proof
def test_both_archives_can_be_published(tmp_path):
    """As a release builds them: under the name that is ours, with texts that can be shown."""
    python("-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT)
    names = sorted(path.name for path in tmp_path.iterdir())

    assert names == [f"{DISTRIBUTION}-py3-none-any.whl", f"{DISTRIBUTION}.tar.gz"]
    python("-m", "twine", "check", "--strict", *tmp_path.iterdir())


def test_the_archives_hold_the_package_and_nothing_else(built, wheel):
    """Every file that git has in the package, also those that are no Python; no test, no tool."""
    listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "src/holdfast")
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    package = {name.removeprefix("src/") for name in tracked if (ROOT / name).exists()}
    about = {
        f"{INFO}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    }

    assert set(ZipFile(wheel).namelist()) == package | about
    assert {"holdfast/py.typed", "holdfast/store/redis/lua/commit.lua"} <= package
    with tarfile.open(built / f"{DISTRIBUTION}.tar.gz") as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert tops == {
        *("src", "proto", "pyproject.toml", "PKG-INFO", ".gitignore"),
        *("README.md", "CHANGELOG.md", "LICENSE"),
    }


def test_the_extra_all_has_every_extra(wheel):
    """It is made of the others by our own name; under the old one pip would install a stranger's."""
    metadata = HeaderParser().parsestr(ZipFile(wheel).read(f"{INFO}/METADATA").decode())
    needed: dict[str, set[str]] = {extra: set() for extra in metadata.get_all("Provides-Extra", [])}
    for line in metadata.get_all("Requires-Dist", []):
        library, _, extra = line.partition("; extra == ")
        needed.setdefault(extra.strip("'"), set()).add(library)

    assert metadata["Version"] == holdfast.__version__
    assert needed.pop("all") == set().union(*(needed[extra] for extra in needed.keys() - {"", "dev"}))


@pytest.mark.proof
def test_the_wheel_runs_where_it_is_installed(wheel, tmp_path):
    """The command and the README, with nothing of this folder on the path but the libraries."""
    program = environment(tmp_path / "venv")
    pip = ("-m", "pip", "--python", program, "install", "--quiet", "--no-index", "--no-deps", "--no-compile")
    python(*pip, wheel)
    place = python("-c", "import sysconfig; print(sysconfig.get_path('purelib'))", program=program).strip()
    Path(place, "libraries.pth").write_text(sysconfig.get_path("purelib"))
    command = subprocess.run([program.parent / "holdfast", "--version"], capture_output=True, text=True)

    assert python(
        "-c", "import holdfast; print(holdfast.__file__)", folder=tmp_path, program=program
    ).startswith(place)
    assert command.stdout == f"holdfast {holdfast.__version__}\n"
    run_readme(program, tmp_path / "here")


@pytest.mark.proof
def test_the_wheel_installs_with_its_libraries(wheel, tmp_path):
    """From the package index: what it needs, then an extra by the name that our errors tell."""
    program = environment(tmp_path / "venv")
    pip = ("-m", "pip", "--python", program, "install", "--quiet")

    python(*pip, wheel)
    run_readme(program, tmp_path / "here")
    python(*pip, "holdfast-queue[all]")
    python("-c", "import holdfast.serve.app, holdfast.contrib.sentry, hiredis, psycopg", program=program)
