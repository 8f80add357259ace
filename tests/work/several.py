"""An application of several queues, with tasks that eat, grow and note what they do."""

import asyncio
import os
import signal
import time
from pathlib import Path

import holdfast

STORE = os.environ["HOLDFAST_TEST_STORE"]
queue = holdfast.connect(STORE)
tenants = holdfast.connect(STORE, tenant="acme")
elsewhere = holdfast.connect(f"{STORE}.elsewhere")
hoard: list[bytes] = []


def _note(text: str) -> None:
    with Path(os.environ["HOLDFAST_TEST_NOTES"]).open("a") as notes:
        notes.write(f"{text} {os.getpid()}\n")


@queue.task()
def where() -> str:
    return "queue"


@tenants.task(name="where")
def where_of_tenant() -> str:
    return "tenants"


@elsewhere.task(name="where")
def where_elsewhere() -> str:
    """What it adds goes where it came from, or to the queue that it names."""
    return f"elsewhere, then {queue.add('where').id}"


@queue.task()
def process() -> int:
    return os.getpid()


@queue.task()
def nap(seconds: float) -> str:
    _note("nap")
    time.sleep(seconds)
    return "rested"


@queue.task()
def gated() -> str:
    """Run until the test lets it end, by a file beside the notes."""
    _note("gated")
    while not Path(os.environ["HOLDFAST_TEST_NOTES"] + ".go").exists():
        time.sleep(0.01)
    return "done"


@queue.task()
async def doze(seconds: float) -> str:
    _note("doze")
    await asyncio.sleep(seconds)
    return "rested"


@queue.task()
def short(n: int, stops: bool = False) -> None:
    """End at once; one of them has its worker stopped, wherever that is then."""
    _note(f"short-{n}")
    if stops:
        os.kill(os.getppid(), signal.SIGTERM)


@queue.task(losses=2)
def eat(megabytes: int) -> None:
    """Eat until somebody notices."""
    _note("eat")
    eaten = b"x" * megabytes * 1_000_000
    time.sleep(600)
    del eaten


@queue.task()
def grow(megabytes: int) -> int:
    """Leave something behind."""
    hoard.append(b"x" * megabytes * 1_000_000)
    return os.getpid()
