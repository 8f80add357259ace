"""An application with hooks, for workers to run."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import holdfast

from .app import _note

queue = holdfast.connect(os.environ["HOLDFAST_TEST_STORE"])


class Client:
    """Something that is opened once in each process."""


@queue.on_start
async def client() -> AsyncIterator[Client]:
    _note("open")
    yield Client()
    _note("close")


@queue.on_start
def count() -> None:
    if os.environ.get("HOLDFAST_TEST_BROKEN") == "error":
        raise OSError("no network")
    if os.environ.get("HOLDFAST_TEST_BROKEN") == "exit":
        sys.exit("no network")
    # Before the first job the queue may be used, too.
    queue.add("seen", {"word": "start"})


@queue.on_stop
def stop() -> None:
    _note("stop")
    queue.add("late")


@queue.around_run
def around(job: Any) -> Iterator[None]:
    result = None
    try:
        result = yield
    finally:
        _note(f"around-{job.task}-{result}")


@queue.task
def seen(word: str, client: Client = holdfast.INJECTED) -> str:
    return word if isinstance(client, Client) else "nothing"


@queue.task
async def seen_async(word: str, client: Client = holdfast.INJECTED) -> str:
    return word if isinstance(client, Client) else "nothing"


@queue.task(attempts=1)
def leaving() -> None:
    sys.exit(3)


@queue.task(attempts=1)
async def leaving_async() -> None:
    sys.exit(3)
