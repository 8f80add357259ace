"""The wheel holds what users run, helpers for their tests and `store_suite`, and none of our own tests."""

import tomllib

from tests.house.source import PACKAGE, ROOT, imports, modules

# Every folder of the wheel that holds modules. One that is missing here or gone from there is a decision.
PACKAGES = {
    "",
    *("contrib", "contrib/django", "contrib/django/management", "contrib/django/management/commands"),
    *("core", "proto", "queue", "remote", "journal", "indexed"),
    *("cli", "cli/bench", "cli/commands"),
    *("engine", "engine/batch", "engine/commands", "engine/migrate", "engine/sharding"),
    *("serve", "serve/bedrock", "serve/dashboard", "serve/dashboard/pages", "serve/grpc", "serve/http"),
    *(
        "store",
        "store/common",
        "store/memory",
        "store/postgres",
        "store/redis",
        "store/sharded",
        "store/sqlite",
    ),
    *("testing", "testing/stores"),
    *("work", "work/executor", "work/runners", "work/runners/children", "work/supervisor"),
}

# Folders of what is read at run time, found beside the module that reads them.
DATA = {
    *("store/postgres/migrations", "store/postgres/sql"),
    *("store/sqlite/migrations", "store/sqlite/sql"),
    "store/redis/lua",
    *("serve/dashboard/static", "work/runners/children"),
    "proto",
}

# What pytest and Hypothesis may be imported by: the suite for those who write a store.
SUITE = ("testing/store_suite.py", "testing/stores/")


def _folders(suffixes: set[str]) -> set[str]:
    files = (path for path in PACKAGE.rglob("*") if path.suffix in suffixes)
    return {path.parent.relative_to(PACKAGE).as_posix().removeprefix(".") for path in files}


def test_the_wheel_is_the_package_and_nothing_else():
    """The build takes one folder as it is, so what lies in it is what users get."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/holdfast"]}
    assert _folders({".py"}) == PACKAGES
    assert _folders({".sql", ".lua", ".binpb", ".css", ".js", ".sh", ".svg"}) == DATA


def test_every_package_says_what_is_in_it():
    """A folder without `__init__.py` would have no docstring, and some tools leave it out."""
    found = {module.path for module in modules(PACKAGE)}

    assert [folder for folder in sorted(PACKAGES) if f"{folder}/__init__.py".lstrip("/") not in found] == []


def test_only_the_suite_for_stores_needs_pytest():
    """What users run, and the helpers for their tests, work where neither library is installed."""
    needing = {
        module.path
        for module in modules(PACKAGE)
        for wanted in imports(module, known=frozenset())
        if wanted.target.split(".")[0] in {"pytest", "hypothesis"}
    }

    assert [path for path in sorted(needing) if not path.startswith(SUITE)] == []
