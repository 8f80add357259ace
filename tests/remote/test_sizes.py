"""What is large or many: batches, answers and replies that are more than one message takes, and waits."""

import asyncio
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.bounds import DATA_BYTES, GRPC_REQUEST_BYTES
from holdfast.core.errors import TooLarge
from holdfast.core.job import State
from holdfast.queue.connect import connect
from holdfast.queue.queue import Queue
from holdfast.serve.grpc import session, stream
from tests.queue_suite.tools import LONG_S
from tests.remote.served import Served

LARGE = DATA_BYTES - 100
# Three bytes in UTF-8.
WIDE = "漢"


@pytest.fixture
def queue(served: Served) -> Iterator[Queue]:
    """A queue that can reach the server."""
    with connect(f"grpc://127.0.0.1:{served.port}") as made:
        yield made


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(WIDE * (LARGE // 3), id="wide"),
        pytest.param("x" * LARGE, id="ascii", marks=pytest.mark.proof),
    ],
)
def test_many_large_jobs_are_added_in_several_batches(queue, text):
    """Their sizes are counted in bytes, and none is more than the server takes."""
    added = queue.add_many([("work", text)] * 7)

    assert len({job.id for job in added}) == 7
    assert queue.counts()["work"] == {"QUEUED": 7}


@pytest.mark.proof
def test_large_results_that_are_answered_together_arrive(queue):
    """As a worker sends them: in one command, whose answers are more than one message takes."""
    queue.add_many([("work", n) for n in range(8)])
    held = [job.record for job in queue.claim(["work"], limit=8, renew=False)]
    result = '"' + "x" * LARGE + '"'
    answers = tuple(c.Answer(hold=c.hold_of(job), result=result) for job in held)

    replies = queue.connection.ask(c.AnswerAll(answers=answers, held=tuple(held)))

    assert [(job.id, job.state) for job in replies] == [(job.id, State.FINISHED) for job in held]


@pytest.mark.proof
def test_large_results_that_are_awaited_together_arrive(served):
    """All at once they would be more than a client receives."""

    async def run() -> list[int]:
        async with holdfast.connect_async(f"grpc://127.0.0.1:{served.port}") as queue:
            job = await queue.add("work")
            held = await queue.next(["work"])
            assert held is not None
            await held.done("x" * LARGE)
            waiting = [queue.result(job, wait=LONG_S) for _ in range(12)]
            return [len(result) for result in await asyncio.gather(*waiting)]

    assert asyncio.run(run()) == [LARGE] * 12


def waits_and_answers(served: Served, waits: int) -> list[object]:
    """What as many waits for a job bring, which the same client runs meanwhile."""

    async def run() -> list[object]:
        async with holdfast.connect_async(f"grpc://127.0.0.1:{served.port}") as queue:
            job = await queue.add("work")
            waiting = [asyncio.create_task(queue.result(job, wait=LONG_S)) for _ in range(waits)]
            # Behind the waits in the same session.
            await queue.counts()
            held = await queue.next(["work"], renew=False)
            assert held is not None
            await held.done("result")
            found: list[object] = await asyncio.gather(*waiting, return_exceptions=True)
            return found

    return asyncio.run(run())


def test_a_client_that_waits_for_many_jobs_can_go_on(served, monkeypatch):
    """Its waits are not requests that the server has yet to catch up with."""
    monkeypatch.setattr(stream, "MOST_PENDING", 50)

    assert waits_and_answers(served, 100) == ["result"] * 100


def test_more_waits_than_a_server_keeps_are_refused_each(served, monkeypatch):
    """The others are answered."""
    monkeypatch.setattr(session, "MOST_WAITS", 80)

    replies = waits_and_answers(served, 100)

    assert (replies.count("result"), sum(isinstance(one, TooLarge) for one in replies)) == (80, 20)


def test_a_command_that_no_message_takes_is_refused_by_itself(queue):
    """At once, and what is asked beside it is answered."""
    jobs = tuple(c.NewJob(task="work", data='"' + WIDE * 5_000_000 + '"') for _ in range(8))

    with pytest.raises(
        TooLarge, match=rf"Add is .* and must be at most {GRPC_REQUEST_BYTES:,} in one message"
    ):
        queue.connection.ask(c.Add(jobs=jobs))

    assert queue.counts() == {}
