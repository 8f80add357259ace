"""Read-only SQL over one table, `jobs`, on one view of any store: the `Query` of the job-command port.

It runs in an in-memory SQLite database whose only table is a virtual one over the store's list of jobs. An
authorizer allows only reads of that table and harmless functions. Rows examined, time, the length of a value
and the size of the reply are limited.

`select *` returns the columns of the protocol's sample; `priority`, `parentJobID` and `retryAfter` are hidden
columns, returned if they are named.

SQLite looks at the clock between rows only. So a query may name few functions, and those whose time grows
with the product of their arguments' lengths take a short pattern and look at the clock themselves.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import apsw
import msgspec

from ..core.bounds import (
    PAGE_JOBS,
    QUERY_ANSWER_BYTES,
    QUERY_FUNCTIONS,
    QUERY_MS,
    QUERY_PATTERN_BYTES,
    QUERY_ROWS,
    QUERY_VALUE_BYTES,
)
from ..core.columns import data_now, modifier, next_run, seconds
from ..core.errors import QueryFailed
from ..core.ids import MAX_ID
from ..core.job import Job, State, marked
from ..store.common.clock import monotonic_s
from ..store.contract import JobFilter, ReadTxn

SCHEMA = (
    "CREATE TABLE jobs (created, jobID INTEGER, state, name, nextRun, lastRun, repeat, data, "
    "priority HIDDEN, parentJobID HIDDEN, retryAfter HIDDEN)"
)
_DATA = 7
# The columns that a search can use, by number.
_BY_ID, _BY_STATE, _BY_NAME = 1, 2, 3

# None of these makes large values from small ones, or reads anything but its arguments.
_FUNCTIONS = """
abs avg char coalesce count date datetime glob group_concat hex ifnull iif instr json json_array
json_array_length json_each json_extract json_group_array json_group_object json_object json_quote json_type
json_valid julianday length like lower ltrim max min nullif quote round rtrim sign strftime string_agg substr
substring sum time timediff total trim typeof unicode unixepoch upper -> ->>
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
_TABLES = frozenset(("jobs", "json_each", "json_tree"))
# Functions whose time grows with the product of their arguments' lengths, by their number of arguments.
_MATCHING = (("like", 2), ("like", 3), ("glob", 2), ("instr", 2), ("trim", 2), ("ltrim", 2), ("rtrim", 2))
# How many instructions of SQLite's virtual machine run between two checks of the time. A few: each may be a
# call of a function with a megabyte of data.
_STEPS = 100


class Search:
    """One SELECT over the live jobs of a tenant."""

    def __init__(self, txn: ReadTxn, tenant: str) -> None:
        self.txn, self.tenant = txn, tenant
        self._until_s = monotonic_s() + QUERY_MS / 1000
        self._rows = self._functions = 0

    def run(self, text: str) -> bytes:
        """The resulting rows as a JSON array of arrays; raises `QueryFailed`."""
        connection, matcher = apsw.Connection(":memory:"), apsw.Connection(":memory:")
        try:
            connection.limit(apsw.SQLITE_LIMIT_LENGTH, QUERY_VALUE_BYTES)
            connection.limit(apsw.SQLITE_LIMIT_EXPR_DEPTH, 100)
            connection.limit(apsw.SQLITE_LIMIT_COMPOUND_SELECT, 10)
            matcher.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, QUERY_PATTERN_BYTES)
            for name, count in _MATCHING:
                call = f"SELECT {name}({', '.join('?' * count)})"
                match = partial(self._match, matcher, name, call)
                connection.create_scalar_function(name, match, count, deterministic=True)
            module: Any = _Module(self)
            connection.create_module(
                "jobs",
                module,
                eponymous=True,
                eponymous_only=True,
                read_only=True,
                use_bestindex_object=True,
            )
            connection.authorizer = self._authorize
            connection.set_progress_handler(self._is_late, _STEPS)
            return self._answer(connection, text)
        except apsw.InterruptError:
            raise QueryFailed(f"it took more than {QUERY_MS / 1000:g} s") from None
        except apsw.Error as error:
            raise QueryFailed(str(error)) from None
        finally:
            connection.close(True)
            matcher.close(True)

    def _answer(self, connection: apsw.Connection, text: str) -> bytes:
        parts: list[bytes] = []
        size = 0
        for row in connection.execute(text):
            parts.append(msgspec.json.encode([_shown(value) for value in row]))
            size += len(parts[-1])
            if size > QUERY_ANSWER_BYTES:
                raise QueryFailed(f"the answer has more than {QUERY_ANSWER_BYTES:,} bytes: add a LIMIT")
        return b"[" + b",".join(parts) + b"]"

    def _is_late(self) -> bool:
        return monotonic_s() > self._until_s

    def _check_time(self) -> None:
        if self._is_late():
            raise QueryFailed(f"it took more than {QUERY_MS / 1000:g} s")

    def _match(self, matcher: apsw.Connection, name: str, call: str, *values: Any) -> Any:
        """The value of one of the functions in `_MATCHING`, by a connection that has SQLite's own."""
        self._check_time()
        # SQLite itself limits the patterns of LIKE and GLOB.
        if name not in ("like", "glob") and len(str(values[1])) > QUERY_PATTERN_BYTES:
            raise QueryFailed(f"the second argument of {name} has more than {QUERY_PATTERN_BYTES} characters")
        return matcher.execute(call, values).get

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == apsw.SQLITE_FUNCTION:
            self._functions += 1
            if self._functions > QUERY_FUNCTIONS:
                raise QueryFailed(f"it calls functions in more than {QUERY_FUNCTIONS} places")
        return apsw.SQLITE_OK if _is_allowed(action, first, second) else apsw.SQLITE_DENY

    def jobs(self, by: int, value: Any) -> Iterator[Job]:
        """The jobs that may match, by age."""
        if by == _BY_ID:
            found = self.txn.load([job_id]) if 0 < (job_id := _as_id(value)) <= MAX_ID else {}
            yield from (job for job in found.values() if job.tenant == self.tenant)
            return
        query = JobFilter(tenant=self.tenant)
        if by == _BY_STATE:
            if value not in list(State):
                return
            query = query._replace(state=State(value))
        elif by == _BY_NAME:
            if not isinstance(value, str):
                return
            query = query._replace(task=value)
        after = 0
        while page := self.txn.jobs(query, after=after, limit=PAGE_JOBS):
            self._spend(len(page))
            yield from page
            after = page[-1].id
            if len(page) < PAGE_JOBS:
                return

    def _spend(self, rows: int) -> None:
        self._rows += rows
        if self._rows > QUERY_ROWS:
            raise QueryFailed(
                f"it looked at more than {QUERY_ROWS:,} jobs: say which by jobID, name or state"
            )
        self._check_time()

    def column(self, job: Job, number: int) -> Any:
        """The value of a column for a job; -1 is the row id."""
        if number == _DATA:
            return bytes(data_now(job, marked(self.txn.bodies([job.id]).get(job.id)))).decode()
        return _COLUMNS[number](job)


_COLUMNS: dict[int, Any] = {
    -1: lambda job: job.id,
    0: lambda job: seconds(job.created_at),
    1: lambda job: job.id,
    2: lambda job: str(job.state),
    3: lambda job: job.task,
    4: next_run,
    5: lambda job: seconds(job.started_at),
    6: lambda job: job.repeat,
    8: lambda job: job.priority,
    9: lambda job: job.parent_id,
    10: lambda job: modifier(job.retry_after),
}


class _Module:
    """The virtual table module, by which SQLite creates the table."""

    def __init__(self, search: Search) -> None:
        self._search = search

    def Connect(self, *_: Any) -> tuple[str, "_Table"]:  # noqa: N802
        return SCHEMA, _Table(self._search)

    Create = Connect


class _Table:
    def __init__(self, search: Search) -> None:
        self._search = search

    def BestIndexObject(self, info: Any) -> bool:  # noqa: N802
        """Choose one column with an equality constraint, preferably the id; SQLite checks the others."""
        usable = {info.get_aConstraint_iColumn(at): at for at in range(info.nConstraint) if _finds(info, at)}
        for column, cost in ((_BY_ID, 1.0), (_BY_NAME, 1_000.0), (_BY_STATE, 10_000.0)):
            if column in usable:
                info.set_aConstraintUsage_argvIndex(usable[column], 1)
                info.idxNum, info.estimatedCost = column, cost
                break
        return True

    def Open(self) -> "_Cursor":  # noqa: N802
        return _Cursor(self._search)

    def Disconnect(self) -> None:  # noqa: N802
        """Nothing to release."""

    Destroy = Disconnect


class _Cursor:
    def __init__(self, search: Search) -> None:
        self._search = search
        self._jobs: Iterator[Job] = iter(())
        self._job: Job | None = None

    def Filter(self, number: int, _name: str | None, values: tuple[Any, ...]) -> None:  # noqa: N802
        self._jobs = self._search.jobs(number, values[0] if values else None)
        self.Next()

    def Eof(self) -> bool:  # noqa: N802
        return self._job is None

    def Next(self) -> None:  # noqa: N802
        self._job = next(self._jobs, None)

    def Rowid(self) -> int:  # noqa: N802
        return self._job.id if self._job is not None else 0

    def Column(self, number: int) -> Any:  # noqa: N802
        return self._search.column(self._job, number) if self._job is not None else None

    def Close(self) -> None:  # noqa: N802
        self._jobs = iter(())


def _finds(info: Any, at: int) -> bool:
    """Whether a constraint compares a column that a search can use, and as a search does."""
    return bool(
        info.get_aConstraint_usable(at)
        and info.get_aConstraint_iColumn(at) in (_BY_ID, _BY_STATE, _BY_NAME)
        and info.get_aConstraint_op(at) == apsw.SQLITE_INDEX_CONSTRAINT_EQ
        and info.get_aConstraint_collation(at) == "BINARY"
    )


def _as_id(value: Any) -> int:
    """The id that a value may equal, also a text or a float; 0: none. SQLite compares the two again."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def _is_allowed(action: int, first: str | None, second: str | None) -> bool:
    return (
        action == apsw.SQLITE_SELECT
        or (action == apsw.SQLITE_READ and (first or "").lower() in _TABLES)
        or (action == apsw.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS)
    )


def _shown(value: Any) -> Any:
    """A value as it is answered: what is JSON, such as data, as that."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            msgspec.json.decode(value)
            return msgspec.Raw(value.encode())
        except (msgspec.DecodeError, RecursionError):
            return value
    return value
