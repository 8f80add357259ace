"""How much is imported before the first result: in modules, since seconds depend on the machine.

On an idle machine the first `add` returns within 100 ms of the start of Python, and `holdfast counts` ends
within 200 ms. Nearly all of that is imports.
"""

import subprocess
import sys

import pytest

TIMEOUT_S = 60.0
# Ours, and what these import beyond the modules that msgspec has imported anyway.
# What newer versions of Python import besides: from 3.13 on pathlib is a package, and imports more.
NEWER = {11: 0, 12: 1}.get(sys.version_info.minor, 5)
OUR_MODULES, OTHER_MODULES = 102, 25 + NEWER
OUR_MODULES_OF_COUNTS, OTHER_MODULES_OF_COUNTS = 140, 55 + NEWER
# Slow to import, and needed by a few programs only.
SLOW = {
    *(
        "apsw",
        "asyncio",
        "concurrent.futures",
        "cronsim",
        "ctypes",
        "email",
        "hashlib",
        "importlib.resources",
    ),
    *(
        "multiprocessing",
        "psycopg",
        "hiredis",
        "rich",
        "ssl",
        "subprocess",
        "tempfile",
        "zipfile",
        "zoneinfo",
    ),
}
# What click imports anyway.
SLOW_TOO = {"base64", "difflib", "fractions", "random", "socket"}
REPORT = """
import msgspec, sys
before = set(sys.modules)
{program}
print(*sorted(set(sys.modules) - before))
"""
ADD = "import holdfast; holdfast.connect({path!r}).add('mail', 'x')"
CALL = """
sys.argv[1:] = {words!r}
from holdfast.cli import main
try: main()
except SystemExit: pass
"""


@pytest.fixture
def store(tmp_path):
    """The path of a store with one job."""
    path = str(tmp_path / "jobs.db")
    imported_by(ADD.format(path=path))
    return path


def imported_by(program: str) -> set[str]:
    """The modules that a program imports besides those of msgspec."""
    command = [sys.executable, "-c", REPORT.format(program=program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def count_ours(modules: set[str]) -> int:
    """How many of them are Holdfast's."""
    return sum(module.partition(".")[0] == "holdfast" for module in modules)


def test_the_first_add_imports_little(store):
    """On SQLite, where nothing else takes as long as the imports."""
    imported = imported_by(ADD.format(path=store))

    assert not imported & (SLOW | SLOW_TOO)
    assert count_ours(imported) <= OUR_MODULES
    assert len(imported) - count_ours(imported) <= OTHER_MODULES


def test_counts_import_little(store):
    """Of the command line what they need, and no library for tables."""
    imported = imported_by(CALL.format(words=["counts", "--store", store]))

    assert not imported & SLOW
    assert count_ours(imported) <= OUR_MODULES_OF_COUNTS
    assert len(imported) - count_ours(imported) <= OTHER_MODULES_OF_COUNTS


def test_the_version_needs_no_engine():
    """Nor any store."""
    imported = imported_by(CALL.format(words=["version"]))

    assert not imported & SLOW
    assert not [
        name for name in imported if name.startswith(("holdfast.engine", "holdfast.queue", "holdfast.store"))
    ]


@pytest.mark.parametrize("module", ["work.executor.executor", "remote.connection"])
def test_executors_and_clients_of_servers_need_no_engine(module):
    """It is on the other side: in the supervisor, or in the server."""
    imported = imported_by(f"import holdfast.{module}")

    assert not imported & {
        "holdfast.engine.engine",
        "holdfast.engine.queries",
        "holdfast.work.runners.runner",
    }
