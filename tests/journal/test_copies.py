"""Folders of journals that are copied, restored and killed: no id is made twice, and no job is lost."""

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast
from holdfast.core import ids
from holdfast.core.bounds import JOURNAL_LEASE_MS, MINUTE_MS
from holdfast.core.commands import TakenSysid, TakeSysid
from holdfast.core.errors import StoreError, StoreFull, Unavailable
from holdfast.engine.commands import sysids
from holdfast.journal import folder as folders
from holdfast.journal.connection import JournalConnection
from holdfast.journal.folder import JournalFolder, JournalPlace
from holdfast.journal.ids import JournalIds
from holdfast.store.common.clock import system_clock
from holdfast.testing.clock import MovedClock

from .opened import leased
from .test_kills import KILLS, lines_of, nursery

NOON_MS = 1_800_000_000_000
STEPS = [pytest.param(1_000, id="small"), pytest.param(100_000, id="full", marks=pytest.mark.proof)]


def overwrite(source: Path, target: Path) -> None:
    """Restore a folder as rsync does: files that look the same stay, others are replaced."""
    for file in source.iterdir():
        if file.name != "lock" and file.is_file():
            shutil.copy2(file, target / file.name)


def copy_archive(source: Path, target: Path) -> None:
    """Copy with owners, times and all attributes."""
    subprocess.run(["cp", "-a", source, target], check=True)


def copy_with_tar(source: Path, target: Path) -> None:
    """Copy as an archive that is unpacked elsewhere."""
    target.mkdir()
    raw = subprocess.run(["tar", "-cpf-", "-C", source, "."], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-xpf-", "-C", target], check=True, input=raw)


def copy_links(source: Path, target: Path) -> None:
    """Copy as links to the same files, as some backups do."""
    subprocess.run(["cp", "-al", source, target], check=True)


@pytest.mark.parametrize("copy", [copy_archive, copy_with_tar, copy_links])
def test_a_copied_folder_does_not_use_the_number(tmp_path, copy):
    """Nor one that was put back in the place of the original: two processes would make the same ids."""
    clock, original = MovedClock(NOON_MS), JournalFolder(tmp_path / "j")
    original.lock()
    JournalIds(original, clock).adopt(leased(clock))
    assert JournalIds(original, clock).kept is not None
    original.close()

    copy(tmp_path / "j", tmp_path / "copy")

    assert number_in(tmp_path / "copy", clock) is None
    shutil.move(tmp_path / "j", tmp_path / "old")
    shutil.move(tmp_path / "copy", tmp_path / "j")
    assert number_in(tmp_path / "j", clock) is None


def test_a_copy_by_hard_links_keeps_its_read_position(tmp_path):
    """What one of both has read, the other may still have to ingest."""
    original = JournalFolder(tmp_path / "j")
    original.lock()
    original.write_position(JournalPlace(1, 0, 0))
    original.close()
    copy_links(tmp_path / "j", tmp_path / "copy")

    copy = JournalFolder(tmp_path / "copy")
    copy.lock()
    for line in (5, 6):
        copy.write_position(JournalPlace(2, 100, line))
    copy.close()

    assert JournalFolder(tmp_path / "j").read_position() == JournalPlace(1, 0, 0)
    assert JournalFolder(tmp_path / "copy").read_position() == JournalPlace(2, 100, 6)


def test_a_folder_that_was_restored_in_place_does_not_use_the_number(tmp_path):
    """Its files say too little of the ids that were made since the backup."""
    clock, original = MovedClock(NOON_MS), JournalFolder(tmp_path / "j")
    original.lock()
    JournalIds(original, clock).adopt(leased(clock))
    shutil.copytree(tmp_path / "j", tmp_path / "backup")
    JournalIds(original, clock).make(5_000)
    original.close()

    overwrite(tmp_path / "backup", tmp_path / "j")

    assert number_in(tmp_path / "j", clock) is None


def test_after_a_start_of_the_machine_the_store_is_asked_first(tmp_path, monkeypatch):
    """Another machine may have been made of its disk."""
    clock, original = MovedClock(NOON_MS), JournalFolder(tmp_path / "j")
    original.lock()
    JournalIds(original, clock).adopt(leased(clock))
    original.close()
    assert number_in(tmp_path / "j", clock) is not None

    (tmp_path / "boot").write_text("another\n")
    monkeypatch.setattr(folders, "BOOT_ID", tmp_path / "boot")
    assert number_in(tmp_path / "j", clock) is None
    # Where the machine does not tell, too.
    monkeypatch.setattr(folders, "BOOT_ID", tmp_path / "none")
    assert number_in(tmp_path / "j", clock) is None


def number_in(path: Path, clock: Callable[[], int]) -> object:
    """The number that a journal uses without asking the store."""
    folder = JournalFolder(path)
    folder.lock()
    try:
        return JournalIds(folder, clock).kept
    finally:
        folder.close()


class Yard:
    """Folders of journals, of which some are open, backups of them, and one store; a step changes one."""

    def __init__(self, path: Path, queue: holdfast.Queue, clock: MovedClock, seed: int) -> None:
        self.rng, self._path, self._queue, self.clock = random.Random(seed), path, queue, clock
        self._open: dict[Path, tuple[JournalFolder, JournalIds]] = {}
        self._folders, self._backups = [path / "first"], [path / "backup"]
        for one in (*self._folders, *self._backups):
            one.mkdir()
        self._is_away = False
        self.made: list[int] = []
        self.done: dict[str, int] = {}
        self.most_ahead_ms = 0

    def step(self) -> None:
        """Do something to one of the folders."""
        weights = {"make": 8, "renew": 4, "kill": 4, "end": 2, "copy": 1, "back_up": 2, "restore": 2}
        weights |= {"overwrite": 2, "swap": 1, "leave": 1, "tick": 2}
        (name,) = self.rng.choices(list(weights), list(weights.values()))
        path = self.rng.choice(self._folders)
        try:
            getattr(self, name)(path)
            self.done[name] = self.done.get(name, 0) + 1
        except Unavailable:
            pass
        except StoreError:
            # The folder was replaced under the process, or the process that was there before has its lock.
            self.kill(path)

    def _ask(self, command: TakeSysid) -> TakenSysid:
        if self._is_away:
            raise Unavailable("the store is away")
        taken = cast(TakenSysid, self._queue.connection.ask(command))
        if self.rng.random() < 0.1:
            raise Unavailable("the reply is lost")
        return taken

    def _ids(self, path: Path) -> JournalIds:
        if path not in self._open:
            folder = JournalFolder(path)
            folder.lock()
            self._open[path] = folder, JournalIds(folder, self.clock)
        return self._open[path][1]

    def make(self, path: Path) -> None:
        """Make ids, which are seldom so many that they run ahead of the clock."""
        source = self._ids(path)
        if not source.is_usable:
            source.renew(self._ask)
        made = source.make(self.rng.choice([1, 1, 10, 1_000]))
        self.most_ahead_ms = max(self.most_ahead_ms, ids.ms_of(made[0]) - self.clock())
        self.made += made

    def renew(self, path: Path) -> None:
        """Ask the store, as the ingester does."""
        self._ids(path).renew(self._ask)

    def kill(self, path: Path) -> None:
        """Let a process die: nothing is written, and its lock is free."""
        if path in self._open:
            self._open.pop(path)[0].close()

    def end(self, path: Path) -> None:
        """Let a process end, with a journal that is empty or not."""
        if path in self._open:
            folder, source = self._open.pop(path)
            source.close(self.rng.choice([None, self._ask]))
            folder.close()

    def copy(self, path: Path) -> None:
        """Copy a folder, also one in use, to a new one that is used too."""
        self._folders.append(self._path / f"copy-{len(self.made)}-{self.rng.random()}")
        shutil.copytree(path, self._folders[-1])
        if len(self._folders) > 6:
            gone = self._folders.pop(0)
            self.kill(gone)
            shutil.rmtree(gone)

    def back_up(self, path: Path) -> None:
        """Copy a folder, to be restored later."""
        self._backups.append(self._path / f"backup-{len(self.made)}-{self.rng.random()}")
        shutil.copytree(path, self._backups[-1])
        if len(self._backups) > 6:
            shutil.rmtree(self._backups.pop(0))

    def restore(self, path: Path) -> None:
        """Replace a folder by a backup of any."""
        self.kill(path)
        shutil.rmtree(path)
        shutil.copytree(self.rng.choice(self._backups), path)

    def overwrite(self, path: Path) -> None:
        """Restore the files of a backup one by one."""
        self.kill(path)
        overwrite(self.rng.choice(self._backups), path)

    def swap(self, path: Path) -> None:
        """Give two folders the name of the other, while both may be in use."""
        other, third = self.rng.choice(self._folders), self._path / "third"
        for source, target in ((path, third), (other, path), (third, other)):
            if source.exists():
                source.rename(target)

    def leave(self, _path: Path) -> None:
        """Let the store go away, or come back."""
        self._is_away = not self._is_away

    def tick(self, _path: Path) -> None:
        """Let some time pass."""
        self.clock.advance(self.rng.choice([1, 20, 1_000, 20_000]))

    def close(self) -> None:
        """Let all processes die."""
        for path in list(self._open):
            self.kill(path)


@pytest.mark.parametrize("steps", STEPS)
def test_no_id_is_made_twice_whatever_is_copied_restored_and_killed(tmp_path, steps, tell):
    """With the store there or away, replies lost, and ids ahead of the clock by a minute at most."""
    for seed in range(steps // 1_000):
        clock, path = MovedClock(NOON_MS), tmp_path / str(seed)
        path.mkdir()
        with holdfast.connect("memory://", clock=clock) as queue:
            yard = Yard(path, queue, clock, seed)
            try:
                for _ in range(1_000):
                    yard.step()
            finally:
                yard.close()
        shutil.rmtree(path)

        assert len(set(yard.made)) == len(yard.made), f"seed {seed}"
        assert yard.most_ahead_ms <= MINUTE_MS, f"seed {seed}"
        assert len(yard.made) > 5_000
    tell(f"{steps:,} steps, the last 1,000 of them {yard.done}, made {len(yard.made):,} ids, none twice")


@pytest.mark.parametrize("kills", [pytest.param(10, id="small"), *KILLS[1:]])
def test_jobs_of_copied_restored_and_killed_folders_are_in_the_store_once(tmp_path, kills, tell):
    """What was acknowledged by any process on any of the folders has its id and data in the store."""
    # A store each: of one, a folder whose process was killed has a number for days, and there are 512.
    for first in range(0, kills, 100):
        path = tmp_path / str(first)
        path.mkdir()
        done = subprocess.run(**nursery("copies", path, min(kills, 100)), timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        acked = [line for file in sorted(path.glob("acked*")) for line in lines_of(file)]
        found = ingest_all(path)

        assert [(found[id]["tag"], found[id]["n"]) for _, _, id in acked] == [(tag, n) for tag, n, _ in acked]
        made = [(one["tag"], one["n"]) for one in found.values()]
        assert len(made) == len(set(made))
        tell(f"{min(kills, 100)} kills, {done.stdout}: {len(acked):,} acknowledged, {len(found):,} found")
        shutil.rmtree(path)


def ingest_all(path: Path) -> dict[int, Any]:
    """The jobs in the store, by id, when all journals are ingested."""
    found: dict[int, Any] = {}
    for folder in sorted(path.glob("j-*")):
        with holdfast.connect(str(path / "jobs.db"), journal=folder) as queue:
            cast(JournalConnection, queue.connection).ingest()
            while jobs := queue.claim(["work"], limit=1_000, lease="1h", renew=False):
                found |= {job.id: job.data for job in jobs}
    return found


def test_a_volume_that_was_rolled_back_takes_another_number_from_the_store(tmp_path, monkeypatch):
    """It looks original; the store, which is asked before the first id, knows that it was opened since."""
    url, path = str(tmp_path / "jobs.db"), tmp_path / "j"
    for name in ("backup", "gone"):
        with holdfast.connect(url, journal=path) as queue:
            before = ids.unpack(queue.add("work").id).sysid
        shutil.copytree(path, tmp_path / name)
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "backup", path)
    monkeypatch.setattr(JournalFolder, "is_original", lambda _folder, _kept: True)

    with holdfast.connect(url, journal=path) as queue:
        after = ids.unpack(queue.add("work").id).sysid

    assert before != after


def test_a_closed_folder_gives_its_number_back(tmp_path, monkeypatch):
    """The next journal goes on where its ids ended; one that is not empty keeps its number."""
    monkeypatch.setattr(sysids, "KEPT_PART", ids.SYSIDS)
    url, made = str(tmp_path / "jobs.db"), []
    for name in ("a", "b"):
        with holdfast.connect(url, journal=tmp_path / name) as queue:
            made += [queue.add("work").id for _ in range(3)]

    assert made == sorted(set(made))
    assert len({ids.unpack(one).sysid for one in made}) == 1
    assert number_in(tmp_path / "b", system_clock) is None


def test_any_number_of_folders_can_be_opened_and_closed(tmp_path):
    """Each gives its number back, and ids do not run ahead; a few keep theirs to start without the store."""
    seen, ahead_ms = set(), 0
    kept = (ids.SYSIDS - ids.FIRST_JOURNAL_SYSID) // sysids.KEPT_PART
    clock = MovedClock(NOON_MS)
    with holdfast.connect("memory://", clock=clock) as queue:
        for number in range(600):
            folder = JournalFolder(tmp_path / f"j{number}")
            folder.lock()
            source = JournalIds(folder, clock)
            source.renew(queue.connection.ask)
            made = ids.unpack(*source.make(1))
            source.close(queue.connection.ask)
            folder.close()
            assert (number_in(folder.path, clock) is None) == (number >= kept)
            seen.add(made.sysid)
            ahead_ms = max(ahead_ms, made.time_ms - clock())
            clock.advance(1)

    assert len(seen) <= kept + 2
    assert ahead_ms <= 1


def test_when_all_numbers_are_taken_the_error_says_until_when(tmp_path):
    """They are held by folders whose process did not end, for as long as that could make ids."""
    clock = MovedClock(NOON_MS)
    with holdfast.connect("memory://", clock=clock) as queue:
        for number in range(ids.SYSIDS - ids.FIRST_JOURNAL_SYSID):
            queue.connection.ask(TakeSysid(token=str(number), for_ms=JOURNAL_LEASE_MS))

        with pytest.raises(StoreFull, match=r"all 512 numbers that journals .* free at 2027-01-22T08:00:00"):
            queue.connection.ask(TakeSysid(token="one more", for_ms=JOURNAL_LEASE_MS))
        clock.advance(JOURNAL_LEASE_MS)
        queue.connection.ask(TakeSysid(token="one more", for_ms=JOURNAL_LEASE_MS))
