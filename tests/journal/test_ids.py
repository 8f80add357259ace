"""No id is made twice: after crashes, with clocks set back, in copied folders, while the store is away."""

import shutil

import pytest
from msgspec.structs import replace

from holdfast.core import ids
from holdfast.core.bounds import DAY_MS, HOUR_MS, JOURNAL_LEASE_MS
from holdfast.core.errors import StoreFull, Unavailable
from holdfast.core.sysid import TakenSysid, TakeSysid
from holdfast.journal.folder import JournalFolder, KeptSysid
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


def test_a_copied_folder_does_not_use_the_number(folder, clock, tmp_path):
    """Two processes would make the same ids: the copy takes a number of its own."""
    JournalIds(folder, clock).adopt(leased(clock))
    shutil.copytree(tmp_path / "j", tmp_path / "copy")

    assert JournalIds(folder, clock).kept is not None
    assert JournalIds(JournalFolder(tmp_path / "copy"), clock).kept is None


def test_a_number_that_could_not_be_kept_is_the_same_at_the_next_try(folder, clock, monkeypatch):
    """Each would be taken from all other journals for days."""
    source, tokens = JournalIds(folder, clock), []

    def ask(command: TakeSysid) -> TakenSysid:
        tokens.append(command.token)
        return replace(leased(clock), token=command.token)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_sysid", _fail_full)
        for _ in range(3):
            with pytest.raises(StoreFull):
                source.renew(ask)
    source.renew(ask)

    assert len(tokens) == 4
    assert len(set(tokens)) == 1
    assert source.kept is not None
    assert source.kept.token == tokens[0]


def _fail_full(_kept: KeptSysid) -> None:
    raise StoreFull("no room")


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
