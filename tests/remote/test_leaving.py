"""Unary calls whose clients go away while they claim: what they did not get is there for the next."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.job import Place
from holdfast.proto.conversion import SERVICE, message
from holdfast.serve.grpc.calls import Calls
from tests.queue_suite.tools import LONG_S, until
from tests.remote.served import Served
from tests.remote.test_door import Client

ClaimReply, ClaimRequest, NextRequest = message("ClaimReply"), message("ClaimRequest"), message("NextRequest")


class Written:
    """A call whose reply was written, but not its status."""

    def __init__(self, context, moment: threading.Event) -> None:
        self._context, self._moment = context, moment

    async def write(self, raw: bytes) -> None:
        """Write, and wait until the client goes."""
        await self._context.write(raw)
        self._moment.set()
        await asyncio.sleep(LONG_S)


@pytest.fixture(params=["claimed", "written"])
def moment(request, monkeypatch) -> threading.Event:
    """Set when a call has come so far; there it stays until its client goes."""
    made, send = threading.Event(), Calls._send_claimed

    async def stay(calls, context, encoded, reply):
        if request.param == "written":
            await send(calls, Written(context, made), encoded, reply)
            return
        made.set()
        try:
            await asyncio.sleep(LONG_S)
        finally:
            # The client has gone: there is nobody to write to.
            await send(calls, context, encoded, reply)

    monkeypatch.setattr(Calls, "_send_claimed", stay)
    return made


@pytest.mark.parametrize("name", ["Next", "Claim"])
def test_jobs_of_a_client_that_goes_before_its_call_has_ended_are_released(served, moment, name):
    """After they were claimed, and after they were written: without the status no client takes them."""
    client = Client(served.port)
    (job_id,) = client.ask(c.Add(jobs=(c.NewJob(task="t"),)))
    asked = (NextRequest if name == "Next" else ClaimRequest)(lease_ms=3_600_000, limit=1)
    call = client.channel.unary_unary(f"/{SERVICE.full_name}/{name}").future(asked.SerializeToString())
    assert moment.wait(LONG_S)

    call.cancel()

    until(lambda: client.ask(q.GetJob(job_id=job_id)).place is Place.READY)
    client.channel.close()


def jobs_left(served: Served, moments: int) -> list[int]:
    """The jobs that stay leased and that no client got, of as many that came about the deadlines of calls."""
    rng, left = random.Random(12), []
    with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
        call = channel.unary_unary(f"/{SERVICE.full_name}/Next", response_deserializer=ClaimReply.FromString)

        def wait_for(task: str) -> list[int]:
            asked = NextRequest(tasks=[task], wait_ms=60_000, lease_ms=3_600_000)
            try:
                return [one.job.id for one in call(asked.SerializeToString(), timeout=1.5).jobs]
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # noqa: PT017
                return []

        with ThreadPoolExecutor(20) as pool:
            for begun in range(0, moments, 20):
                tasks = [f"t{at}" for at in range(begun, min(begun + 20, moments))]
                waiting = [pool.submit(wait_for, task) for task in tasks]
                begun_s, ids = time.monotonic(), []
                for task, after_s in zip(tasks, sorted(rng.uniform(0.8, 1.6) for _ in tasks), strict=True):
                    time.sleep(max(begun_s + after_s - time.monotonic(), 0))
                    ids += served.connection.ask(c.Add(jobs=(c.NewJob(task=task),)))
                got = [job_id for one in waiting for job_id in one.result()]
                left += [
                    one
                    for one in ids
                    if one not in got and served.connection.ask(q.GetJob(job_id=one)).place is Place.RUNNING
                ]
    return left


def test_a_job_that_comes_at_the_deadline_of_a_call_is_not_lost_to_it(served):
    """The server stops waiting before the client does."""
    assert jobs_left(served, 20) == []


@pytest.mark.proof
def test_of_a_thousand_jobs_that_come_at_deadlines_none_is_lost(served):
    """None stays leased to a call that has ended without it."""
    assert jobs_left(served, 1_000) == []
