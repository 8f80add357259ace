"""SQL over jobs: what a query may use of the server."""

import json
import time
from typing import Any

import pytest

from holdfast.core.bounds import QUERY_FUNCTIONS, QUERY_PATTERN_BYTES
from holdfast.core.errors import QueryFailed
from holdfast.engine import sql

ZEROS = "0" * 30_000
# A row whose column h has 900,000 zeros.
LONG = f"(select {'||'.join(['a'] * 30)} as h from (select '{ZEROS}' as a))"
# A pattern that almost matches everywhere in it.
PATTERN = "0" * (QUERY_PATTERN_BYTES - 2) + "x"
ROWS = f"json_each('{list(range(1_000))}')"


class NoJobs:
    """A store without jobs."""

    def jobs(self, *_args, **_options):
        """None."""
        return []


def rows(text):
    """The rows of a query."""
    store: Any = NoJobs()
    return json.loads(sql.Search(store, "").run(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'aXc' like 'Ax%'", 1),
        ("'a%c' like 'a!%c' escape '!'", 1),
        ("'abc' not like '%d%'", 1),
        ("'abc' glob 'A*'", 0),
        ("instr('héllo', 'l')", 3),
        ("instr(x'0102', x'02')", 2),
        ("instr(12345, 34)", 3),
        ("instr(null, 'a')", None),
        ("trim('xaxbx', 'x')", "axb"),
        ("ltrim('xax', 'x')", "ax"),
        ("rtrim('xax', 'x')", "xa"),
        ("trim('  a ')", "a"),
    ],
)
def test_functions_that_match_text_are_those_of_sqlite(text, value):
    """Whatever the types of their arguments."""
    assert rows(f"select {text}") == [[value]]


@pytest.mark.parametrize(
    "text",
    [
        f"select sum(h like '%{PATTERN}' || substr(value, 1, 0)) from {LONG}, {ROWS}",
        pytest.param(
            f"select sum(h glob '*{PATTERN}' || substr(value, 1, 0)) from {LONG}, {ROWS}",
            marks=pytest.mark.proof,
        ),
        f"select sum(instr(h, '{PATTERN}' || substr(value, 1, 0))) from {LONG}, {ROWS}",
        f"select {', '.join(['length(trim(h, value))'] * 49)} from {LONG}, (select 'abcdefghi0' as value)",
        pytest.param(
            f"select {', '.join(['length(json_quote(h))'] * 49)} from {LONG}, {ROWS}", marks=pytest.mark.proof
        ),
    ],
    ids=("like", "glob", "instr", "trim", "json"),
)
def test_a_query_ends_soon_after_its_time(text, monkeypatch):
    """Also if a single row, or a single function, takes long."""
    monkeypatch.setattr(sql, "QUERY_MS", 500)
    began_s = time.monotonic()

    with pytest.raises(QueryFailed, match=r"it took more than 0\.5 s"):
        rows(text)

    assert time.monotonic() - began_s < 60


@pytest.mark.parametrize("name", ["instr", "trim", "ltrim", "rtrim"])
def test_what_is_looked_for_is_short(name):
    """The time of the function grows with it."""
    assert len(rows(f"select {name}('a', '{'b' * QUERY_PATTERN_BYTES}')")) == 1

    with pytest.raises(QueryFailed, match=f"the second argument of {name} has more than 255 characters"):
        rows(f"select {name}(h, substr(h, 1, {QUERY_PATTERN_BYTES + 1})) from {LONG}")


def test_a_query_names_few_functions():
    """SQLite looks at the clock between rows only."""
    assert len(rows(f"select {', '.join(['abs(1)'] * QUERY_FUNCTIONS)}")[0]) == QUERY_FUNCTIONS

    with pytest.raises(QueryFailed, match="it calls functions in more than 100 places"):
        rows(f"select {', '.join(['abs(1)'] * (QUERY_FUNCTIONS + 1))}")
