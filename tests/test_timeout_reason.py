"""A wait that times out raises `Timeout`, also where its reason cannot be read."""

import asyncio

import pytest

import holdfast
from holdfast.core.errors import Timeout, Unavailable


def fails(_job: object) -> str:
    """A store that is away by now."""
    raise Unavailable("the store is away")


def test_a_timeout_without_a_reason_is_a_timeout(monkeypatch):
    """Callers that catch it must not meet the error of the query."""
    with holdfast.connect("memory://") as queue:
        added = queue.add("work")
        monkeypatch.setattr(queue, "why", fails)

        with pytest.raises(Timeout, match=r"has not ended within 0\.01 s$"):
            added.result(wait=0.01)


def test_a_timeout_without_a_reason_is_a_timeout_for_coroutines(monkeypatch):
    """The same."""

    async def fails_later(job: object) -> str:
        return fails(job)

    async def run() -> None:
        async with holdfast.connect_async("memory://") as queue:
            added = await queue.add("work")
            monkeypatch.setattr(queue, "why", fails_later)
            with pytest.raises(Timeout, match=r"has not ended within 0\.01 s$"):
                await added.result(wait=0.01)

    asyncio.run(run())
