"""The document's calls: write, wsync, read_reserve, read, rsync, read_cancel."""

import os
import shutil
import subprocess
import sys
import threading
import time
from errno import EIO, ENOSPC

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core.errors import BadInput, Closed, StoreError, StoreFull
from holdfast.core.job import Backoff
from holdfast.journal.journal import Journal
from holdfast.journal.segment import decode_runs, encode_runs, runs_of

from .opened import SOON_MS, add, data, opened, take


@pytest.mark.parametrize("text", ["foo\nbar", b"foo\nbar"])
def test_text_is_refused_where_lines_are_needed(tmp_path, text):
    """It would be a job for each character."""
    with opened(tmp_path / "j") as journal:
        with pytest.raises(BadInput, match="a list of lines"):
            journal.write("t", text)

        assert len(journal.write("t", text.splitlines())) == 2


def test_lines_are_read_in_the_order_in_which_they_were_written(tmp_path):
    """Each with its id; JSON as text, whatever else as bytes. Empty lines and comments are no jobs."""
    with opened(tmp_path / "j") as journal:
        ids = journal.write("resize", ['{"a": 1}\n', "\n", "# not a job\n", "two|three"], tenant="acme")
        ids += journal.write("resize", [b"\0\xff"], tenant="acme")
        journal.wsync()

        lines = take(journal)

    assert [(line.id, line.data) for line in lines] == list(
        zip(ids, ['{"a": 1}', b"two|three", b"\0\xff"], strict=True)
    )
    assert ids == sorted(set(ids))
    assert {(line.job.tenant, line.job.task) for line in lines} == {("acme", "resize")}


def test_only_what_was_synced_is_read(tmp_path):
    """`wsync` is for what was written before it."""
    with opened(tmp_path / "j") as journal:
        journal.write("work", ["1"])
        assert take(journal) == []
        journal.wsync()
        journal.write("work", ["2"])
        assert data(take(journal)) == ["1"]
        add(journal, "3")

        # A later sync takes along what was written earlier.
        assert data(take(journal)) == ["2", "3"]


def test_the_segment_is_as_documented(tmp_path):
    """Plain lines, batches with their byte count, and everything else as a whole Add."""
    with opened(tmp_path / "j") as journal:
        (one,) = add(journal, '{"a":1}', tenant="acme")
        two = add(journal, "1", "2", tenant="acme")
        add(journal, b"\n", priority=900)
        (path,) = (tmp_path / "j").glob("*.journal")
        text = path.read_bytes()

    assert b'\n%d|acme-work|{"a":1}\n' % one in text
    batch = b",bytes=4,jobtype=acme-work,ids=%d;%d\n1\n2\n#:EndBatch\n" % tuple(two)
    assert b"\n#:Batch date=2" in text
    assert batch in text
    assert text.count(b"#:Group bytes=") == 3
    assert text.endswith(b"#:EndAdd\n")


_BODIES = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.binary(), st.just('{"a":1}'))
_NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5)
_JOBS = st.builds(
    c.NewJob,
    task=_NAMES | st.just("work"),
    tenant=st.just("") | _NAMES,
    data=_BODIES,
    priority=st.none() | st.integers(0, 1000),
    backoff=st.just(Backoff()) | st.just(Backoff(first_ms=7)),
    domain=st.none() | st.binary(min_size=1, max_size=3),
    then=st.none() | st.just(c.NewJob(task="next", data='{"b":2}')),
)


@given(jobs=st.lists(_JOBS, min_size=1, max_size=5), more=st.lists(_BODIES, max_size=4))
def test_whatever_is_added_is_read_as_it_was(jobs, more):
    """Names, data and options of any kind."""
    ids = tuple(range(1, len(jobs) + len(more) + 1))
    command = c.Add(jobs=tuple(jobs), more=tuple(more), ids=ids)

    raw = encode_runs(runs_of(command), now_ms=0)

    got = [
        replace(run.job, id=id, data=body)
        for run in decode_runs(raw)
        for id, body in zip(run.ids, run.bodies, strict=True)
    ]
    assert got == list(command.every())


@pytest.mark.parametrize(
    ("tenant", "task"), [("a-b", "work"), ("a", "wo,rk"), ("a", "wo|rk"), ("a,", "work"), ("a", "wo\nrk")]
)
def test_names_that_would_not_split_in_one_way_are_refused(tmp_path, tenant, task):
    """By `write`; whole Adds have names of any kind."""
    with opened(tmp_path / "j") as journal:
        with pytest.raises(BadInput, match=r"tenant|task"):
            journal.write(task, ["1"], tenant=tenant)
        if "\n" not in task:
            journal.add(c.Add(jobs=(c.NewJob(task=task, tenant=tenant),)))
            assert [(line.job.tenant, line.job.task) for line in take(journal)] == [(tenant, task)]


def test_reservations_are_disjoint_and_in_order(tmp_path):
    """Fewer lines than asked for, and none, are no error."""
    with opened(tmp_path / "j") as journal:
        add(journal, *map(str, range(5)))

        tokens = [journal.read_reserve(2, SOON_MS) for _ in range(4)]

        assert [data(journal.read(token)) for token in tokens] == [["0", "1"], ["2", "3"], ["4"], []]


def test_a_reservation_is_read_once(tmp_path):
    """Not twice, not after its end, and not without a timeout."""
    with opened(tmp_path / "j") as journal:
        add(journal, "1")
        token = journal.read_reserve(1, SOON_MS)
        journal.read(token)
        with pytest.raises(StoreError, match="already read"):
            journal.read(token)
        journal.rsync(token)
        journal.rsync(token)
        with pytest.raises(StoreError, match="token expired"):
            journal.read(token)
        journal.read_cancel(token)
        with pytest.raises(BadInput, match="missing timeout"):
            journal.read_reserve(1, 0)
        assert take(journal) == []


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("ends", ["cancel", "timeout"])
def test_lines_that_are_not_synced_come_back_in_front(tmp_path, monkeypatch, is_read, ends):
    """Also those that were read: the store may not have them. In their order, before all others."""
    now_s = [0.0]
    monkeypatch.setattr("holdfast.journal.reader.monotonic_s", lambda: now_s[0])
    with opened(tmp_path / "j") as journal:
        add(journal, *map(str, range(6)))
        first, second = journal.read_reserve(2, 1_000), journal.read_reserve(2, 5_000)
        if is_read:
            journal.read(first)
        if ends == "cancel":
            journal.read_cancel(first)
        else:
            now_s[0] = 2.0
        with pytest.raises(StoreError, match="token expired"):
            journal.read(first)

        assert data(journal.read(journal.read_reserve(1, SOON_MS))) == ["0"]
        journal.read_cancel(second)
        assert data(take(journal)) == ["1", "2", "3", "4", "5"]


def test_what_was_synced_is_not_read_again(tmp_path):
    """After the journal was closed and opened, from the middle of a group on; the rest comes back."""
    path = tmp_path / "j"
    with opened(path) as journal:
        add(journal, *map(str, range(5)))
        assert data(take(journal, 2)) == ["0", "1"]
        journal.read(journal.read_reserve(2, SOON_MS))

    with opened(path) as journal:
        assert data(take(journal, 1)) == ["2"]
        add(journal, "5")

    with opened(path) as journal:
        assert data(take(journal)) == ["3", "4", "5"]

    with opened(path) as journal:
        assert take(journal) == []


def test_a_position_waits_for_the_lines_before_it(tmp_path):
    """A later reservation that is synced first does not pass an earlier one."""
    path = tmp_path / "j"
    with opened(path) as journal:
        add(journal, "1", "2")
        journal.read_reserve(1, SOON_MS)
        journal.rsync(journal.read_reserve(1, SOON_MS))

    with opened(path) as journal:
        assert data(take(journal)) == ["1", "2"]


def test_a_backlog_is_read_up_to_the_position_of_the_journal(tmp_path):
    """What is written later is read once, by the journal itself: it would be added twice."""
    with opened(tmp_path / "j") as journal:
        add(journal, "1", "2", "3")
        token = journal.read_reserve(2, SOON_MS)
        first, _ = journal.read(token)
        backlog = journal.add_backlog(0, 1, first.place)
        journal.rsync(token)
        add(journal, "4")

        def catch_up():
            token = backlog.reader.reserve(9, SOON_MS)
            lines = backlog.reader.read(token)
            backlog.reader.sync(token)
            return data(lines)

        # Not within a group, which the journal has read in part.
        assert (catch_up(), journal.end_backlog(backlog)) == ([], False)
        token = journal.read_reserve(1, SOON_MS)
        assert data(journal.read(token)) == ["3"]
        journal.rsync(token)
        assert (catch_up(), journal.end_backlog(backlog)) == (["1", "2", "3"], True)
        assert data(take(journal)) == ["4"]


def test_segments_are_ended_and_deleted_while_the_journal_is_used(tmp_path, monkeypatch):
    """What is read is deleted, and nothing else."""
    monkeypatch.setattr("holdfast.journal.journal.SEGMENT_BYTES", 2_000)
    path = tmp_path / "j"
    with opened(path) as journal:
        for number in range(50):
            add(journal, f'"{number:0200d}"')
        assert len(list(path.glob("*.journal"))) > 4
        first = data(take(journal, 25))
        half = len(list(path.glob("*.journal")))
        rest = data(take(journal))

        assert [int(text[1:-1]) for text in first + rest] == list(range(50))
        assert len(list(path.glob("*.journal"))) == 1 < half


def test_a_damaged_position_is_the_first_line(tmp_path):
    """Nothing is lost: adding twice makes one job."""
    path = tmp_path / "j"
    with opened(path) as journal:
        add(journal, "1", "2")
        take(journal, 1)
    (path / "position").write_bytes(b"[1,99,0] 00000000")

    with opened(path) as journal:
        assert data(take(journal)) == ["1", "2"]


def test_one_process_uses_a_journal_at_a_time(tmp_path):
    """The next one hears whose it is."""
    with opened(tmp_path / "j"), pytest.raises(StoreError, match=f"used by process {os.getpid()}"):
        Journal(tmp_path / "j")
    with opened(tmp_path / "j"):
        pass


FORKS = """
import os, sys, time
from pathlib import Path
from holdfast.journal.journal import Journal

first = Journal(sys.argv[1])
parent = os.getpid()
if not os.fork():
    while os.getppid() == parent:
        time.sleep(0.01)
    Journal(sys.argv[1])
    Path(sys.argv[1], "forked").touch()
"""


def test_a_forked_process_does_not_keep_the_journal(tmp_path):
    """Its parent's lock ends with the parent."""
    done = subprocess.run([sys.executable, "-c", FORKS, str(tmp_path / "j")], timeout=60, check=False)
    until = time.monotonic() + 60
    while not (tmp_path / "j" / "forked").exists() and time.monotonic() < until:
        time.sleep(0.01)

    assert done.returncode == 0
    assert (tmp_path / "j" / "forked").exists()


def test_callers_that_wait_share_a_sync(tmp_path, monkeypatch):
    """While one sync runs, all that arrive are written with the next."""
    syncs, first = [0], threading.Event()
    real = os.fdatasync

    def slow(fd: int) -> None:
        syncs[0] += 1
        if syncs[0] == 1:
            first.wait(60)
        real(fd)

    with opened(tmp_path / "j") as journal:
        monkeypatch.setattr(os, "fdatasync", slow)
        adding = [threading.Thread(target=add, args=(journal, str(n))) for n in range(40)]
        for thread in adding:
            thread.start()
        waiting = journal._writer._group.waiting
        while len(waiting) < 39:
            first.wait(0.01)
        first.set()
        for thread in adding:
            thread.join()
        monkeypatch.setattr(os, "fdatasync", real)

        assert len(take(journal)) == 40
    assert syncs[0] <= 4


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path, monkeypatch):
    """Nothing of what was refused is read, and all else is."""
    real = os.pwrite

    def full(fd: int, raw: bytes, offset: int) -> int:
        if len(raw) > 10:
            return real(fd, raw[:10], offset)
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    with opened(tmp_path / "j") as journal:
        add(journal, "1")
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(StoreFull, match="No space left"):
            add(journal, "2")
        journal.write("work", ["3"])
        with pytest.raises(StoreFull):
            journal.wsync()
        monkeypatch.setattr(os, "pwrite", real)
        add(journal, "4")

        assert data(take(journal)) == ["1", "4"]


def test_after_a_failed_sync_nothing_is_accepted(tmp_path, monkeypatch):
    """What the kernel has dropped it tells only once. Another process may go on with what is there."""

    def broken(_fd: int) -> None:
        raise OSError(EIO, os.strerror(EIO))

    path = tmp_path / "j"
    real = os.fdatasync
    with opened(path) as journal:
        add(journal, "1")
        monkeypatch.setattr(os, "fdatasync", broken)
        with pytest.raises(StoreError, match="Input/output error"):
            add(journal, "2")
        monkeypatch.setattr(os, "fdatasync", real)
        with pytest.raises(StoreError, match="Input/output error"):
            add(journal, "3")

    with opened(path) as journal:
        assert data(take(journal))[0] == "1"
    with pytest.raises(Closed):
        add(journal, "4")


def test_a_group_that_could_not_be_written_leaves_nothing(tmp_path, monkeypatch):
    """Neither bytes that would be taken for damage behind a shorter group, nor a disk that stays full."""
    path = tmp_path / "j"
    with opened(path) as journal:
        add(journal, "1")
        (segment,) = path.glob("*.journal")
        size = segment.stat().st_size
        monkeypatch.setattr("holdfast.journal.journal.write_at", _write_part)
        with pytest.raises(StoreFull):
            add(journal, b"x" * 10_000)
        assert segment.stat().st_size == size
        monkeypatch.undo()

        monkeypatch.setattr("holdfast.journal.journal.SEGMENT_BYTES", size)
        add(journal, "2")
        add(journal, "3")

        assert data(take(journal)) == ["1", "2", "3"]
        assert journal.folder.damaged() == []


def _write_part(fd: int, raw: bytes, offset: int) -> None:
    os.pwrite(fd, raw[: len(raw) // 2], offset)
    raise OSError(ENOSPC, "No space left on device")


def test_nothing_is_accepted_when_the_folder_was_deleted(tmp_path):
    """A file that is deleted takes whatever is written to it, and none of it survives."""
    path = tmp_path / "j"
    with opened(path) as journal:
        add(journal, "1")
        shutil.rmtree(path)

        for _ in range(2):
            with pytest.raises(StoreError, match="its folder or its last segment was deleted"):
                add(journal, "2")
