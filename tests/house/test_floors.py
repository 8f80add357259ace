"""Imports go down: never up, never sideways, never in a circle; and the rules stay pure.

9  contrib
8  cli  testing
7  serve
6  work  indexed
5  queue
4  remote  journal
3  engine
2  store  proto
1  core          no clock, no I/O, no randomness
"""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.house.source import PACKAGE, Module, imports, modules, names, plant

FLOORS = {
    "core": 1,
    "store": 2,
    "proto": 2,
    "engine": 3,
    "journal": 4,
    "remote": 4,
    "queue": 5,
    "work": 6,
    "indexed": 6,
    "serve": 7,
    "cli": 8,
    "testing": 8,
    "contrib": 9,
}

# The two files beside the rooms: the public names look down from above `work`, and `python -m holdfast`
# from above everything.
STANDS_ON = FLOORS | {"__init__": FLOORS["work"] + 1, "__main__": FLOORS["cli"] + 1}

# Where a function may import: `connect`, so that SQLite users need no PostgreSQL driver; SQL over jobs, so
# that only servers need apsw; the commands and the public names, so that `holdfast --help` is there at once;
# the queue and the engine, so that who only adds needs no asyncio and no batches; `serve`, for the libraries
# of its servers; the runner of handlers, for those over HTTP; a framework, whose settings come later.
LAZY = (
    "queue/connect.py",
    "queue/queue.py",
    "queue/signature.py",
    "engine/store_connection.py",
    "engine/engine.py",
    "engine/makers.py",
    "engine/queries.py",
    "engine/waiter.py",
    "serve/app.py",
    "work/__init__.py",
    "work/runners/runner.py",
    "work/executor/stored_handlers.py",
    "cli/",
    "contrib/",
    "testing/transactions.py",
    "__init__.py",
)

# What any function may import: slow to import, and not needed by a program that only adds jobs.
SLOW = (
    "asyncio",
    "base64",
    "concurrent.futures",
    "cronsim",
    "ctypes",
    "difflib",
    "fractions",
    "hashlib",
    "hmac",
    "holdfast.queue.hooks",
    "importlib",
    "logging",
    "random",
    "socket",
    "tempfile",
    "tomllib",
    "zoneinfo",
)

# Where clocks may be read. Everybody else is told what time it is, or asks the store.
CLOCK_FILES = {
    "store/common/clock.py": "the clock itself",
}

CLOCKS = {
    *(f"time.{clock}{unit}" for clock in ("time", "monotonic", "perf_counter") for unit in ("", "_ns")),
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
}

# What would let time, chance or the world into the rules.
IMPURE_MODULES = {
    *("time", "random", "secrets", "uuid"),
    *("os", "pathlib", "shutil", "tempfile", "sqlite3", "apsw", "logging"),
    *("socket", "select", "signal", "subprocess", "multiprocessing", "threading", "asyncio"),
}
IMPURE_CALLS = {"open", "print", "input"}


def climbing(package: Path) -> list[str]:
    """Imports that do not go down, as complaints."""
    found = modules(package)
    known = names(found)
    complaints = []
    for module in found:
        for wanted in imports(module, known=known):
            if wanted.target.split(".")[0] == "holdfast" and (why := _objection(module.room, wanted.target)):
                complaints.append(f"{module.path}:{wanted.line} imports {wanted.target}: {why}")
    return complaints


def _objection(here: str, target: str) -> str:
    there = target.partition(".")[2].split(".")[0]
    if here not in STANDS_ON:
        return f"{here} is not a room of the house"
    if not there:
        return "the public names are for others; import from the room that has it"
    if there not in FLOORS:
        return f"{there} is not a room of the house"
    if there != here and FLOORS[there] >= STANDS_ON[here]:
        return f"{there} is not below {here}"
    return ""


def circles(package: Path) -> list[str]:
    """One circle of files that import each other, as a complaint, or nothing."""
    found = modules(package)
    known = names(found)
    graph = {
        module.name: {wanted.target for wanted in imports(module, known=known) if wanted.target in known}
        for module in found
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" → ".join(reversed(error.args[1]))]
    return []


def lazy_imports(package: Path) -> list[str]:
    """Imports inside functions where none should be, as complaints."""
    found = modules(package)
    known = names(found)
    return [
        f"{module.path}:{wanted.line} imports {wanted.target} inside a function"
        for module in found
        if not module.path.startswith(LAZY)
        for wanted in imports(module, known=known)
        if wanted.lazy and not wanted.target.startswith(SLOW)
    ]


def impurities(package: Path) -> list[str]:
    """What in `core` reaches for the world outside, as complaints."""
    complaints = []
    for module in modules(package):
        if module.room != "core":
            continue
        for wanted in imports(module, known=frozenset()):
            if wanted.target.split(".")[0] in IMPURE_MODULES:
                complaints.append(f"{module.path}:{wanted.line} imports {wanted.target}")
        for node in ast.walk(module.tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in IMPURE_CALLS
            ):
                complaints.append(f"{module.path}:{node.lineno} calls {node.func.id}()")
    return complaints


def transactions(package: Path) -> list[str]:
    """Where a store's transactions are known outside the engine, as complaints."""
    return [
        f"{module.path}:{node.lineno} imports {alias.name}"
        for module in modules(package)
        # The suite that stores must pass is about transactions.
        if module.room not in ("store", "engine") and not module.path.startswith("testing/stores/")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in ("Txn", "ReadTxn")
    ]


def clocks(package: Path, *, allowed: dict[str, str]) -> list[str]:
    """Clocks read outside the allowed files, and allowances that nobody needs, as complaints."""
    complaints = []
    unused = set(allowed)
    for module in modules(package):
        for line, clock in _clock_reads(module):
            unused.discard(module.path)
            if module.path not in allowed:
                complaints.append(f"{module.path}:{line} reads {clock}")
    return complaints + [f"{path} reads no clock: take it off the list" for path in sorted(unused)]


def _clock_reads(module: Module) -> Iterator[tuple[int, str]]:
    meaning: dict[str, str] = {}  # what each imported name stands for
    for node in ast.walk(module.tree):
        match node:
            case ast.Import():
                meaning |= {alias.asname or alias.name: alias.name for alias in node.names}
            case ast.ImportFrom(module=str(base), level=0):
                full = {alias.asname or alias.name: f"{base}.{alias.name}" for alias in node.names}
                meaning |= full
                yield from ((node.lineno, name) for name in full.values() if name in CLOCKS)
            case ast.Attribute() if (name := _dotted(node, meaning)) in CLOCKS:
                yield node.lineno, name


def _dotted(node: ast.expr, meaning: dict[str, str]) -> str:
    match node:
        case ast.Name():
            return meaning.get(node.id, "")
        case ast.Attribute():
            return f"{_dotted(node.value, meaning)}.{node.attr}"
    return ""


def test_imports_go_down():
    """No file imports from its own height or above, also not lazily or for types alone."""
    assert climbing(PACKAGE) == []


def test_imports_form_no_circle():
    """Files can be read in an order in which each one needs only those before it."""
    assert circles(PACKAGE) == []


def test_imports_stand_at_the_top():
    """What a file needs is seen at its top, but for the places named in `LAZY` and libraries in `SLOW`."""
    assert lazy_imports(PACKAGE) == []


def test_transactions_stay_in_the_engine():
    """Everybody else asks: a command or a query goes in, a reply comes out."""
    assert transactions(PACKAGE) == []


def test_the_rules_are_pure():
    """`core` knows no clock, no rng, no file and no thread."""
    assert impurities(PACKAGE) == []


def test_clocks_are_read_in_few_places():
    """Time is an argument; `CLOCK_FILES` names whoever reads it, and names nobody else."""
    assert clocks(PACKAGE, allowed=CLOCK_FILES) == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("core/a.py", "from ..store import sqlite"),
        ("core/a.py", "from .. import store"),
        ("core/a.py", "import holdfast.store.sqlite"),
        ("core/a.py", "from holdfast.store.sqlite import Store"),
        ("core/a.py", "from holdfast import store"),
        ("core/a.py", "if TYPE_CHECKING:\n    from ..store import sqlite"),
        ("core/a.py", "def late():\n    from ..store import sqlite"),
        ("core/a.py", "importlib.import_module('holdfast.store.sqlite')"),
        ("core/a.py", "import_module('..store', __package__)"),
        ("store/deep/a.py", "from ...queue import queue"),
        ("proto/a.py", "from ..store import sqlite"),
        ("cli/a.py", "from ..testing import model"),
        ("cli/a.py", "import holdfast"),
        ("cli/a.py", "from holdfast import connect"),
        ("cli/a.py", "from .. import connect"),
        ("cli/a.py", "from ..cellar import wine"),
        ("__init__.py", "from .serve import app"),
        ("attic/a.py", "from ..core import job"),
    ],
)
def test_an_import_that_does_not_go_down_is_found(tmp_path, path, line):
    """Every way to write an import is understood."""
    plant(tmp_path, {"core/job.py": "", "store/sqlite.py": "", path: line})

    assert len(climbing(tmp_path)) == 1


def test_imports_that_go_down_are_left_alone(tmp_path):
    """Down, inside a room, from the top files, and from other libraries."""
    plant(
        tmp_path,
        {
            "__init__.py": "from .queue import connect\nfrom .work import worker\nfrom . import core",
            "__main__.py": "from .cli import main",
            "core/job.py": "import msgspec",
            "store/sqlite.py": "from ..core.job import Job\nfrom . import contract",
            "store/contract.py": "import holdfast.core.job",
            "work/runners/python.py": "from ..worker import Worker\nfrom ...core import job",
            "cli/add.py": "from holdfast.queue import connect",
        },
    )

    assert climbing(tmp_path) == []
    assert circles(tmp_path) == []


def test_a_circle_is_found(tmp_path):
    """Also one that is closed by a lazy import, and one through a folder's own file."""
    plant(tmp_path / "a", {"core/a.py": "from .b import x", "core/b.py": "def f():\n    from . import a"})
    plant(tmp_path / "b", {"core/__init__.py": "from .a import x", "core/a.py": "from . import y"})

    assert circles(tmp_path / "a") in (
        ["holdfast.core.a → holdfast.core.b → holdfast.core.a"],
        ["holdfast.core.b → holdfast.core.a → holdfast.core.b"],
    )
    assert len(circles(tmp_path / "b")) == 1


def test_a_lazy_import_is_found(tmp_path):
    """In methods too; not where it is allowed, nor under `if TYPE_CHECKING`."""
    lazy = "class A:\n    def f(self):\n        import json"
    typing = "if TYPE_CHECKING:\n    import json"
    plant(
        tmp_path, {"queue/base.py": lazy, "queue/connect.py": lazy, "cli/add.py": lazy, "core/a.py": typing}
    )

    assert lazy_imports(tmp_path) == ["queue/base.py:3 imports json inside a function"]


def test_an_impurity_is_found(tmp_path):
    """Imports and calls, in `core` only."""
    impure = "import os.path\nfrom random import choice\nprint(1)"
    plant(tmp_path, {"core/a.py": impure, "store/a.py": impure, "core/b.py": "import datetime, zoneinfo"})

    assert impurities(tmp_path) == [
        "core/a.py:1 imports os.path",
        "core/a.py:2 imports random",
        "core/a.py:3 calls print()",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.monotonic()",
        "import time as t\nnow = t.time_ns",
        "from time import perf_counter",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime as D\nD.utcnow()",
        "from datetime import date\ndate.today()",
    ],
)
def test_a_clock_is_found(tmp_path, text):
    """By whatever name it was imported, but not in the files that may read it."""
    plant(tmp_path, {"core/a.py": text, "store/clock.py": text})

    assert len(clocks(tmp_path, allowed={"store/clock.py": "the clock"})) == 1


def test_what_only_looks_like_a_clock_is_left_alone(tmp_path):
    """Sleeping, a field called `now`, a moment made from a number."""
    text = "import time\nfrom datetime import datetime\ntime.sleep(1)\nfacts.now\ndatetime.fromtimestamp(0)"
    plant(tmp_path, {"engine/a.py": text})

    assert clocks(tmp_path, allowed={}) == []


def test_an_allowance_to_read_clocks_that_nobody_needs_is_found(tmp_path):
    """The list stays as short as it can be."""
    plant(tmp_path, {"store/clock.py": ""})

    assert clocks(tmp_path, allowed={"store/clock.py": "the clock"}) == [
        "store/clock.py reads no clock: take it off the list"
    ]
