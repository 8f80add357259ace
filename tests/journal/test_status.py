"""`holdfast journal`: what is waiting, what was refused, what is damaged."""

import fcntl
import os

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.journal.segment import Malformed, count_jobs, decode_runs, encode_runs, runs_of
from holdfast.store.common.clock import system_clock
from tests.cli.conftest import shell as shell

from .opened import add, opened, take


def test_a_journal_tells_what_is_waiting(shell, tmp_path):
    """While a process uses it, and after that."""
    with opened(tmp_path / "j") as journal:
        add(journal, *map(str, range(5)))
        add(journal, "5")
        take(journal, 2)
        used = shell.ok("journal", "j", "--json").record
    later = shell.ok("journal", "j", "--json").record

    assert used["owner"]
    assert not later["owner"]
    assert (used["waiting"], later["waiting"], later["segments"]) == (4, 4, 1)
    assert later["ids_until_ms"] > later["oldest_ms"] > 0
    assert shell.ok("journal", "j").lines[0].split() == [
        *("WAITING", "OLDEST", "SEGMENTS", "BYTES", "PROCESS", "IDS", "UNTIL", "REFUSED", "DAMAGED")
    ]


def test_the_oldest_job_was_never_added_in_the_future(shell, tmp_path):
    """Ids run ahead of the clock by up to a minute."""
    with opened(tmp_path / "j", clock=lambda: system_clock() + 50_000) as journal:
        add(journal, "1")

    assert shell.ok("journal", "j").lines[1].split()[:2] == ["1", "now"]
    assert shell.ok("journal", "j", "--json").record["oldest_ms"] <= system_clock()


def test_what_is_waiting_is_brought_to_the_store(shell, tmp_path):
    """Without the program that wrote it."""
    with holdfast.connect(str(shell.file)) as queue:
        queue.counts()
    with opened(tmp_path / "j") as journal:
        add(journal, *map(str, range(5)))
        assert "used by process" in shell.run("journal", "j", "--ingest").err

    assert shell.ok("journal", "j", "--ingest").out == "ingested 5 jobs\n"
    assert shell.ok("journal", "j", "--json").record["waiting"] == 0
    assert len(shell.ok("jobs", "--json").records) == 5


def test_refused_jobs_are_listed_with_all_they_have(shell, tmp_path):
    """So that whoever mends the reason can add them again."""
    with opened(tmp_path / "j") as journal:
        (added,) = add(journal, b"\0", tenant="mine", priority=7)
    with holdfast.connect(str(shell.file)) as queue:
        queue.connection.ask(c.Add(jobs=(c.NewJob(task="t", tenant="other"),), ids=(added,)))
    assert shell.ok("journal", "j", "--refused").out == "no refused jobs\n"
    shell.ok("journal", "j", "--ingest")

    (refused,) = shell.ok("journal", "j", "--refused", "--json").records

    assert (refused["id"], refused["code"]) == (str(added), "BAD_INPUT")
    assert (refused["job"]["data"], refused["job"]["priority"]) == ("AA==", 7)
    assert shell.ok("journal", "j", "--json").record["refused"] == 1
    assert str(added) in shell.ok("journal", "j", "--refused").out


@pytest.mark.parametrize("name", ["none", "."])
def test_a_folder_without_a_journal_is_refused(shell, name):
    """It is not made."""
    assert shell.run("journal", name).code != 0
    assert list(shell.folder.iterdir()) == []


def test_jobs_are_counted_without_their_data():
    """Lines, batches of them, and jobs with options: as many as are decoded, and the first id."""
    adds = [
        c.Add(jobs=(c.NewJob(task="line"),), ids=(11,)),
        c.Add(jobs=(c.NewJob(task="batch", data='";"'),), more=("2", "3"), ids=(12, 13, 14)),
        c.Add(jobs=(c.NewJob(task="option", priority=7), c.NewJob(task="bytes", data=b"\n")), ids=(15, 16)),
    ]
    raws = [encode_runs(runs_of(add), now_ms=1) for add in adds]

    assert [count_jobs(raw) for raw in raws] == [(1, 11), (3, 12), (2, 15)]
    assert count_jobs(b"".join(raws)) == (6, 11)
    assert sum(len(run.ids) for run in decode_runs(b"".join(raws))) == 6
    for broken in (raws[1][:-3], b"#:Other bytes=0\n#:EndOther\n", b"no line"):
        with pytest.raises(Malformed):
            count_jobs(broken)


@pytest.mark.parametrize("looked", [3, 30])
def test_a_look_at_a_journal_does_not_keep_a_process_from_opening_it(tmp_path, monkeypatch, looked):
    """Which takes the lock for a moment, to see whether a process has it; or longer, on a busy machine."""
    with opened(tmp_path / "j"):
        pass
    looks = os.open(tmp_path / "j" / "lock", os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_SH)
    naps: list[float] = []

    def end_the_look(nap_s: float) -> None:
        naps.append(nap_s)
        if len(naps) == looked:
            os.close(looks)

    monkeypatch.setattr("holdfast.journal.folder.sleep", end_the_look)
    with opened(tmp_path / "j") as journal:
        add(journal, "1")

    assert len(naps) == looked
