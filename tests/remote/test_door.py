"""The gRPC server as clients in other languages see it: unary calls, streams, errors, tokens, limits."""

import threading
from collections.abc import Iterator
from math import inf, nan
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.errors import Forbidden, HoldfastError, Unauthenticated
from holdfast.core.job import Place, State
from holdfast.core.token import Scope, Token, hash_of, secret_of
from holdfast.engine.store_connection import StoreConnection
from holdfast.proto.conversion import BY_NAME, OWN, SERVICE, VERBS, FromWorker, ToWorker, message
from holdfast.queue.connect import connect
from holdfast.serve.grpc import service as service_module
from holdfast.serve.grpc import stream as stream_module
from holdfast.store.memory.store import MemoryStore
from tests.queue_suite.tools import LONG_S, until
from tests.remote.served import Served

HOLD = c.Hold(job_id=7, owner=2, claim=1)
SECRET = secret_of("shop", b"\1" * 24)


class Client:
    """Calls as any language makes them."""

    def __init__(self, port: int, secret: str = "") -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.metadata = [("authorization", f"Bearer {secret}")] if secret else []

    def call(self, name: str, request: Any = b"", **options: Any) -> Any:
        """The reply to a unary call."""
        reply = {"Next": "ClaimReply", "Wait": "AwaitReply"}.get(name) or BY_NAME[name].reply.DESCRIPTOR.name
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        call = self.channel.unary_unary(f"/{SERVICE.full_name}/{name}")
        return message(reply).FromString(call(raw, metadata=self.metadata, timeout=LONG_S, **options))

    def ask(self, asked: Any) -> Any:
        """The same by a record."""
        verb = VERBS[type(asked)]
        return verb.decode_reply(self.call(verb.name, verb.request(**verb.encode(asked))))


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    """A client of it."""
    made = Client(served.port)
    yield made
    made.channel.close()


def refused(call: Any) -> Any:
    """How a call is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def code_of(error: Any) -> str:
    """The code of Holdfast's own, in the trailer."""
    return str(dict(error.trailing_metadata()).get("holdfast-code"))


def test_every_command_and_query_can_be_called(client):
    """An empty message is answered, or refused by a status that says why; none is unknown."""
    for name in BY_NAME:
        try:
            client.call(name)
        except grpc.RpcError as error:
            assert error.code() in (  # noqa: PT017 - most are not refused
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.NOT_FOUND,
                grpc.StatusCode.FAILED_PRECONDITION,
                grpc.StatusCode.ABORTED,
            ), (name, error)


def test_a_job_is_added_claimed_and_answered(client):
    """By unary calls alone."""
    (job_id,) = client.ask(c.Add(jobs=(c.NewJob(task="resize", data='{"n": 1}'),)))

    (claimed,) = client.call("Next", message("NextRequest")(tasks=["resize"], wait_ms=1_000)).jobs
    assert (claimed.job.id, claimed.data.json) == (job_id, '{"n": 1}')
    assert (
        claimed.job.state
        == message("Job").DESCRIPTOR.fields_by_name["state"].enum_type.values_by_name["STATE_RUNNING"].number
    )
    hold = c.Hold(job_id=job_id, owner=claimed.job.owner, claim=claimed.job.claim)
    client.ask(c.Answer(hold=hold, result='"done"'))

    ended = client.call("Wait", message("WaitRequest")(job_id=job_id)).ended
    assert (ended.result.json, client.ask(q.GetJob(job_id=job_id)).state) == ('"done"', State.FINISHED)


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        (q.GetJob(job_id=7), grpc.StatusCode.NOT_FOUND, "NOT_FOUND"),
        (q.ListJobs(limit=1_001), grpc.StatusCode.INVALID_ARGUMENT, "BAD_INPUT"),
        (c.Add(jobs=(c.NewJob(task=""),)), grpc.StatusCode.INVALID_ARGUMENT, "BAD_INPUT"),
        (c.Add(jobs=(c.NewJob(task="t", data='"\0"'),)), grpc.StatusCode.INVALID_ARGUMENT, "BAD_INPUT"),
        (
            c.Add(jobs=(c.NewJob(task="t"),), more=("1", '"\0"')),
            grpc.StatusCode.INVALID_ARGUMENT,
            "BAD_INPUT",
        ),
        (
            c.Extend(hold=HOLD, lease_ms=1_000),
            grpc.StatusCode.ABORTED,
            "LEASE_LOST",
        ),
        (c.ReserveIds(count=10_001), grpc.StatusCode.INVALID_ARGUMENT, "BAD_INPUT"),
        (
            c.Add(jobs=(c.NewJob(task="t", schedule="\0"),)),
            grpc.StatusCode.INVALID_ARGUMENT,
            "BAD_INPUT",
        ),
        (c.Answer(hold=HOLD, cpu_ms=nan), grpc.StatusCode.INVALID_ARGUMENT, "BAD_INPUT"),
        (
            c.AnswerAll(answers=(c.Answer(hold=HOLD, wall_ms=inf),)),
            grpc.StatusCode.INVALID_ARGUMENT,
            "BAD_INPUT",
        ),
        (c.Answer(hold=HOLD, wall_ms=-1.0), grpc.StatusCode.INVALID_ARGUMENT, "BAD_INPUT"),
    ],
)
def test_errors_have_a_status_a_code_and_a_text(client, asked, status, code):
    """For programs the first two, for people the last."""
    error = refused(lambda: client.ask(asked))

    assert (error.code(), code_of(error)) == (status, code)
    assert error.details()


def test_a_cancelled_next_leaves_the_jobs_alone(client):
    """So does one that is past its deadline."""
    call = client.channel.unary_unary(f"/{SERVICE.full_name}/Next")
    request = message("NextRequest")(tasks=["work"], wait_ms=60_000).SerializeToString()
    waiting = call.future(request)
    try:
        assert call(request, timeout=0.2) == b""
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED  # noqa: PT017 - whichever comes first
    waiting.cancel()

    (job_id,) = client.ask(c.Add(jobs=(c.NewJob(task="work"),)))

    until(lambda: client.ask(q.GetJob(job_id=job_id)).place is Place.READY)
    assert len(client.call("Next", message("NextRequest")(wait_ms=60_000)).jobs) == 1


def test_calls_that_wait_end_when_the_server_is_drained():
    """At once, with an empty reply: it is not an error."""
    connection = StoreConnection(MemoryStore(), rng=lambda: 0.5)
    (job_id,) = connection.ask(c.Add(jobs=(c.NewJob(task="other"),)))
    served = Served(connection)
    client = Client(served.port)
    asked = {"Next": {"tasks": ["work"]}, "Wait": {"job_id": job_id}}
    calls = [
        client.channel.unary_unary(f"/{SERVICE.full_name}/{name}").future(
            message(f"{name}Request")(wait_ms=600_000, **fields).SerializeToString()
        )
        for name, fields in asked.items()
    ]
    until(lambda: served.waiting_calls() == 2)

    served.close()

    assert [call.result(LONG_S) for call in calls] == [b"", b""]
    client.channel.close()
    connection.close()


def test_more_jobs_than_the_server_remembers_are_answered(served, monkeypatch):
    """It only saves the store a read."""
    monkeypatch.setattr(stream_module, "MOST_HELD", 2)
    with connect(f"grpc://127.0.0.1:{served.port}") as queue:
        added = [queue.add("work") for _ in range(5)]

        for job in queue.claim(["work"], limit=5):
            job.done(job.id)

        assert [job.result() for job in added] == [job.id for job in added]


def test_health_and_reflection_answer(client):
    """As tools expect it."""
    health = health_pb2_grpc.HealthStub(client.channel)
    for name in ("", SERVICE.full_name):
        found = health.Check(health_pb2.HealthCheckRequest(service=name))
        assert found.status == health_pb2.HealthCheckResponse.SERVING

    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    (reply,) = stub.ServerReflectionInfo(iter([asked]))
    assert SERVICE.full_name in [one.name for one in reply.list_services_response.service]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(raw=st.binary(max_size=64), name=st.sampled_from(sorted(set(BY_NAME) | {"Next", "Wait"})))
def test_nonsense_is_refused_and_the_server_lives_on(client, raw, name):
    """Whatever bytes come."""
    try:
        client.call(name, raw)
    except grpc.RpcError as error:
        assert error.code() is not grpc.StatusCode.UNKNOWN  # noqa: PT017 - some bytes are a message
        assert error.code() is not grpc.StatusCode.INTERNAL, error.details()  # noqa: PT017


@pytest.mark.parametrize("name", OWN[2:])
def test_nonsense_ends_a_stream_with_a_status(client, name):
    """And nobody else's."""
    call = client.channel.stream_stream(f"/{SERVICE.full_name}/{name}")

    error = refused(lambda: list(call(iter([b"\xff\xff\xff"]))))

    assert (error.code(), code_of(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_INPUT")


def test_a_message_beyond_the_limit_is_refused(monkeypatch):
    """Before it is read."""
    smaller = [(name, 1_000 if "receive" in name else value) for name, value in service_module.OPTIONS]
    monkeypatch.setattr(service_module, "OPTIONS", smaller)
    connection = StoreConnection(MemoryStore(), rng=lambda: 0.5)
    served = Served(connection)
    client = Client(served.port)

    error = refused(lambda: client.call("Add", bytes(2_000)))

    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    client.channel.close()
    served.close()
    connection.close()


# ── Work ─────────────────────────────────────────────────────────────────────────────────────────


class Worker:
    """A worker on a `Work` stream."""

    def __init__(self, client: Client, **start: Any) -> None:
        self._sent: SimpleQueue[Any] = SimpleQueue()
        method = client.channel.stream_stream(f"/{SERVICE.full_name}/Work")
        self._call = method(iter(self._sent.get, None), metadata=client.metadata)
        self.say(start={"tasks": ["work"], "lease_ms": 60_000} | start)

    def say(self, **fields: Any) -> None:
        """Send a message."""
        self._sent.put(FromWorker(**fields).SerializeToString())

    def hear(self) -> Any:
        """The next message."""
        return ToWorker.FromString(next(self._call))

    def end(self) -> None:
        """Say no more, and hear the rest."""
        self._sent.put(None)
        list(self._call)

    def cut(self) -> None:
        """Vanish."""
        self._call.cancel()
        self._sent.put(None)


def test_a_worker_gets_as_many_jobs_as_it_grants_credit_for(client):
    """Then no more until it grants more; what it says of jobs is settled."""
    client.ask(c.Add(jobs=(c.NewJob(task="work", data="1"),), more=("2", "3")))
    worker = Worker(client)
    worker.say(credit=2)
    jobs = list(worker.hear().jobs)
    while len(jobs) < 2:
        jobs += worker.hear().jobs
    assert [one.data.json for one in jobs] == ["1", "2"]
    assert client.ask(q.CountReady()) == 1

    holds = [{"job_id": one.job.id, "owner": one.job.owner, "claim": one.job.claim} for one in jobs]
    worker.say(answers=[{"hold": holds[0]}], extends=[{"hold": holds[1], "lease_ms": 90_000}], credit=1)

    settled: list[Any] = []
    more: list[Any] = []
    while len(settled) < 2 or not more:
        heard = worker.hear()
        settled += heard.settled
        more += heard.jobs
    assert {one.job_id: bool(one.lease_until) for one in settled} == {
        holds[0]["job_id"]: False,
        holds[1]["job_id"]: True,
    }
    assert more[0].data.json == "3"
    worker.say(received=[more[0].job.id], answers=[{"hold": holds[0]}])
    assert worker.hear().settled[0].error.code == "LEASE_LOST"
    worker.end()


@pytest.fixture
def no_claims(served, monkeypatch):
    """An error that no claim expects."""
    execute = served.connection.engine.execute

    def fail(commands: Any, done: Any) -> None:
        if any(isinstance(one, c.Claim) for one in commands):
            raise OverflowError("what a row has")
        execute(commands, done)

    monkeypatch.setattr(served.connection.engine, "execute", fail)


def test_of_an_unexpected_error_of_a_call_only_the_kind_is_told(no_claims, client, heard):
    """To the client, and in the log."""
    error = refused(lambda: client.call("Next"))

    assert (error.code(), error.details()) == (
        grpc.StatusCode.INTERNAL,
        "the server failed: OverflowError",
    )
    assert heard.lines == ["a call failed: OverflowError"]


def test_an_unexpected_error_of_its_claim_ends_the_stream_of_a_worker(no_claims, client):
    """By a status, of which only the kind is told; its other commands go on."""
    worker = Worker(client)
    worker.say(credit=1)

    error = refused(worker.hear)

    assert (error.code(), "OverflowError" in error.details()) == (grpc.StatusCode.INTERNAL, True)
    assert "row" not in error.details()
    worker.cut()


def test_jobs_that_have_not_arrived_are_released_when_a_worker_vanishes(client):
    """Those that have arrived are its own until their lease ends; so are those that must not run twice."""
    jobs = (c.NewJob(task="work"), c.NewJob(task="work"), c.NewJob(task="work", max_losses=1))
    first, second, third = client.ask(c.Add(jobs=jobs))
    worker = Worker(client)
    worker.say(credit=3)
    heard = 0
    while heard < 3:
        heard += len(worker.hear().jobs)
    worker.say(received=[first])
    # Until the server has read it: the reply to what comes after it says so.
    worker.say(releases=[{"hold": {"job_id": 1, "owner": 2, "claim": 3}}])
    worker.hear()

    worker.cut()

    until(lambda: client.ask(q.GetJob(job_id=second)).place is Place.READY)
    assert client.ask(q.GetJob(job_id=first)).place is Place.RUNNING
    assert client.ask(q.GetJob(job_id=third)).place is Place.RUNNING


# ── Tokens ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def guarded() -> Iterator[Served]:
    """A server that asks for a token also on loopback, with one for the tenant `own`."""
    connection = StoreConnection(MemoryStore(), rng=lambda: 0.5)
    token = Token(name="shop", scopes=(Scope.ADD, Scope.WORK), tenant="own", hash=hash_of(SECRET))
    connection.ask(c.CreateToken(token=token))
    made = Served(connection, always=True)
    yield made
    made.close()
    connection.close()


def test_without_a_token_nothing_is_answered(guarded):
    """Neither a call nor a stream, and a queue says why."""
    client = Client(guarded.port)
    error = refused(lambda: client.ask(q.GetTime()))
    assert (error.code(), code_of(error)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
    client.channel.close()

    for wrong in ("", f"?token={secret_of('shop', bytes(24))}", "?token=nonsense"):
        with connect(f"grpc://127.0.0.1:{guarded.port}{wrong}") as queue, pytest.raises(Unauthenticated):
            queue.counts()


def test_a_token_keeps_a_client_to_its_tenant_and_scopes(guarded):
    """Its jobs are its tenant's, those of others are not found, and what its scopes lack is forbidden."""
    (other,) = guarded.connection.ask(c.Add(jobs=(c.NewJob(task="work", tenant="other"),)))
    with connect(f"grpc://127.0.0.1:{guarded.port}?token={SECRET}", tenant="own") as queue:
        assert SECRET not in repr(queue)
        added = queue.add_many([("work", n) for n in range(3)])
        assert {guarded.connection.ask(q.GetJob(job_id=one.id)).tenant for one in added} == {"own"}
        with pytest.raises(HoldfastError, match="there is no job"):
            queue.get(other)
        with pytest.raises(Forbidden, match="scope manage"):
            queue.cancel(added[0])
        job = queue.next(["work"])
        assert job is not None
        job.done()
    foreign = connect(f"grpc://127.0.0.1:{guarded.port}?token={SECRET}", tenant="other")
    with foreign, pytest.raises(Forbidden, match="not for 'other'"):
        foreign.add("work")


def test_a_client_of_one_tenant_uses_no_ids_but_its_own(guarded):
    """Ids that are yet to be made, and those of schedules, are refused."""
    client = Client(guarded.port, SECRET)
    (lent,) = client.ask(c.ReserveIds(count=1))
    ahead = lent.first + (1 << 40)

    error = refused(lambda: client.ask(c.Add(jobs=(c.NewJob(task="work"),), ids=(ahead,))))

    assert code_of(error) == "FORBIDDEN"
    client.channel.close()


def test_a_token_that_is_revoked_gets_no_more_jobs(guarded):
    """Also where its claim waited since before."""
    found: list[Any] = []
    url = f"grpc://127.0.0.1:{guarded.port}?token={SECRET}"
    with connect(url, tenant="own") as queue:

        def wait() -> None:
            try:
                found.append(queue.next(["work"], wait=LONG_S))
            except HoldfastError as error:
                found.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        engine = guarded.connection.engine
        until(lambda: engine.next_upkeep_ms > 0)
        guarded.connection.ask(c.RevokeToken(name="shop"))
        guarded.forget_tokens()
        (job_id,) = guarded.connection.ask(c.Add(jobs=(c.NewJob(task="work", tenant="own"),)))
        thread.join(LONG_S)

    assert isinstance(found[0], Unauthenticated)
    until(lambda: guarded.connection.ask(q.GetJob(job_id=job_id)).place is Place.READY)
