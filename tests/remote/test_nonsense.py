"""What a gRPC server bears: broken messages, numbers and texts at their ends, bodies that are no JSON."""

import random
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.indexed import LogItem
from holdfast.core.job import Unreadable
from holdfast.core.schedule import Schedule
from holdfast.proto.conversion import SERVICE, VERBS, Asks
from holdfast.serve.grpc.admission import BODIES
from holdfast.serve.grpc.stream import MESSAGE_ASKS
from tests.core.test_access import one_of
from tests.http.test_access import KINDS
from tests.http.test_limits import memory_mb
from tests.queue_suite.tools import LONG_S
from tests.remote.test_access import CLEAR, SessionCalls, TokenServer, answer_of, request_of
from tests.remote.test_door import Client


@pytest.fixture
def guarded() -> Iterator[TokenServer]:
    """A server that asks for a token."""
    made = TokenServer()
    yield made
    made.close()


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """Truncated, with some bytes changed, doubled or in another order."""
    some = bytearray(raw or b"\x08\x01")
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(some))
        some[at] = rng.randrange(256)
    how = rng.randrange(4)
    if how == 0:
        return bytes(some[: rng.randrange(len(some))])
    return bytes(some) * 2 if how == 1 else bytes(some)


def test_truncated_and_mutated_messages_are_refused_clearly(served):
    """By calls and in sessions; the server lives on, and keeps nothing of it."""
    rng, client = random.Random(15), Client(served.port)
    numbered = {"number": 1}

    def throw(kind: Any) -> None:
        good = request_of(one_of(kind))
        verb = VERBS[kind]
        call = client.channel.unary_unary(f"/{SERVICE.full_name}/{verb.name}")
        asks = Asks(asks=[numbered | {verb.field: verb.encode(one_of(kind))}]).SerializeToString()
        for raw in [good[:at] for at in range(0, len(good), 8)] + [mutated(rng, good) for _ in range(5)]:
            try:
                call(raw, timeout=LONG_S)
            except grpc.RpcError as error:
                assert error.code() in CLEAR, (kind, raw, error)  # noqa: PT017 - some are messages
        for raw in [mutated(rng, asks) for _ in range(2)]:
            session = client.channel.stream_stream(f"/{SERVICE.full_name}/Session")
            try:
                list(session(iter([raw])))
            except grpc.RpcError as error:
                assert error.code() in CLEAR, (kind, raw, error)  # noqa: PT017

    for kind in KINDS:
        throw(kind)
    before = memory_mb()
    for kind in KINDS:
        throw(kind)
    assert memory_mb() - before < 30
    assert client.ask(q.GetTime())
    client.channel.close()


def test_numbers_and_texts_at_their_ends_are_refused_or_taken(served):
    """Every field of every command and query with values that nobody means."""
    client = Client(served.port)
    failed = []
    values: tuple[Any, ...] = (
        -1,
        0,
        1 << 62,
        (1 << 63) - 1,
        -(1 << 63),
        2.5,
        "",
        "\0",
        "é" * 300,
        b"",
        b"\xff",
    )
    for kind in KINDS:
        verb = VERBS[kind]
        call = client.channel.unary_unary(f"/{SERVICE.full_name}/{verb.name}")
        for field in verb.request.DESCRIPTOR.fields:
            for value in values:
                fields = verb.encode(one_of(kind)) | {field.name: [value] if field.is_repeated else value}
                try:
                    raw = verb.request(**fields).SerializeToString()
                except (TypeError, ValueError):
                    continue
                try:
                    call(raw, timeout=LONG_S)
                except grpc.RpcError as error:
                    if error.code() not in CLEAR:
                        failed.append((kind.__name__, field.name, value, error.details()))
    assert failed == []
    client.channel.close()


def has_body(descriptor: Any, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a message has a `Body`, in whatever part of it."""
    if descriptor.name == "Body" or descriptor.name in seen:
        return bool(descriptor.name == "Body")
    parts = [field.message_type for field in descriptor.fields if field.message_type is not None]
    return any(has_body(part, seen | {descriptor.name}) for part in parts)


def test_every_body_that_a_client_sends_is_checked():
    """No command with a body is without a rule; steps and signals have JSON as plain text."""
    found = {
        kind for kind in KINDS if issubclass(kind, c.Command) and has_body(VERBS[kind].request.DESCRIPTOR)
    }

    assert found | {c.Step, c.SendSignal} == BODIES.keys()


@pytest.mark.parametrize("body", ['1},{"a":2', "", "[" * 60_000, Unreadable(b"1")])
def test_a_body_that_is_no_json_is_refused(guarded, body):
    """It would become a part of the JSON that others get."""
    client = guarded.client(guarded.token("t", tenant="a"))
    new, hold = c.NewJob(task="t", data=body), c.Hold(job_id=1, owner=2, claim=1)
    asks: list[Any] = [
        c.Add(jobs=(new,)),
        c.Add(jobs=(c.NewJob(task="t"),), more=("1", body)),
        c.Add(jobs=(c.NewJob(task="t", then=new),)),
        c.SetSchedule(schedule=Schedule(name="s", every_ms=1_000), job=new),
        c.Answer(hold=hold, result=body),
        c.AnswerAll(answers=(c.Answer(hold=hold), c.Answer(hold=hold, data=body))),
        c.Update(job_id=1, data=body),
        c.Append(log="l", items=(LogItem(data=body),)),
    ]
    if isinstance(body, str):
        asks.append(c.Step(hold=hold, name="s", result=body))

    for asked in asks:
        status, text = answer_of(client, asked)
        assert (status, "JSON" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True), (asked, text)


def test_headers_and_messages_beyond_the_limits_are_refused(guarded):
    """A token of 100 KB, and a message with more asks than one may have."""
    with pytest.raises(grpc.RpcError):
        guarded.client("x" * 100_000).ask(q.GetTime())
    session = SessionCalls(guarded.client(guarded.token("t")))
    session.say(asks=[{"number": n, "get_time": {}} for n in range(MESSAGE_ASKS + 1)])

    assert session.status().code() is grpc.StatusCode.INVALID_ARGUMENT
    assert guarded.client(guarded.token("u")).ask(q.GetTime())
