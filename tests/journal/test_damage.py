"""Torn and corrupted segments: what is whole is kept and read, the rest is reported."""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.errors import StoreCorrupt, StoreError
from holdfast.journal.folder import JournalFolder, RefusedLine
from holdfast.journal.segment import BLOCK_BYTES, Segment, frame
from holdfast.journal.status import read_status

from .opened import add, data, opened, take

GROUPS = 12


@pytest.fixture
def segment(tmp_path):
    """A segment of a few groups, of one line, several, and bytes."""
    with opened(tmp_path / "j") as journal:
        for number in range(GROUPS):
            if number % 3 == 0:
                add(journal, str(number))
            elif number % 3 == 1:
                add(journal, str(number), str(number))
            else:
                add(journal, b"%d\n" % number, priority=7)
    (path,) = (tmp_path / "j").glob("*.journal")
    return path


def starts(path: Path) -> list[int]:
    """The offsets of all groups, and of the end."""
    segment = Segment(path)
    found = [segment.first]
    while found[-1] < segment.size:
        found.append(segment.read_group(found[-1], segment.size)[1])
    segment.close()
    return found


def groups_in(lines) -> list[int]:
    """Which groups lines are of."""
    found = [int(one) for one in data(lines)]
    return sorted(set(found))


def test_a_torn_tail_is_cut_off(segment):
    """At whatever byte: all groups before are kept, and new ones are written and read."""
    whole, offsets = segment.read_bytes(), starts(segment)
    folder = segment.parent
    for size in random.Random(7).sample(range(offsets[0], len(whole)), 60):
        for one in folder.glob("*.journal"):
            one.unlink()
        (folder / "position").unlink(missing_ok=True)
        segment.write_bytes(whole[:size])
        kept = sum(offset <= size for offset in offsets) - 1

        with opened(folder) as journal:
            assert segment.stat().st_size == offsets[kept]
            add(journal, "99")
            assert groups_in(take(journal)) == [*range(kept), 99]

    assert not (folder / "damaged").exists()


def test_zeros_behind_the_last_group_are_cut_off(segment):
    """As a file system leaves them after a crash of the machine."""
    end = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(b"\0" * 5_000)

    with opened(segment.parent) as journal:
        assert segment.stat().st_size == end
        assert groups_in(take(journal)) == list(range(GROUPS))
    assert not (segment.parent / "damaged").exists()


def test_a_corrupted_byte_costs_its_group_alone(segment, caplog):
    """At whatever byte; what is lost is kept aside and logged."""
    whole, offsets = segment.read_bytes(), starts(segment)
    folder = segment.parent
    rng = random.Random(8)
    for at in rng.sample(range(offsets[0], len(whole)), 60):
        for one in (*folder.glob("*.journal"), *folder.glob("damaged/*")):
            one.unlink()
        (folder / "position").unlink(missing_ok=True)
        changed = bytearray(whole)
        changed[at] ^= rng.randrange(1, 256)
        segment.write_bytes(changed)
        hit = sum(offset <= at for offset in offsets) - 1
        caplog.clear()

        with opened(folder) as journal:
            assert groups_in(take(journal)) == [one for one in range(GROUPS) if one != hit]
            damaged = journal.folder.damaged()

        # The last one may look as if its process died while it was written: by its length.
        assert damaged or hit == GROUPS - 1
        assert all(bytes(changed[offsets[hit] : offsets[hit + 1]]) == one.read_bytes() for one in damaged)
        assert any("journal" in record.message for record in caplog.records)


def test_many_damaged_places_are_all_passed(segment):
    """Also neighbours, and the first."""
    raw, offsets = bytearray(segment.read_bytes()), starts(segment)
    for hit in (0, 1, 5, 9):
        raw[offsets[hit] + 20] ^= 255
    segment.write_bytes(raw)

    with opened(segment.parent) as journal:
        assert groups_in(take(journal)) == [2, 3, 4, 6, 7, 8, 10, 11]
        assert len(journal.folder.damaged()) == 3


def test_data_that_looks_like_a_group_is_none(tmp_path):
    """Its author knows neither the salt of the segment nor the offset."""
    path = tmp_path / "j"
    with opened(path) as journal:
        forged = frame(b"7|-forged|1\n", b"0" * 16, 300)
        add(journal, b"x" * 500 + forged + b"y" * 500)
        add(journal, "1")
    (segment,) = path.glob("*.journal")
    raw = bytearray(segment.read_bytes())
    raw[60] ^= 255
    segment.write_bytes(raw)

    with opened(path) as journal:
        assert [(line.job.task, line.data) for line in take(journal)] == [("work", "1")]


def test_a_segment_that_is_gone_is_passed(tmp_path, monkeypatch):
    """Those around it are read."""
    monkeypatch.setattr("holdfast.journal.journal.SEGMENT_BYTES", 100)
    path = tmp_path / "j"
    with opened(path) as journal:
        for number in range(6):
            add(journal, str(number))
    (path / "00000003.journal").unlink()

    with opened(path) as journal:
        got = data(take(journal))

    assert got == sorted(got)
    assert 3 <= len(got) < 6


def test_lines_come_back_when_the_next_segment_cannot_be_opened(tmp_path, monkeypatch):
    """Such as by too many open files: they were taken, but not passed on."""
    monkeypatch.setattr("holdfast.journal.journal.SEGMENT_BYTES", 100)
    path = tmp_path / "j"
    with opened(path) as journal:
        for number in range(6):
            add(journal, str(number))

    with opened(path) as journal, pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.journal.reader.Segment", _fail_once(3))
        with pytest.raises(OSError, match="Too many"):
            take(journal)
        got = data(take(journal))

    assert got == list("012345")


def _fail_once(number: int) -> Callable[[Path], Segment]:
    failing = [number]

    def open_segment(path: Path) -> Segment:
        if [int(path.stem)] == failing:
            failing.clear()
            raise OSError(24, "Too many open files")
        return Segment(path)

    return open_segment


def test_damage_that_cannot_be_kept_is_not_passed_over(segment):
    """As the disk is full: neither the lines before it nor the damaged bytes are lost."""
    raw, offsets = bytearray(segment.read_bytes()), starts(segment)
    raw[offsets[5] + 20] ^= 255
    segment.write_bytes(raw)
    blocker = segment.parent / "damaged"
    blocker.write_text("a file, where the folder would be")

    with opened(segment.parent) as journal:
        with pytest.raises(StoreError, match="cannot be used"):
            take(journal)
        blocker.unlink()

        assert groups_in(take(journal)) == [one for one in range(GROUPS) if one != 5]
        assert len(journal.folder.damaged()) == 1


@pytest.mark.parametrize("number", [1, 3, 6])
def test_a_segment_without_its_header_costs_its_own_jobs_alone(tmp_path, monkeypatch, number, caplog):
    """Also the last: without its salt no group can be checked, and its bytes are set aside."""
    monkeypatch.setattr("holdfast.journal.journal.SEGMENT_BYTES", 100)
    path = tmp_path / "j"
    with opened(path) as journal:
        for n in range(6):
            add(journal, str(n))
    damaged = path / f"{number:08d}.journal"
    raw = b"\0" * 20 + damaged.read_bytes()[20:]
    damaged.write_bytes(raw)

    assert read_status(str(path)).waiting == 5
    with opened(path) as journal:
        assert groups_in(take(journal)) == [one for one in range(6) if one != number - 1]
        assert [one.read_bytes() for one in journal.folder.damaged()] == [raw]
    assert "its header is damaged" in caplog.text


def test_a_segment_of_another_version_is_not_damaged(segment):
    """It waits for the program that can read it."""
    raw = segment.read_bytes()
    segment.write_bytes(raw.replace(b"version=1", b"version=9", 1))

    with pytest.raises(StoreCorrupt, match="another version"), opened(segment.parent):
        pass

    assert not (segment.parent / "damaged").exists()


def test_a_block_that_the_disk_cannot_read_costs_its_groups_alone(tmp_path, monkeypatch):
    """Those that are in it at least in part."""
    path = tmp_path / "j"
    with opened(path) as journal:
        for number in range(100):
            add(journal, b"%d" % number + b" " * 300)
    (segment,) = path.glob("*.journal")
    offsets = starts(segment)
    bad = range(2 * BLOCK_BYTES, 3 * BLOCK_BYTES)
    real = os.pread

    def pread(fd: int, size: int, offset: int) -> bytes:
        # The lock and the positions are smaller.
        if offset < bad.stop and offset + size > bad.start and os.fstat(fd).st_size > bad.stop:
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, size, offset)

    monkeypatch.setattr("os.pread", pread)
    monkeypatch.setattr("holdfast.journal.segment.EIO_NAPS_S", (0.001,))
    with opened(path) as journal:
        got = groups_in(take(journal))

    lost = [n for n in range(100) if offsets[n] < bad.stop and offsets[n + 1] > bad.start]
    assert got == [n for n in range(100) if n not in lost]


def test_segments_that_were_deleted_do_not_hide_new_ones(tmp_path):
    """A new segment has no number that the read position has."""
    with opened(tmp_path / "j") as journal:
        add(journal, "1" * 500)
        take(journal)
    for one in (tmp_path / "j").glob("*.journal"):
        one.unlink()

    with opened(tmp_path / "j") as journal:
        add(journal, "2")
        assert data(take(journal)) == ["2"]


def test_a_refused_line_that_was_cut_off_does_not_cost_the_next(tmp_path):
    """As a crash or a full disk leaves it."""
    folder = JournalFolder(tmp_path)
    line = RefusedLine(at_ms=1, id="1", tenant="", task="work", code="BAD", error="no", job=b"")
    folder.keep_refused([line])
    path = tmp_path / "refused"
    path.write_bytes(path.read_bytes() * 2)
    os.truncate(path, path.stat().st_size - 9)

    folder.keep_refused([line, line])

    assert list(folder.refused()) == [line] * 3
