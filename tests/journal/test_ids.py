"""No id is made twice: after crashes, with clocks set back, in copied folders, while the store is away."""

import pytest
from msgspec.structs import replace

from holdfast.core import ids
from holdfast.core.bounds import DAY_MS, HOUR_MS, JOURNAL_LEASE_MS, MINUTE_MS
from holdfast.core.commands import TakenSysid, TakeSysid
from holdfast.core.errors import Unavailable
from holdfast.journal.folder import JournalFolder
from holdfast.journal.ids import AHEAD_MS, JournalIds
from holdfast.testing.clock import MovedClock

from .opened import leased

NOON_MS = 1_800_000_000_000


@pytest.fixture
def clock():
    """A clock that the test moves."""
    return MovedClock(NOON_MS)


@pytest.fixture
def folder(tmp_path):
    """The folder of a journal."""
    folder = JournalFolder(tmp_path / "j")
    folder.lock()
    yield folder
    folder.close()


def test_ids_go_on_where_a_crashed_process_may_have_been(folder, clock):
    """Also with a clock that was set back meanwhile, and however many it had made."""
    made: list[int] = []
    for step in range(20):
        source = JournalIds(folder, clock)
        if source.kept is None:
            source.adopt(leased(clock))
        made += source.make(1) + source.make(5_000)
        clock.advance([0, -HOUR_MS, 7, AHEAD_MS][step % 4])

    assert made == sorted(set(made))


def test_a_clean_end_leaves_no_gap(folder, clock):
    """After a crash ids run ahead of the clock, after `close` they do not."""
    source = JournalIds(folder, clock)
    source.adopt(leased(clock))
    source.make(1)
    source.close()

    (job_id,) = JournalIds(folder, clock).make(1)

    assert ids.unpack(job_id).time_ms - NOON_MS <= 1


def test_ids_end_when_the_store_was_away_for_seven_days(folder, clock):
    """Until then they are made; a renewal moves the end."""
    source = JournalIds(folder, clock)
    with pytest.raises(Unavailable, match="no number"):
        source.make(1)
    source.adopt(leased(clock))
    clock.advance(JOURNAL_LEASE_MS - 10)
    assert source.is_usable
    source.make(1)
    with pytest.raises(Unavailable, match="7 days"):
        source.make(1_000)
    clock.advance(10)
    assert not source.is_usable
    with pytest.raises(Unavailable, match="7 days"):
        source.make(1)

    source.renew(lambda command: leased(clock, command.number))

    assert source.is_usable
    source.make(1)


def test_the_number_is_renewed_daily(folder, clock):
    """And at once if the clock was set back."""
    asked: list[int] = []

    def ask(command):
        asked.append(command.number)
        return TakenSysid(number=1_600, token=command.token, ids_until_ms=clock() + JOURNAL_LEASE_MS)

    source = JournalIds(folder, clock)
    for ms in (0, 0, DAY_MS - 1, 1, -1):
        clock.advance(ms)
        if source.is_due:
            source.renew(ask)

    assert asked == [0, 1_600, 1_600]


def test_another_number_is_taken_while_the_shard_of_ours_is_down(folder, clock):
    """Of several shards, another one leases it."""
    source = JournalIds(folder, clock)
    source.adopt(leased(clock))

    def ask(command):
        if command.number:
            raise Unavailable("shard 0 of 2 cannot be used")
        return TakenSysid(number=1_601, token=command.token, ids_until_ms=clock() + JOURNAL_LEASE_MS)

    clock.advance(JOURNAL_LEASE_MS)
    source.renew(ask)

    assert ids.unpack(*source.make(1)).sysid == 1_601


def test_a_number_that_was_lost_is_replaced(folder, clock):
    """The ids of the new one begin where those of its last holder end."""
    source = JournalIds(folder, clock)
    source.adopt(leased(clock))
    (before,) = source.make(1)
    source.adopt(
        TakenSysid(number=1_700, token="t", ids_from_ms=NOON_MS + HOUR_MS, ids_until_ms=NOON_MS + 2 * HOUR_MS)
    )

    (after,) = source.make(1)

    assert ids.unpack(before).sysid != ids.unpack(after).sysid == 1_700
    assert ids.unpack(after).time_ms == NOON_MS + HOUR_MS


def test_a_number_is_asked_for_with_a_token_that_is_kept(folder, clock):
    """If the process dies before the reply, the next one gets the same number: no other journal could."""
    asked: list[TakeSysid] = []

    def ask(command: TakeSysid) -> TakenSysid:
        asked.append(command)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return replace(leased(clock), token=command.token)

    with pytest.raises(KeyboardInterrupt):
        JournalIds(folder, clock).renew(ask)
    source = JournalIds(folder, clock)
    source.renew(ask)

    assert asked[0] == asked[1]
    assert (asked[2].previous, asked[2].number) == (asked[1].token, leased(clock).number)
    assert source.kept is not None
    assert source.kept.token == asked[2].token


def test_after_many_crashes_ids_are_ahead_of_the_clock_by_a_minute_at_most(folder, clock):
    """However soon they follow each other, and while the store is away."""
    made: list[int] = []
    for crash in range(100):
        source = JournalIds(folder, clock)
        if not crash:
            source.adopt(leased(clock))
        made += source.make(1)

    assert made == sorted(set(made))
    assert ids.unpack(made[-1]).time_ms <= NOON_MS + MINUTE_MS


def test_a_number_is_confirmed_at_the_start_and_after_an_outage(folder, clock):
    """The store may be another one by then, or a backup, which has leased the number to another journal."""
    source = JournalIds(folder, clock)
    source.adopt(leased(clock))
    assert not source.is_due

    source.doubt()

    assert source.is_due
    source.adopt(leased(clock))
    assert JournalIds(folder, clock).is_due


def test_a_number_that_arrives_after_the_end_is_not_kept(folder, clock):
    """Another process may have the folder by then, and may have made more ids."""
    source = JournalIds(folder, clock)
    source.adopt(leased(clock))
    source.make(1)

    def ask(_command: TakeSysid) -> TakenSysid:
        source.close()
        next_one = JournalIds(folder, clock)
        next_one.make(5_000)
        return leased(clock)

    source.doubt()
    source.renew(ask)

    kept = folder.read_sysid()
    assert kept is not None
    assert kept.used_until_ms >= NOON_MS + AHEAD_MS
