"""What one report costs: it does not grow with what is in flight. Counted in instructions, not in time."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import holdfast
from holdfast.indexed import AsyncConsumer, AsyncProgress, Consumer, Progress
from tests.indexed.tools import Numbers

FEW, MANY = 10, 5_000


class Instructions:
    """Counts the bytecode instructions of `holdfast.indexed` that the current thread runs."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: Any, event: str, _: object) -> Any:
        if "/holdfast/indexed/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self


@contextmanager
def counted() -> Iterator[Instructions]:
    """Count what happens within."""
    found, before = Instructions(), sys.gettrace()
    sys.settrace(found)
    try:
        yield found
    finally:
        sys.settrace(before)


def costs(in_flight: int) -> tuple[dict[str, int], list[int]]:
    """Instructions to report the last, the one before, one in the middle, the first; all writes of P."""
    writes: list[int] = []
    with holdfast.connect("memory://") as queue:
        consumer = Consumer(
            Numbers(in_flight), Progress(queue, "c"), lambda job: None, max_processing=in_flight
        )
        move = consumer.progress.move

        def noted(to: int, **options: Any) -> int:
            writes.append(to)
            return move(to, **options)

        consumer.progress.move = noted  # type: ignore[method-assign]
        consumer.start()
        found = {}
        for name, index in reports(in_flight):
            with counted() as instructions:
                consumer.done(str(index))
            found[name] = instructions.count
        consumer.stop()
    return found, writes


def reports(in_flight: int) -> list[tuple[str, int]]:
    """Which jobs are reported, in this order."""
    middle = in_flight // 2
    return [("last", in_flight), ("neighbour", in_flight - 1), ("middle", middle), ("first", 1)]


async def async_costs(in_flight: int) -> dict[str, int]:
    """The same for asyncio, where all happens in one thread."""
    async with holdfast.connect_async("memory://") as queue:
        consumer: AsyncConsumer[int] = AsyncConsumer(
            Numbers(in_flight), AsyncProgress(queue, "c"), lambda job: None, max_processing=in_flight
        )
        await consumer.start()
        await asyncio.gather(*consumer._workers)
        found = {}
        for name, index in reports(in_flight):
            with counted() as instructions:
                await consumer.done(str(index))
            found[name] = instructions.count
        await consumer.stop()
    return found


@pytest.mark.timeout(300)
def test_the_cost_of_a_report_does_not_grow_with_what_is_in_flight():
    """5,000 in flight cost what ten do; P is written only by the report that moves it."""
    # From Python 3.12 on, the instructions of a function are counted from its second call on.
    costs(FEW)
    few, writes = costs(FEW)
    many, writes_of_many = costs(MANY)

    assert few["last"] > 0
    assert many == few
    assert writes == writes_of_many == [1]


def test_the_cost_of_a_report_does_not_grow_for_asyncio_either():
    """The same walk and the same ledger."""
    # As above.
    asyncio.run(async_costs(FEW))
    few, many = asyncio.run(async_costs(FEW)), asyncio.run(async_costs(MANY))

    assert few["last"] > 0
    assert many == few
