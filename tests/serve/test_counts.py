"""A request with more entries in a list than one may have is refused at every door, and changes nothing."""

import json
from collections.abc import Iterator
from typing import Any

import grpc
import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.bounds import BATCH_JOBS
from holdfast.core.indexed import LogItem
from holdfast.engine.store_connection import StoreConnection
from holdfast.store.memory.store import MemoryStore
from tests.http.served import Served as HttpServed
from tests.remote.served import Served as GrpcServed
from tests.remote.test_door import HOLD, Client

# One more than a list may have.
MANY = BATCH_JOBS + 1
JOB = c.NewJob(task="t")
ASKED: dict[str, Any] = {
    "jobs of an add": c.Add(jobs=(JOB,) * MANY),
    "more of an add": c.Add(jobs=(JOB,), more=("1",) * BATCH_JOBS),
    "answers": c.AnswerAll(answers=(c.Answer(hold=HOLD),) * MANY),
    "ids to requeue": c.RequeueAll(job_ids=(1,) * MANY, tenant=""),
    "lines": c.WriteLog(hold=HOLD, lines=("line",) * MANY),
    "items": c.Append(log="log", items=(LogItem(data="1"),) * MANY),
    "ids to load": q.LoadJobs(job_ids=(1,) * MANY),
}


@pytest.fixture
def http() -> Iterator[HttpServed]:
    """An HTTP server."""
    served = HttpServed(MemoryStore)
    yield served
    served.close()


@pytest.fixture
def calls() -> Iterator[Client]:
    """A client of a gRPC server."""
    served = GrpcServed(StoreConnection(MemoryStore(), rng=lambda: 0.5))
    client = Client(served.port)
    yield client
    client.channel.close()
    served.close()
    served.connection.close()


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_list_that_is_too_long_is_refused(http, calls, asked):
    """By its number, over HTTP and gRPC."""
    kind = "queries" if isinstance(asked, q.Query) else "commands"
    body = msgspec.json.decode(msgspec.json.encode(asked))
    body.pop("type")
    with http.client() as client:
        reply = client.ask("POST", f"/v1/{kind}/{type(asked).__name__}", json.dumps(body).encode())
    with pytest.raises(grpc.RpcError) as refused:
        calls.ask(asked)

    assert (reply.status, reply.json["code"]) == (413, "TOO_LARGE"), reply
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "at most 10,000" in reply.json["detail"]
    assert "10,001" in refused.value.details()
    assert "at most 10,000" in refused.value.details()
    assert http.connection.ask(q.CountJobs()) == calls.ask(q.CountJobs()) == []
