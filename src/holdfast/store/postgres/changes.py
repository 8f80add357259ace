"""Converts a `Changes` to the parameters of the SQL function `commit_changes`: arrays, only those needed.

If all jobs have the same value in a column, its array has one element; if that is the default of a new job,
the array is left out. So a plain add has a dozen parameters, and so have a thousand similar jobs.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import psycopg
from msgspec.structs import replace

from ...core.job import Body, Job, Place, State, Unreadable, size_of
from ...core.kinds import Names
from ..common.form import COLD, rest_parts
from ..contract import UNCHANGED, Changes, CountKey, NewJobs, RowKey, TallyKey
from .statements import (
    LAYOUT,
    in_hex,
    key_texts,
    migrations,
    numbered,
    numbers,
    quoted,
    raws,
    suffix,
    switches,
    texts,
)

# Data above this length is in a table of its own and written once. Shorter data is in the job's row and
# written again with each change of it, which costs less up to about 500. `commit_changes` has the same
# number.
BESIDE = 400

Parameters = dict[str, Any]
_encode_lines = msgspec.json.Encoder().encode_lines
_by_id = attrgetter("id")


def _names(values: Sequence[State | None]) -> str:
    return texts([value or "" for value in values])


# The columns of a job: name, field, encoder of values, and the default of a new job.
_Write = Callable[[Sequence[Any]], str]
_Column = tuple[str, _Write, Any, str]
_COLUMNS: tuple[tuple[str, str, _Write, Any], ...] = (
    ("tenant", "tenant", texts, ""),
    ("task", "task", texts, None),
    ("place", "place", numbers, Place.SCHEDULED),
    ("rank", "rank", numbers, 0),
    ("version", "version", numbers, 1),
    ("owner", "owner", numbers, 0),
    ("lease_until", "lease_until", numbers, 0),
    ("started_at", "started_at", numbers, 0),
    ("claim", "claim", numbers, 0),
    ("mock", "mock", switches, False),
    ("lapsed", "lapsed", switches, False),
    ("retries", "retry_after", switches, 0),
    ("ended", "ended", _names, None),
    ("expires_at", "expires_at", numbers, 0),
    ("parent_id", "parent_id", numbers, 0),
    ("domain", "domain", raws, None),
    ("schedule", "schedule", texts, ""),
)
_fields = attrgetter(*(field for _, field, _, _ in _COLUMNS))
# Columns with a second, scalar parameter for a value that all added jobs have in common. Most new jobs have
# the default in all others.
_ALIKE = {name: f"alike_{name}" for name in ("tenant", "task", "place", "rank")}
_other_fields = attrgetter(*(field for name, field, _, _ in _COLUMNS if name not in _ALIKE))
_OTHER_DEFAULTS = tuple(new for name, _, _, new in _COLUMNS if name not in _ALIKE)
_ADDED: tuple[_Column, ...] = tuple(
    (f"added_{name}", write, new, _ALIKE.get(name, "")) for name, _, write, new in _COLUMNS
)
_SWAPPED: tuple[_Column, ...] = tuple((f"swapped_{name}", write, new, "") for name, _, write, new in _COLUMNS)
# The columns of the archive; `state` is the field `ended`.
_ENDED: tuple[tuple[str, str, _Write, Any], ...] = (
    ("version", "version", numbers, None),
    ("finished_at", "finished_at", numbers, None),
    ("parent_id", "parent_id", numbers, 0),
    ("tenant", "tenant", texts, ""),
    ("task", "task", texts, None),
    ("state", "ended", lambda values: texts([value or State.FINISHED for value in values]), State.FINISHED),
    ("schedule", "schedule", texts, ""),
    ("domain", "domain", raws, None),
)
_ended_fields = attrgetter(*(field for _, field, _, _ in _ENDED))
_ARCHIVED: tuple[_Column, ...] = tuple((f"archived_{name}", write, new, "") for name, _, write, new in _ENDED)


def parameters_of(changes: Changes) -> Parameters:
    """All parameters but the counts; empty ones are left out."""
    parameters: Parameters = {}
    if changes.added:
        _add(parameters, changes.added)
    if changes.swapped:
        _swap(parameters, changes.swapped)
    if changes.archived:
        _archive(parameters, changes.archived)
    if changes.removed:
        parameters["removed_ids"] = numbers([job.id for job in changes.removed])
        parameters["removed_version"] = numbers([job.version for job in changes.removed])
    if changes.forgotten:
        parameters["forgotten_ids"] = numbers(changes.forgotten)
    if changes.data:
        parameters["data_ids"] = numbers(changes.data)
        _put_bodies(parameters, "data", list(changes.data.values()))
    if changes.results:
        parameters["result_ids"] = numbers(changes.results)
        _put_bodies(parameters, "result", list(changes.results.values()))
    if changes.rows:
        _put_rows(parameters, changes.rows, changes.dues)
    if changes.notice != UNCHANGED:
        parameters["new_notice"] = in_hex(changes.notice or b"")
    return parameters


def _add(parameters: Parameters, groups: Sequence[NewJobs]) -> None:
    if len(groups) == 1:
        template, rows, is_fresh = groups[0].template, groups[0].rows, groups[0].is_fresh
        _, parameters["added_middle"], parameters["added_tail"] = rest_parts(template)
        is_plain = is_fresh and _other_fields(template) == _OTHER_DEFAULTS
        if is_plain:
            parameters["alike_task"], parameters["alike_place"] = template.task, template.place
            parameters["alike_rank"] = template.rank
            if template.tenant:
                parameters["alike_tenant"] = template.tenant
        else:
            _put_columns(parameters, _ADDED, [_fields(template)])
    else:
        is_plain, rows = False, [row for group in groups for row in group.rows]
        parameters["added_rest"] = texts([rest for group in groups for rest in _rests(group)])
        _put_columns(parameters, _ADDED, [_fields(group.template) for group in groups for _ in group.rows])
    if not rows:
        parameters.clear()
        return
    ids, bodies = zip(*rows, strict=True)
    parameters["added_ids"] = numbers(ids)
    _put_bodies(parameters, "added", bodies)
    if max(map(len, bodies)) > BESIDE:
        parameters["added_apart"] = True
    elif is_plain:
        parameters["added_plain"] = True


def _rests(group: NewJobs) -> list[str]:
    head, middle, tail = rest_parts(group.template)
    return [f"{head}{id}{middle}{size_of(data)}{tail}" for id, data in group.rows]


def _swap(parameters: Parameters, jobs: Sequence[Job]) -> None:
    # By id, as they are locked.
    jobs = sorted(jobs, key=_by_id)
    parameters["swapped_ids"] = numbers([job.id for job in jobs])
    parameters["swapped_rest"] = records([replace(job, **COLD) for job in jobs])
    _put_columns(parameters, _SWAPPED, list(map(_fields, jobs)))
    parameters.setdefault("swapped_version", "{1}")


def _archive(parameters: Parameters, jobs: Sequence[Job]) -> None:
    jobs = sorted(jobs, key=_by_id)
    parameters["archived_ids"] = numbers([job.id for job in jobs])
    parameters["archived_record"] = records(jobs)
    _put_columns(parameters, _ARCHIVED, list(map(_ended_fields, jobs)))


def _put_columns(parameters: Parameters, columns: Sequence[_Column], jobs: Sequence[tuple[Any, ...]]) -> None:
    for (name, write, new, alike), values in zip(columns, zip(*jobs, strict=True), strict=True):
        first = values[0]
        if values.count(first) != len(values):
            parameters[name] = write(values)
        elif first != new:
            parameters[alike or name] = first if alike else write((first,))


def records(jobs: Sequence[Job]) -> str:
    """An array of whole records as JSON, encoded in one call."""
    # The encoded records contain no line breaks.
    return "{" + quoted(_encode_lines(jobs).decode().removesuffix("\n")).replace("\n", '","') + "}"


def _put_bodies(parameters: Parameters, part: str, bodies: Sequence[Body]) -> None:
    """Add bodies as two arrays, text and bytes, each only if needed."""
    if bytes in map(type, bodies) or Unreadable in map(type, bodies):
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
        if dues:
            parameters["row_due"] = "{" + ",".join([str(dues.get(key, "NULL")) for key in keys]) + "}"
    if len(kept) < len(rows):
        _put_keys(parameters, "gone", [key for key, value in rows.items() if value is None])


def _put_keys(parameters: Parameters, part: str, row_keys: Sequence[RowKey]) -> None:
    tables, keys = zip(*row_keys, strict=True)
    parameters[f"{part}_table"] = texts(tables[:1] if tables.count(tables[0]) == len(tables) else tables)
    parameters[f"{part}_key"] = key_texts(keys)


def tables_of(rows: Collection[RowKey]) -> Names:
    """The keys of rows by their table."""
    found: dict[str, list[str]] = {}
    for table, key in rows:
        found.setdefault(table, []).append(key)
    return found


def put_counts(
    parameters: Parameters, counts: Mapping[CountKey, int], tallies: Mapping[TallyKey, int]
) -> None:
    """Add the counts."""
    columns: list[str] = []
    for (tenant, task, place, state), number in counts.items():
        if number:
            columns += (tenant, task, f"{place:d}", state, f"{number}")
    for key, number in tallies.items():
        columns += (key.tenant, key.task, "0", key.kind, f"{number}")
    if columns:
        parameters["counts"] = texts(columns)


# How a call is written

_SIGNATURE = re.compile(r"FUNCTION \S+\.commit_changes(?:_\d+)?\((.*?)\) RETURNS", re.DOTALL)
_PARAMETER = re.compile(r"(\w+) (\w+(?:\[\])?) DEFAULT")


def parameter_types(texts: Sequence[str]) -> dict[str, str]:
    """The types of the parameters of `commit_changes`, from the last migration that defines it."""
    signatures = [found[1] for text in texts for found in _SIGNATURE.finditer(text)]
    return dict(_PARAMETER.findall(signatures[-1]))


_TYPES = parameter_types(migrations("x"))


@lru_cache(maxsize=512)
def call_of(schema: str, names: tuple[str, ...], version: int = LAYOUT) -> str:
    """The call with these parameters as `%(name)s`, on a store of a version of the layout."""
    given = ", ".join(f"{name} => %({name})s::{_TYPES[name]}" for name in names)
    return f'SELECT "{schema}".commit_changes{suffix(version)}({given})'


@lru_cache(maxsize=512)
def numbered_call_of(schema: str, names: tuple[str, ...], version: int = LAYOUT) -> str:
    """The call with these parameters as `$1`, `$2`, …"""
    return numbered(call_of(schema, names, version))[0]


def as_bytes(parameters: Parameters) -> list[bytes]:
    """The values as libpq needs them."""
    joined = "\0".join(map(str, parameters.values()))
    if joined.count("\0") >= len(parameters):
        raise psycopg.DataError("PostgreSQL has no text with NUL in it")
    return joined.encode().split(b"\0")
