"""Numbers that are leased for days, by which journals make ids."""

import pytest

from holdfast.core import bounds, ids
from holdfast.core.checks import check_command
from holdfast.core.commands import TakenSysid, TakeSysid
from holdfast.core.errors import BadInput
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .tools import ask

WEEK_MS = bounds.JOURNAL_LEASE_MS


def _take(queue: Queue, token: str, *, number: int = 0, for_ms: int = WEEK_MS) -> TakenSysid:
    taken = ask(queue, TakeSysid(token=token, number=number, for_ms=for_ms))
    assert isinstance(taken, TakenSysid)
    return taken


def test_a_leased_number_is_nobody_elses(queue: Queue) -> None:
    """Each token has its own, apart from those of processes; asking again for it changes nothing."""
    taken = [_take(queue, token) for token in ("a", "b")]

    taken.append(_take(queue, "a", number=taken[0].number))

    assert taken[0] == taken[2]
    assert len({one.number for one in taken}) == 2
    assert all(ids.FIRST_JOURNAL_SYSID <= one.number < ids.SYSIDS for one in taken)
    assert ids.unpack(queue.add("work").id).sysid < ids.FIRST_JOURNAL_SYSID


def test_a_number_is_renewed_for_as_long_as_it_is_held(queue: Queue, clock: MovedClock) -> None:
    """After its time it may be another's, who begins where the ids of the first must end."""
    first = _take(queue, "a")
    clock.advance(bounds.DAY_MS)
    renewed = _take(queue, "a", number=first.number)
    assert (renewed.number, renewed.ids_from_ms) == (first.number, 0)
    assert renewed.ids_until_ms == first.ids_until_ms + bounds.DAY_MS

    given = _take(queue, "a", number=first.number, for_ms=0)
    again = _take(queue, "b", number=first.number)

    assert given.number == 0
    assert again.number != first.number or again.ids_from_ms >= renewed.ids_until_ms
    assert _take(queue, "a", number=again.number).number != again.number


def test_a_number_passes_to_one_of_those_that_know_its_token(queue: Queue) -> None:
    """The first: the others, as the copies of its holder's folder, get numbers of their own."""
    first = _take(queue, "a")

    taken = [
        ask(queue, TakeSysid(token=token, previous="a", number=first.number, for_ms=WEEK_MS))
        for token in ("b", "c", "b")
    ]

    assert taken[0].number == taken[2].number == first.number != taken[1].number
    assert _take(queue, "a", number=first.number).number not in {one.number for one in taken}


@pytest.mark.parametrize(
    "command",
    [
        TakeSysid(token="", for_ms=1),
        TakeSysid(token="a", for_ms=-1),
        TakeSysid(token="a", for_ms=WEEK_MS + 1),
        TakeSysid(token="a", number=ids.SYSIDS, for_ms=1),
        TakeSysid(token="a", previous="b" * 256, for_ms=1),
        TakeSysid(token="a", used_until_ms=-1, for_ms=0),
    ],
    ids=str,
)
def test_a_lease_of_a_number_has_limits(command: TakeSysid) -> None:
    """No journal holds one for ever."""
    with pytest.raises(BadInput):
        check_command(command)
