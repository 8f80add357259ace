"""A batch that only adds: nothing of it is read, and what is to be written of it is known at once.

It has the few verbs that this takes. Who asks for any other gets `Seeing`, and the batch is done again as a
`RedisTxn`, which has them all.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...core.errors import Conflict
from ...core.job import Body, Job, Place, size_of
from ..contract import CountKey
from . import keys as k
from .keys import INLINE_BYTES, Keys, member
from .lists import NOTICE
from .plan import EQUALS, Plan

# So many forms are kept: of one kind of job one for each number of them.
FORMS = 1_024
# Stands for what a job brings along; no word of a plan is it.
_HOLE = b"\0hole"
Births = list[tuple[bytes, bytes, bytes]]


class Seeing(Conflict):
    """A batch that was to read nothing has asked for more than it can have."""


class BlindTxn:
    """A batch of plain adds; see `Txn` for what each verb promises."""

    # Whether those who wait should be told once it is committed, and of nothing but ends. What it goes by is
    # never looked at.
    tells, ends, believes = False, False, True

    def __init__(self, keys: Keys, now_ms: int, believed: bytes | None) -> None:
        self.now_ms, self.door = now_ms, believed
        self._keys = keys
        self._groups: list[tuple[Job, Sequence[tuple[int, Body]]]] = []
        self._counts: list[Mapping[CountKey, int]] = []

    def __getattr__(self, verb: str) -> Any:
        raise Seeing(f"a batch that only adds has no {verb}")

    def notice(self) -> bytes | None:
        """What stood on the door when it was last looked at: the commit tells if it is not so."""
        return self.door

    def tell(self, *, ends: bool) -> None:
        """Let those who wait be told."""
        self.tells, self.ends = True, ends

    def insert_alike(self, template: Job, rows: Sequence[tuple[int, Body]]) -> set[int]:
        """Add jobs that are as `template`; the commit looks whether they exist."""
        if template.domain is not None or template.parent_id:
            raise Seeing("a job with a domain or a parent is not plain")
        if any(len(data) > INLINE_BYTES for _, data in rows):
            raise Seeing("a large body is written before its record")
        self._groups.append((template, rows))
        return set()

    def count(self, changes: Mapping[CountKey, int]) -> None:
        """Add these differences."""
        self._counts.append(changes)

    def commit(self, lane: bytes, stamp: bytes, forms: "Forms") -> tuple[list[bytes], list[Any]]:
        """The keys of its commit, and what that checks and writes."""
        groups, counts = self._groups, self._counts
        if not groups:
            raise Seeing("nothing was added")
        if len(groups) == len(counts) == len(counts[0]) == 1:
            ((template, rows),), (counted,) = groups, counts[0]
            form = forms.of(template, len(rows), counted, self.door)
            return [lane, *form.keys], form.words(template, _births(stamp, template, rows))
        plan = Plan(self._keys, lane)
        _check_door(plan, self._keys, self.door)
        for template, rows in groups:
            plan.bear(self._keys.spots(template), _births(stamp, template, rows))
            _stand(plan, template, len(rows))
        for changes in counts:
            plan.count(changes)
        words = plan.words_of_it()
        return plan.keys, words


class Form:
    """The plan of a batch of jobs that are alike, with a hole where they are to be written."""

    def __init__(self, keys: Keys, template: Job, count: int, counted: CountKey, door: bytes | None) -> None:
        self._names = keys
        plan = Plan(keys, b"")
        _check_door(plan, keys, door)
        orders = keys.spots(template)
        plan.bear(orders, [(_HOLE, _HOLE, _HOLE)] * count)
        _stand(plan, template, count)
        plan.count({counted: count})
        words = plan.words_of_it()
        # All but that of the lane, which is another each time.
        self.keys = plan.keys[1:]
        hole = words.index(_HOLE)
        ranks = hole - 2 * len(orders)
        self._head, self._places, self._tail = words[:ranks], words[ranks:hole:2], words[hole + 3 * count :]

    def words(self, template: Job, births: Births) -> list[Any]:
        """The plan with these jobs, which stand as `template` does."""
        words = self._head.copy()
        for place, score in zip(self._places, self._names.spots(template).values(), strict=True):
            words += (place, score)
        for column in zip(*births, strict=True):
            words += column
        return words + self._tail


class Forms:
    """Those that were in use lately."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._forms: dict[tuple[Any, ...], Form] = {}

    def of(self, template: Job, count: int, counted: CountKey, door: bytes | None) -> Form:
        """The form for so many jobs that stand where `template` does, and are counted so."""
        # What of a job decides in which orders it stands, and not where in them: of those that can be
        # added blindly, which have neither domain nor parent.
        kind = (counted, template.place, template.mock, template.expires_at > 0, count, door)
        form = self._forms.get(kind)
        if form is None:
            if len(self._forms) >= FORMS:
                self._forms = {}
            form = self._forms[kind] = Form(self._keys, template, count, counted, door)
        return form


def _stand(plan: Plan, template: Job, count: int) -> None:
    if template.place is Place.READY:
        plan.stand(template.tenant, template.task, count)


def _check_door(plan: Plan, keys: Keys, door: bytes | None) -> None:
    kind, name = NOTICE
    plan.check(EQUALS, keys.records(kind), name.encode(), door)


def _births(stamp: bytes, template: Job, rows: Sequence[tuple[int, Body]]) -> Births:
    """Of each job the id, the record and the body as they are kept."""
    return [(member(id), _record(stamp, template, id, data), k.write_body(data)) for id, data in rows]


def _record(stamp: bytes, template: Job, job_id: int, data: Body) -> bytes:
    if job_id != template.id:
        template = replace(template, id=job_id, size=size_of(data))
    return k.write_job(stamp, template)
