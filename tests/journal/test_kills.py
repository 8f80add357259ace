"""kill -9 at random moments while a journal is written and ingested: what was acknowledged is there."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast
from holdfast.journal.connection import JournalConnection
from holdfast.journal.status import read_status

from .opened import data, opened, take

ROOT = Path(__file__).parents[2]
KILLS = [pytest.param(12, id="small"), pytest.param(1_000, id="full", marks=pytest.mark.proof)]


def kill(role: str, folder: Path, kills: int) -> list[list[Any]]:
    """Have processes play a role and be killed; what they were told, in order."""
    done = subprocess.run(**nursery(role, folder, kills), timeout=3_000, check=False)
    assert done.returncode == 0, done.stderr
    return lines_of(folder / "acked")


def nursery(*words: object) -> dict[str, Any]:
    """How the process is started that starts the others and kills them."""
    command = [sys.executable, "-m", "tests.journal.nursery", *map(str, words)]
    return {"args": command, "cwd": ROOT, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def lines_of(path: Path) -> list[list[Any]]:
    """The lines of a file; the last may be cut off by the kill."""
    whole = path.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


@pytest.mark.parametrize("kills", KILLS)
def test_acknowledged_jobs_are_in_the_store_once(tmp_path, kills, tell):
    """Each with its id and data, those of a thread in their order, and none twice."""
    acked = kill("add_jobs", tmp_path, kills)
    left = read_status(str(tmp_path / "j")).waiting

    with holdfast.connect(str(tmp_path / "jobs.db"), journal=tmp_path / "j") as queue:
        cast(JournalConnection, queue.connection).ingest()
        found: dict[int, Any] = {}
        while jobs := queue.claim(["work"], limit=1_000, lease="1h", renew=False):
            found |= {job.id: job.data for job in jobs}

    assert [(found[id]["tag"], found[id]["n"]) for _, _, id in acked] == [(tag, n) for tag, n, _ in acked]
    made = [(one["tag"], one["n"]) for one in found.values()]
    assert len(made) == len(set(made))
    by_thread: dict[str, list[int]] = {}
    for tag, n in made:
        by_thread.setdefault(tag, []).append(n)
    assert all(numbers == list(range(len(numbers))) for numbers in by_thread.values())
    status = read_status(str(tmp_path / "j"))
    assert (status.refused, status.damaged, status.waiting) == (0, 0, 0)
    told = f"{kills} kills, {len(acked):,} acknowledged, {len(found):,} in the store"
    tell(f"{told}, {left:,} of them at the end")


@pytest.mark.parametrize("kills", KILLS)
def test_synced_lines_are_read_in_order(tmp_path, kills, tell):
    """Each at least once, also those that were given back; none is skipped."""
    acked = kill("write_lines", tmp_path, kills)

    with opened(tmp_path / "j") as journal:
        rest = take(journal)
    stored = lines_of(tmp_path / "stored")
    stored += [[*json.loads(body), line.id] for body, line in zip(data(rest), rest, strict=True)]

    first = list(dict.fromkeys((tag, n, id) for tag, n, id in stored))
    ids = [id for _, _, id in first]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids) == len({(tag, n) for tag, n, _ in first})
    assert {tuple(one) for one in acked} <= set(first)
    tell(f"{kills} kills, {len(acked):,} synced, {len(stored):,} readings of {len(first):,} lines")
