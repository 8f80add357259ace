"""Who is there while a queue moves: processes that add and work, and write down what they were promised.

A line is written after the promise was given, so whatever stands there must be true of the stores in the end.
"""

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import holdfast
from holdfast.core.errors import HoldfastError
from tests.stress.actor import Post

INTERVAL_MS = 100
SLOW = "slow"


class History:
    """A file of JSON lines, each written at once."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, **fields: Any) -> None:
        """One line."""
        os.write(self._file, json.dumps(fields).encode() + b"\n")


def lines(folder: Path, role: str) -> list[dict[str, Any]]:
    """All that the processes of a role wrote."""
    files = sorted(folder.glob(f"{role}-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def adds(post: Post, url: str, path: str, stop: str, pause_s: float = 0.005) -> None:
    """Add jobs, plain ones and some of a limited domain, until told to stop."""
    history, n = History(path), 0
    post.say("ready")
    with holdfast.connect(url) as queue:
        while not Path(stop).exists():
            n += 1
            options: dict[str, Any] = {"domain": SLOW} if n % 20 == 0 else {}
            job = queue.add("work", {"n": n}, **options)
            history.write(id=job.id, n=n)
            time.sleep(pause_s)


def works(post: Post, url: str, path: str, stop: str) -> None:
    """Claim, hold for a while, finish; until all has been worked and nobody adds any more.

    A claim that brings nothing is not the end: the next job of the limited domain may come late.
    """
    history, rng = History(path), random.Random(path)
    post.say("ready")
    with holdfast.connect(url) as queue:
        while True:
            over = Path(stop).exists()
            jobs = queue.claim(["work", "tick"], limit=4, wait=0.2)
            if not jobs and over and set(queue.counts()["work"]) == {"FINISHED"}:
                return
            for job in jobs:
                record = job.record
                history.write(
                    id=job.id, claim=record.claim, at=record.started_at, slow=record.domain is not None
                )
                time.sleep(rng.random() * 0.02)
                try:
                    job.done(job.data)
                    history.write(done=job.id, claim=record.claim)
                except HoldfastError as error:
                    history.write(refused=job.id, why=error.code)
