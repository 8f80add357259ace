"""The documentation site: every page, link, public name, command, variable, metric and error is there."""

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import holdfast
from holdfast import indexed, testing
from holdfast.core import errors
from holdfast.queue.definition import TaskOptions
from holdfast.queue.options import JobOptions
from holdfast.remote.address import OPTIONS as GRPC
from holdfast.store.postgres.url import OURS as POSTGRES
from holdfast.store.redis.url import OPTIONS as REDIS
from tests.house.source import PACKAGE, ROOT

DIRECTIVE = re.compile(r"^::: (holdfast[\w.]*)$", re.MULTILINE)
ALIASES = re.compile(r"^\| (`[A-Z][^|]*) \|", re.MULTILINE)
VARIABLE = re.compile(r"\"(HOLDFAST_[A-Z_]+)\"")
METRIC = re.compile(r"\"(holdfast_\w+)\"(?:, \"(?:gauge|counter|histogram)\"|,$)", re.MULTILINE)
# Environment variables between processes of our own, and of stored handlers.
INTERNAL = {"HOLDFAST_COMPLETE", "HOLDFAST_SERVED_STORE", "HOLDFAST_BENCH_STORE", "HOLDFAST_TENANT"}

# Methods that are public for other modules of ours alone; `mkdocs.yml` leaves them out.
OURS = re.compile(r"\.(fate_of|undo_if_over|\w+_by_name|read_result|provided|make_\w+)$|^Task\.run$")


# Templates with the text of a page and nothing around it: half of the time of a build goes into the theme
# and the index for searches.
PLAIN = {
    "name: material": "name: null\n  custom_dir: templates",
    "  - search\n": "",
    "  - pymdownx.highlight\n": "  - pymdownx.highlight: {use_pygments: false}\n",
}


def build(folder: Path, *, whole: bool) -> Path:
    """Build the site into a folder as `make docs` does, or without the theme and the names of Python."""
    config = (ROOT / "mkdocs.yml").read_text("utf-8")
    (folder / "templates").mkdir()
    (folder / "templates" / "main.html").write_text("{{ page.content }}")
    for setting, plain in [] if whole else PLAIN.items():
        assert setting in config
        config = config.replace(setting, plain)
    settings = folder / "mkdocs.yml"
    for path in ("docs", "src", "tools"):
        config = re.sub(rf"(?<=[ \[]){path}(?=[/\n\]])", str(ROOT / path), config)
    settings.write_text(config.replace(".cache/site", str(folder / "site")))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", str(settings)],
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "REFERENCE": str(whole).lower()},
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


def tables() -> Any:
    """The functions that make the tables of the reference."""
    spec = spec_from_file_location("site_hooks", ROOT / "tools/site.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return hooks


def source_files():
    return (path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))


def test_the_site_is_built_strictly(tmp_path):
    """A page that the navigation lacks, and a link to no page or no heading, fail the build."""
    site = build(tmp_path, whole=False)

    page = (site / "reference/commands.html").read_text("utf-8")
    assert "holdfast requeue" in page
    # What a page says to those who read its source.
    assert "ARGS=serve" not in page


def test_every_public_name_is_in_the_reference():
    """Of `holdfast`, `holdfast.indexed` and `holdfast.testing`; errors have a table of their own."""
    pages = "".join(page.read_text("utf-8") for page in ROOT.glob("docs/reference/*.md"))
    found = {name.replace("work.worker.work", "work") for name in DIRECTIVE.findall(pages)}

    # Names for types, which have no entry.
    found |= {f"holdfast.{name}" for row in ALIASES.findall(pages) for name in re.findall(r"`(\w+)", row)}

    for name in found:
        resolve_name(name)  # or an error: the reference names what is not there
    assert {
        f"{module.__name__}.{name}"
        for module in (holdfast, indexed, testing)
        for name in module.__all__
        if not is_error(getattr(module, name))
    } - found == set()


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def test_every_error_is_in_its_table():
    """Each by the class that programs catch, with its code, and the exceptions that handlers raise."""
    text = (ROOT / "docs/errors.md").read_text("utf-8")
    raised = {value for name in holdfast.__all__ if is_error(value := getattr(holdfast, name))}
    declared = {kind for kind in vars(errors).values() if is_error(kind) and kind is not errors.Conflict}

    missing = [
        kind.__name__
        for kind in raised | declared | {indexed.AlreadyStarted}
        if f"| `{kind.__qualname__}` |{f' `{kind.code}` |' if issubclass(kind, errors.HoldfastError) else ''}"
        not in text
        and kind is not errors.HoldfastError  # the base
    ]

    assert missing == []


def test_every_command_is_on_its_page():
    """With its options, also below other commands."""
    text = tables().commands()

    assert [
        name for name in ("requeue", "delete", "handler set") if f"## holdfast {name}\n" not in text
    ] == []
    assert "`--from STEP`" in text


def test_every_variable_is_on_the_page_of_settings():
    """Those that the source reads."""
    text = tables().variables()
    found = {name for source in source_files() for name in VARIABLE.findall(source)} - INTERNAL

    assert "HOLDFAST_STORE" in found
    assert [name for name in sorted(found) if f"`{name}`" not in text] == []


def test_every_metric_is_on_its_page():
    """Those of servers and of workers."""
    text = (ROOT / "docs/metrics.md").read_text("utf-8")
    found = {name for source in source_files() for name in METRIC.findall(source)}

    assert len(found) > 10
    assert [name for name in sorted(found) if f"`{name}`" not in text] == []


def test_every_option_is_on_a_page():
    """Options of jobs, of tasks, of schedules and of addresses, where a page explains them."""
    options = {
        "tasks.md": JobOptions.__annotations__,
        "tasks.md handlers.md schedules.md": TaskOptions.__annotations__,
        "schedules.md": ["cron", "every", "repeat", "tz", "catch_up", "overlap", "jitter"],
        "reference/settings.md": [*REDIS, *POSTGRES, *GRPC],
    }

    missing = [
        f"{pages}: {name}"
        for pages, names in options.items()
        for text in ["".join((ROOT / "docs" / page).read_text("utf-8") for page in pages.split())]
        for name in names
        if not re.search(rf"`{name}[`=]", text)
    ]

    assert missing == []


@pytest.mark.proof
def test_the_reference_has_every_method(tmp_path):
    """Of every public class: it is on the page, with a text."""
    site = build(tmp_path, whole=True)
    text = "".join(page.read_text("utf-8") for page in site.glob("reference/*.html"))

    missing = [
        f"{cls.__name__}.{name}"
        for module in (holdfast, indexed, testing)
        for cls in (getattr(module, name) for name in module.__all__)
        if isinstance(cls, type) and not is_error(cls)
        for name in public_methods(cls)
        if f'id="{module.__name__}.{cls.__name__}.{name}"' not in text
        and not OURS.search(f"{cls.__name__}.{name}")
    ]

    assert missing == []


def public_methods(cls: type):
    """The functions of a class and of its bases that are ours."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("holdfast")]
    return {name for base in ours for name, value in vars(base).items() if callable(value) and name[0] != "_"}
