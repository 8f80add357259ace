"""Converts a `Changes` to the statements that write it, composed of the parts that it has.

    added ─┐
    swapped, archived, removed, forgotten, results, counts, rows ─┴▶ one statement, a CTE for each
    locks, a new notice                     before it, by themselves
    data, and changes of jobs just added    after it, because a statement does not see its own rows

The names of the values say which parts and columns there are, so the text is cached by them. Columns that
have their default are left out, and one that all jobs of a part have in common is one value (`…_all`). So an
add has a dozen values, and so have a thousand similar jobs.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import psycopg
from msgspec.structs import replace

from ...core.job import Body, Job, Place, State, Unreadable, plain_lease_ms, size_of
from ...core.kinds import Names
from ..common.records import COLD, rest_parts
from ..contract import UNCHANGED, Changes, CountKey, NewJobs, RowKey, TallyKey
from .statements import (
    LAYOUT,
    in_hex,
    in_layout,
    key_texts,
    numbered,
    numbers,
    quoted,
    raws,
    switches,
    texts,
)

# Data above this length is in a table of its own and written once. Shorter data is in the job's row and
# written again with each change of it, which costs less up to about 500.
BESIDE = 400

# The values of a statement by name.
Parameters = dict[str, Any]
_encode_lines = msgspec.json.Encoder().encode_lines
_by_id = attrgetter("id")


def _names(values: Sequence[State | None]) -> str:
    return texts([value or "" for value in values])


class _Column(NamedTuple):
    """A column: name, field, type, encoder of an array, its default, and how a single value is written."""

    name: str
    field: str
    kind: str
    write: Callable[[Sequence[Any]], str]
    new: Any
    one: Callable[[Any], Any] | None = None


def _same(name: str, kind: str, write: Callable[[Sequence[Any]], str], new: Any) -> _Column:
    return _Column(name, name, kind, write, new)


_DOMAIN = _Column("domain", "domain", "bytea", raws, None, in_hex)
# The columns of a job, with the defaults of a new one.
_JOB = (
    _same("tenant", "text", texts, ""),
    _same("task", "text", texts, None),
    _same("place", "smallint", numbers, Place.SCHEDULED),
    _same("rank", "bigint", numbers, 0),
    _same("version", "bigint", numbers, 1),
    _same("owner", "integer", numbers, 0),
    _same("lease_until", "bigint", numbers, 0),
    _same("started_at", "bigint", numbers, 0),
    _same("claim", "bigint", numbers, 0),
    _same("mock", "boolean", switches, False),
    _same("lapsed", "boolean", switches, False),
    _same("plain_ms", "bigint", numbers, 0),
    _Column("retries", "retry_after", "boolean", switches, 0, bool),
    _Column("ended", "ended", "text", _names, None, str),
    _same("expires_at", "bigint", numbers, 0),
    _same("parent_id", "bigint", numbers, 0),
    _DOMAIN,
    _same("schedule", "text", texts, ""),
)
# The columns of the archive; `state` is the field `ended`.
_ENDED = (
    _same("version", "bigint", numbers, None),
    _same("finished_at", "bigint", numbers, None),
    _same("parent_id", "bigint", numbers, 0),
    _same("tenant", "text", texts, ""),
    _same("task", "text", texts, None),
    _Column(
        "state",
        "ended",
        "text",
        lambda values: texts([value or State.FINISHED for value in values]),
        State.FINISHED,
        lambda value: str(value or State.FINISHED),
    ),
    _same("schedule", "text", texts, ""),
    _DOMAIN,
)
_ended_fields = attrgetter(*(column.field for column in _ENDED))


def _job_fields(job: Job) -> tuple[Any, ...]:
    """The values of the columns in order."""
    return (
        job.tenant,
        job.task,
        job.place,
        job.rank,
        job.version,
        job.owner,
        job.lease_until,
        job.started_at,
        job.claim,
        job.mock,
        job.lapsed,
        plain_lease_ms(job),
        job.retry_after,
        job.ended,
        job.expires_at,
        job.parent_id,
        job.domain,
        job.schedule,
    )


def parameters_of(changes: Changes) -> list[Parameters]:
    """The values of each statement, in order; without counts, locks and mark, which are of the last one."""
    parts: list[Parameters] = []
    parameters: Parameters = {}
    if changes.notice != UNCHANGED:
        parts.append({"new_notice": in_hex(changes.notice or b"")})
    if changes.added:
        _add(parameters, changes.added)
        others = {job.id for job in (*changes.swapped, *changes.archived, *changes.removed)}
        if others and any(id in others for group in changes.added for id, _ in group.rows):
            parts.append(parameters)
            parameters = {}
    if changes.swapped:
        _swap(parameters, changes.swapped)
    if changes.archived:
        _archive(parameters, changes.archived)
    if changes.removed:
        parameters["removed_ids"] = numbers([job.id for job in changes.removed])
        parameters["removed_version"] = numbers([job.version for job in changes.removed])
    if changes.forgotten:
        parameters["forgotten_ids"] = numbers(changes.forgotten)
    if changes.results:
        _put_bodies(parameters, "result", changes.results)
    if changes.rows:
        _put_rows(parameters, changes.rows, changes.dues)
    if changes.data:
        parts.append(parameters)
        parameters = {}
        _put_bodies(parameters, "data", changes.data)
    parts.append(parameters)
    return [part for part in parts if part]


def _add(parameters: Parameters, groups: Sequence[NewJobs]) -> None:
    if len(groups) == 1 and len(groups[0].rows) == 1:
        _add_one(parameters, groups[0])
        return
    if known := [id for group in groups if not group.is_fresh for id, _ in group.rows]:
        parameters["known_ids"] = numbers(known)
    rows = [row for group in groups for row in group.rows]
    if not rows:
        return
    ids, bodies = zip(*rows, strict=True)
    parameters["added_ids"] = numbers(ids)
    if large := {id: body for id, body in rows if len(body) > BESIDE and size_of(body) > BESIDE}:
        _put_bodies(parameters, "apart", large)
        bodies = tuple(None if id in large else body for id, body in rows)
    _put_arrays(parameters, "added", bodies)
    if len(groups) == 1:
        _, parameters["added_middle"], parameters["added_tail"] = rest_parts(groups[0].template)
        if large:
            parameters["added_sizes"] = numbers([size_of(body) for _, body in rows])
        _put_columns(parameters, "added", _JOB, [_job_fields(groups[0].template)])
    else:
        parameters["added_rest"] = texts([rest for group in groups for rest in _rests(group)])
        fields = [_job_fields(group.template) for group in groups for _ in group.rows]
        _put_columns(parameters, "added", _JOB, fields)


def _add_one(parameters: Parameters, group: NewJobs) -> None:
    ((job_id, body),) = group.rows
    size = size_of(body)
    parameters["added_id"] = job_id
    if not group.is_fresh:
        parameters["known_ids"] = numbers([job_id])
    (parameters["added_rest_all"],) = _rests(group)
    if size > BESIDE:
        _put_bodies(parameters, "apart", {job_id: body})
    elif isinstance(body, str):
        parameters["added_body"] = body
    else:
        parameters["added_raw"] = in_hex(body)
    _put_columns(parameters, "added", _JOB, [_job_fields(group.template)])


def _rests(group: NewJobs) -> list[str]:
    head, middle, tail = rest_parts(group.template)
    if len(group.rows) == 1:
        ((job, _),) = group.jobs()
        return [f"{head}{job.id}{middle}{job.size}{tail}"]
    return [f"{head}{id}{middle}{size_of(data)}{tail}" for id, data in group.rows]


def _swap(parameters: Parameters, jobs: Sequence[Job]) -> None:
    # By id, as they are locked.
    jobs = sorted(jobs, key=_by_id)
    parameters["swapped_ids"] = numbers([job.id for job in jobs])
    parameters["swapped_rest"] = records([replace(job, **COLD) for job in jobs])
    _put_columns(parameters, "swapped", _JOB, list(map(_job_fields, jobs)))


def _archive(parameters: Parameters, jobs: Sequence[Job]) -> None:
    jobs = sorted(jobs, key=_by_id)
    parameters["archived_ids"] = numbers([job.id for job in jobs])
    parameters["archived_record"] = records(jobs)
    _put_columns(parameters, "archived", _ENDED, list(map(_ended_fields, jobs)))


def _put_columns(
    parameters: Parameters, part: str, columns: Sequence[_Column], jobs: Sequence[tuple[Any, ...]]
) -> None:
    for column, values in zip(columns, zip(*jobs, strict=True), strict=True):
        first = values[0]
        if values.count(first) != len(values):
            parameters[f"{part}_{column.name}"] = column.write(values)
        elif first != column.new:
            one = column.one
            parameters[f"{part}_{column.name}_all"] = first if one is None else one(first)


def records(jobs: Sequence[Job]) -> str:
    """An array of whole records as JSON, encoded in one call."""
    # The encoded records contain no line breaks.
    return "{" + quoted(_encode_lines(jobs).decode().removesuffix("\n")).replace("\n", '","') + "}"


def _put_bodies(parameters: Parameters, part: str, bodies: Mapping[int, Body]) -> None:
    parameters[f"{part}_ids"] = numbers(bodies)
    _put_arrays(parameters, part, list(bodies.values()))


def _put_arrays(parameters: Parameters, part: str, bodies: Sequence[Body | None]) -> None:
    """Add bodies as two arrays, text and bytes, each only if needed."""
    kinds = set(map(type, bodies))
    if kinds & {bytes, Unreadable}:
        parameters[f"{part}_bodies"] = texts([body if isinstance(body, str) else None for body in bodies])
        parameters[f"{part}_raws"] = raws([body if isinstance(body, bytes) else None for body in bodies])
    else:
        parameters[f"{part}_bodies"] = texts(bodies)  # type: ignore[arg-type]


def _put_rows(
    parameters: Parameters, rows: Mapping[RowKey, bytes | None], dues: Mapping[RowKey, int]
) -> None:
    kept = [row for row in rows.items() if row[1] is not None]
    if kept:
        keys, values = zip(*kept, strict=True)
        _put_keys(parameters, "row", keys)
        parameters["row_value"] = raws(values)
        parameters["row_due"] = "{" + ",".join([str(dues.get(key, "NULL")) for key in keys]) + "}"
    if len(kept) < len(rows):
        _put_keys(parameters, "gone", [key for key, value in rows.items() if value is None])


def _put_keys(parameters: Parameters, part: str, row_keys: Sequence[RowKey]) -> None:
    tables, keys = zip(*row_keys, strict=True)
    parameters[f"{part}_tbl"] = texts(tables)
    parameters[f"{part}_key"] = key_texts(keys)


def tables_of(rows: Collection[RowKey]) -> Names:
    """The keys of rows by their table."""
    found: dict[str, list[str]] = {}
    for table, key in rows:
        found.setdefault(table, []).append(key)
    return found


def put_counts(
    parameters: Parameters, counts: Mapping[CountKey, int], tallies: Mapping[TallyKey, int]
) -> int:
    """Add the counts; return how many."""
    columns: list[tuple[str, str, int, str, int]] = [
        (key.tenant, key.task, int(key.place), key.counted, n) for key, n in counts.items() if n
    ]
    columns += [(key.tenant, key.task, 0, key.kind, n) for key, n in tallies.items()]
    if len(columns) == 1:
        for name, value in zip(_COUNT, columns[0], strict=True):
            parameters[name] = value
    elif columns:
        tenants, tasks, places, states, differences = zip(*columns, strict=True)
        parameters |= {"count_tenants": texts(tenants), "count_tasks": texts(tasks)}
        parameters |= {"count_places": numbers(places), "count_states": texts(states)}
        parameters["count_numbers"] = numbers(differences)
    return len(columns)


# How a statement is written

_COUNT = ("count_tenant", "count_task", "count_place", "count_state", "count_number")
_COUNTS = tuple(name + "s" for name in _COUNT)
_TYPES = {
    **{f"added_{column.name}": column.kind for column in _JOB},
    **{f"swapped_{column.name}": column.kind for column in _JOB},
    **{f"archived_{column.name}": column.kind for column in _ENDED},
}
_TYPES = (
    {f"{name}_all": kind for name, kind in _TYPES.items()}
    | {name: f"{kind}[]" for name, kind in _TYPES.items()}
    | dict(zip(_COUNT, ("text", "text", "smallint", "text", "bigint"), strict=True))
    | dict(zip(_COUNTS, ("text[]", "text[]", "smallint[]", "text[]", "bigint[]"), strict=True))
    | {"added_id": "bigint", "added_rest_all": "text", "added_body": "text", "added_raw": "bytea"}
    | {"added_middle": "text", "added_tail": "text", "added_sizes": "bigint[]"}
    | {"new_notice": "bytea", "new_mark": "bigint", "time_ms": "bigint", "writer_ms": "bigint"}
    | {"row_due": "bigint[]", "row_value": "bytea[]", "removed_version": "bigint[]"}
    | {"late": "bigint[]", "locks": "bigint[]"}
)
_ENDINGS = {"_ids": "bigint[]", "_bodies": "text[]", "_raws": "bytea[]"}


def _value(name: str) -> str:
    """The placeholder of a value with its type."""
    ending = name[name.rfind("_") :]
    return f"%({name})s::{_TYPES.get(name) or _ENDINGS.get(ending, 'text[]')}"


def _columns(
    names: Collection[str], part: str, columns: Sequence[_Column], *, whole: bool
) -> tuple[dict[str, str], list[str]]:
    """The expression of each column, and the names of those that are arrays; `whole`: also defaults."""
    found, arrays = {}, []
    for column in columns:
        name = f"{part}_{column.name}"
        if f"{name}_all" in names:
            found[column.name] = _value(f"{name}_all")
        elif name in names:
            found[column.name] = f"new.{column.name}"
            arrays.append(name)
        elif whole:
            new = column.new
            if isinstance(new, str):
                found[column.name] = f"'{new}'"
            elif column.name == "ended":
                found[column.name] = "''"
            elif isinstance(new, bool) or (column.kind == "boolean"):
                found[column.name] = "false"
            else:
                found[column.name] = f"NULL::{column.kind}" if new is None else str(int(new))
    return found, arrays


def _unnest(part: str, names: Sequence[str]) -> str:
    """Arrays as rows of a table `new`, with the ends of their names as columns."""
    arrays = ", ".join(map(_value, names))
    return f"unnest({arrays}) AS new ({', '.join(name.removeprefix(f'{part}_') for name in names)})"


def _insert_jobs(names: Collection[str], jobs: str) -> str:
    columns, arrays = _columns(names, "added", _JOB, whole=False)
    if "added_id" in names:
        columns = {"id": _value("added_id"), **columns, "rest": _value("added_rest_all")}
        columns |= {name: _value(f"added_{name}") for name in ("body", "raw") if f"added_{name}" in names}
        where = ""
    else:
        arrays = [
            name for name in ("added_ids", "added_bodies", "added_raws", "added_sizes") if name in names
        ] + arrays
        if "added_rest" in names:
            arrays.append("added_rest")
            rest = "new.rest"
        else:
            lengths = [f"octet_length(new.{name})" for name in ("bodies", "raws") if f"added_{name}" in names]
            size = "new.sizes" if "added_sizes" in names else f"coalesce({', '.join(lengths)})"
            rest = f"""'{{"id":' || new.ids || {_value("added_middle")} || {size} || {_value("added_tail")}"""
        columns = {"id": "new.ids", **columns, "rest": rest, "body": "new.bodies"}
        if "added_raws" in names:
            columns["raw"] = "new.raws"
        where = f" FROM {_unnest('added', arrays)}"
    if "known_ids" in names:
        where += f" WHERE NOT EXISTS (SELECT FROM {{schema}}.archive WHERE id = ANY({_value('known_ids')}))"
    return f"INSERT INTO {jobs} ({', '.join(columns)}) SELECT {', '.join(columns.values())}{where}"


def _swap_jobs(names: Collection[str], jobs: str) -> str:
    columns, arrays = _columns(names, "swapped", _JOB, whole=True)
    sets = ", ".join(f"{name} = {value}" for name, value in columns.items())
    return (
        f"UPDATE {jobs} AS job SET {sets}, rest = new.rest "
        f"FROM {_unnest('swapped', ['swapped_ids', 'swapped_rest', *arrays])} "
        f"WHERE job.id = new.ids AND job.version = {columns['version']} - 1 RETURNING 1"
    )


def _end_jobs(names: Collection[str], jobs: str) -> list[str]:
    columns, arrays = _columns(names, "archived", _ENDED, whole=True)
    version = columns.pop("version")
    kept = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    into = ", ".join(columns)
    ended = (
        f"ended AS (DELETE FROM {jobs} AS job "
        f"USING {_unnest('archived', ['archived_ids', 'archived_record', *arrays])} "
        f"WHERE job.id = new.ids AND job.version = {version} - 1 "
        f"RETURNING job.id, {kept}, new.record, job.body, job.raw)"
    )
    archived = (
        f"archived AS (INSERT INTO {{schema}}.archive (id, {into}, record, body, raw) "
        f"SELECT id, {into}, record, body, raw FROM ended RETURNING 1)"
    )
    return [ended, archived]


def _put(table: str, part: str, names: Collection[str]) -> str:
    raw = f"{part}_raws" in names
    arrays = [f"{part}_ids", f"{part}_bodies", *([f"{part}_raws"] if raw else [])]
    return (
        f"INSERT INTO {{schema}}.{table} (id, body, raw) "
        f"SELECT new.ids, new.bodies, {'new.raws' if raw else 'NULL'} FROM {_unnest(part, arrays)} "
        "ON CONFLICT (id) DO UPDATE SET body = excluded.body, raw = excluded.raw"
    )


def _parts(names: Collection[str], jobs: str) -> tuple[list[str], list[str]]:
    """The CTEs of a statement, and the conditions under which it is refused."""
    ctes, refused = [], []

    def expect(cte: str, ids: str) -> None:
        expected = f"cardinality({_value(ids)})" if ids.endswith("ids") else "1"
        refused.append(f"(SELECT count(*) FROM {cte}) <> {expected}")

    if "apart_ids" in names:
        ctes.append(f"apart AS ({_put('data_apart', 'apart', names)})")
    if "known_ids" in names:
        ctes.append(f"added AS ({_insert_jobs(names, jobs)} RETURNING 1)")
        expect("added", "added_id" if "added_id" in names else "added_ids")
    if "swapped_ids" in names:
        ctes.append(f"swapped AS ({_swap_jobs(names, jobs)})")
        expect("swapped", "swapped_ids")
    if "archived_ids" in names:
        ctes += _end_jobs(names, jobs)
        expect("archived", "archived_ids")
    if "removed_ids" in names:
        gone = _unnest("removed", ["removed_ids", "removed_version"])
        ctes.append(
            f"removed AS (DELETE FROM {jobs} AS job USING {gone} "
            "WHERE job.id = new.ids AND job.version = new.version RETURNING 1)"
        )
        expect("removed", "removed_ids")
    if "forgotten_ids" in names:
        ids = _value("forgotten_ids")
        ctes.append(f"forgotten AS (DELETE FROM {{schema}}.archive WHERE id = ANY({ids}) RETURNING 1)")
        expect("forgotten", "forgotten_ids")
    if ids := " || ".join([_value(name) for name in ("removed_ids", "forgotten_ids") if name in names]):
        for table in ("data_apart", "results"):
            ctes.append(f"no_{table} AS (DELETE FROM {{schema}}.{table} WHERE id = ANY({ids}))")
    return [*ctes, *_other_parts(names)], refused


def _other_parts(names: Collection[str]) -> list[str]:
    """The CTEs of what is not a job, and is never refused."""
    ctes = []
    if "data_ids" in names:
        # The data is no longer in the row of the job.
        for table in ("jobs", "archive"):
            ctes.append(
                f"moved_{table} AS (UPDATE {{schema}}.{table} SET body = NULL, raw = NULL "
                f"WHERE id = ANY({_value('data_ids')}) AND (body IS NOT NULL OR raw IS NOT NULL))"
            )
        ctes.append(f"data AS ({_put('data_apart', 'data', names)})")
    if "result_ids" in names:
        ctes.append(f"results AS ({_put('results', 'result', names)})")
    into = "INSERT INTO {schema}.count_changes (tenant, task, place, state, number)"
    if "count_task" in names:
        ctes.append(f"counts AS ({into} VALUES ({', '.join(map(_value, _COUNT))}))")
    elif "count_tasks" in names:
        ctes.append(f"counts AS ({into} SELECT * FROM unnest({', '.join(map(_value, _COUNTS))}))")
    if "row_key" in names:
        rows = _unnest("row", ["row_tbl", "row_key", "row_due", "row_value"])
        written = _value("writer_ms") if "writer_ms" in names else "0"
        ctes.append(
            f"put AS (INSERT INTO {{schema}}.rows (tbl, key, due_ms, at_ms, value) "
            f"SELECT new.tbl, new.key, new.due, {written}, new.value FROM {rows} "
            "ON CONFLICT (tbl, key) DO UPDATE "
            "SET due_ms = excluded.due_ms, at_ms = excluded.at_ms, value = excluded.value)"
        )
    if "gone_key" in names:
        ctes.append(
            f"gone AS (DELETE FROM {{schema}}.rows USING {_unnest('gone', ['gone_tbl', 'gone_key'])} "
            "WHERE rows.tbl = new.tbl AND rows.key = new.key)"
        )
    if "new_mark" in names:
        values = f"{_value('time_ms')}, {_value('new_mark')}"
        ctes.append(f"mark AS (INSERT INTO {{schema}}.commit_marks (at_ms, mark) VALUES ({values}))")
    return ctes


@lru_cache(maxsize=512)
def statement_of(schema: str, names: tuple[str, ...], version: int = LAYOUT, *, plain: bool = False) -> str:
    """The statement with these values as `%(name)s`; `plain`: one that fails while the store has a notice."""
    if "new_notice" in names:
        sql = f"SELECT {{schema}}.set_notice({_value('new_notice')})"
    elif "locks" in names:
        sql = f"SELECT {{schema}}.take_locks({_value('late')}, {_value('locks')})"
    else:
        jobs = "{schema}.plain_jobs" if plain else "{schema}.jobs"
        ctes, refused = _parts(names, jobs)
        last = (
            f"SELECT CASE WHEN {' OR '.join(refused)} THEN {{schema}}.refuse() END" if refused else "SELECT"
        )
        if {"added_id", "added_ids"} & set(names) and "known_ids" not in names:
            insert = _insert_jobs(names, jobs)
            if refused:
                ctes.append(f"added AS ({insert})")
            else:
                last = insert
        sql = f"WITH {', '.join(ctes)} {last}" if ctes else last
    return in_layout(sql, version).replace("{schema}", f'"{schema}"')


@lru_cache(maxsize=512)
def numbered_statement(
    schema: str, names: tuple[str, ...], version: int = LAYOUT, *, plain: bool = False
) -> tuple[str, tuple[str, ...]]:
    """The statement with `$1`, `$2`, … and the name of each value."""
    return numbered(statement_of(schema, names, version, plain=plain))


def as_bytes(values: Collection[Any]) -> list[bytes]:
    """Values as libpq needs them."""
    joined = "\0".join(map(str, values))
    if joined.count("\0") >= len(values):
        raise psycopg.DataError("PostgreSQL has no text with NUL in it")
    return joined.encode().split(b"\0")
