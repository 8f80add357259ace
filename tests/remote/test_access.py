"""Who may ask what over gRPC, and what the server bears: all commands and queries, by calls and sessions."""

import random
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import grpc
import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.access import RULES
from holdfast.core.errors import BadInput
from holdfast.core.handler import SetHandler
from holdfast.core.token import Scope, Token, hash_of, secret_of
from holdfast.engine.connection import StoreConnection
from holdfast.proto.messages import SERVICE, Asks, FromWorker, Replies
from holdfast.proto.verbs import VERBS
from holdfast.serve.grpc.stream import MESSAGE_ASKS
from holdfast.serve.http.forms import form_of
from holdfast.store.memory.store import MemoryStore
from tests.cli.shell import Said, Shell
from tests.core.test_access import one_of
from tests.http.test_access import KINDS, MARK, Neighbour
from tests.http.test_limits import memory_mb
from tests.queue_suite.tools import LONG_S, until
from tests.remote.served import Served
from tests.remote.test_door import Client, code_of, refused

# What a client makes itself bears the name that it asks for; these come last.
MAKERS = [c.StartProgress, c.SetProgress, c.MoveProgress, c.SetSchedule, c.PauseSchedule, SetHandler]
CLEAR = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.OUT_OF_RANGE,
)


class TokenServer(Served):
    """A server that asks for a token, as beyond loopback."""

    def __init__(self) -> None:
        super().__init__(StoreConnection(MemoryStore(), rng=lambda: 0.5), always=True)
        self._clients: list[Client] = []

    def token(self, name: str, *scopes: Scope, tenant: str | None = None, expires_in_ms: int = 0) -> str:
        """The secret of a new token."""
        secret = secret_of(name, random.randbytes(24))
        token = Token(name=name, scopes=scopes or tuple(Scope), tenant=tenant, hash=hash_of(secret))
        self.connection.ask(c.CreateToken(token=token, expires_in_ms=expires_in_ms))
        return secret

    def client(self, secret: str = "") -> Client:
        """A client that shows a secret."""
        self._clients.append(Client(self.port, secret))
        return self._clients[-1]

    def close(self) -> None:
        """Hang up, and stop."""
        for client in self._clients:
            client.channel.close()
        super().close()
        self.connection.close()


@pytest.fixture
def guarded() -> Iterator[TokenServer]:
    """A server that asks for a token."""
    made = TokenServer()
    yield made
    made.close()


class SessionCalls:
    """A `Session`, one ask at a time."""

    def __init__(self, client: Client) -> None:
        self._sent: SimpleQueue[Any] = SimpleQueue()
        method = client.channel.stream_stream(f"/{SERVICE.full_name}/Session")
        self._call = method(iter(self._sent.get, None), metadata=client.metadata)
        self._number = 0

    def ask(self, asked: Any) -> Any:
        """The reply as a message; it has an error where the ask was refused."""
        verb = VERBS[type(asked)]
        self._number += 1
        self.say(asks=[{"number": self._number, verb.field: verb.encode(asked)}])
        while True:
            for reply in Replies.FromString(next(self._call)).replies:
                if reply.number == self._number:
                    return reply

    def say(self, **fields: Any) -> None:
        """Send a message."""
        self._sent.put(Asks(**fields).SerializeToString())

    def status(self) -> Any:
        """How the stream ends."""
        return refused(lambda: list(self._call))

    def end(self) -> None:
        """Say no more."""
        self._sent.put(None)
        list(self._call)


def request_of(asked: Any) -> bytes:
    """A command or query as its message."""
    verb = VERBS[type(asked)]
    raw: bytes = verb.request(**verb.encode(asked)).SerializeToString()
    return raw


def answer_of(client: Client, asked: Any) -> tuple[Any, str]:
    """The status of a call, and all that its reply or refusal tells."""
    call = client.channel.unary_unary(f"/{SERVICE.full_name}/{VERBS[type(asked)].name}")
    try:
        raw = call(request_of(asked), metadata=client.metadata, timeout=LONG_S)
    except grpc.RpcError as error:
        return error.code(), str(error.details())
    return grpc.StatusCode.OK, str(VERBS[type(asked)].reply.FromString(raw))


# ── tokens ───────────────────────────────────────────────────────────────────────────────────────


def test_nobody_asks_anything_without_a_token_that_holds(guarded):
    """None, a wrong, an expired, a revoked one: each call and each stream is refused, and nothing is done."""
    expired, revoked = guarded.token("old", expires_in_ms=1), guarded.token("gone")
    guarded.connection.ask(c.RevokeToken(name="gone"))
    wrong = guarded.token("wrong")[:-1] + "x"
    for secret in ("", "x", expired, revoked, wrong, "hf_a_b", "hf_old_" + "0" * 48):
        client = guarded.client(secret)
        for kind in KINDS:
            status, text = answer_of(client, one_of(kind))
            assert status is grpc.StatusCode.UNAUTHENTICATED, (secret, kind, text)
        for name in ("Next", "Wait"):
            error = refused(lambda client=client, name=name: client.call(name))
            assert code_of(error) == "UNAUTHENTICATED"
        for name in ("Session", "Work"):
            # Before it has said anything.
            silent: SimpleQueue[None] = SimpleQueue()
            call = client.channel.stream_stream(f"/{SERVICE.full_name}/{name}")
            ended = call(iter(silent.get, None), metadata=client.metadata)
            error = refused(lambda ended=ended: next(ended))
            silent.put(None)
            assert (error.code(), code_of(error)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")

    assert guarded.connection.ask(q.CountJobs()) == []


def test_a_token_that_expires_ends_its_session(guarded):
    """What is asked after that is not done; a worker's stream gets no more jobs."""
    secret = guarded.token("brief", expires_in_ms=3_600_000)
    session = SessionCalls(guarded.client(secret))
    assert session.ask(c.Add(jobs=(c.NewJob(task="a"),))).HasField("add")

    token = guarded.connection.ask(q.FindToken(name="brief"))
    guarded.connection.ask(c.RevokeToken(name="brief"))
    guarded.connection.ask(c.CreateToken(token=msgspec.structs.replace(token, expires_at=0), expires_in_ms=1))
    expires_at = guarded.connection.ask(q.FindToken(name="brief")).expires_at
    until(lambda: guarded.connection.ask(q.GetTime()) > expires_at)
    guarded.forget_tokens()
    session.say(asks=[{"number": 9, "add": VERBS[c.Add].encode(c.Add(jobs=(c.NewJob(task="b"),)))}])

    assert session.status().code() is grpc.StatusCode.UNAUTHENTICATED
    assert [one.task for one in guarded.connection.ask(q.ListJobs(limit=9))] == ["a"]


def test_a_token_allows_what_its_scopes_say(guarded):
    """For all else the refusal names the scope that is needed."""
    for scope in Scope:
        client = guarded.client(guarded.token(f"t-{scope}", scope))
        for kind in KINDS:
            status, text = answer_of(client, one_of(kind))
            if scope not in RULES[kind][0]:
                assert status is grpc.StatusCode.PERMISSION_DENIED, (scope, kind, text)
            elif kind is not c.CreateToken:
                assert status is grpc.StatusCode.OK or status in CLEAR[:-2], (scope, kind, text)


# ── tenants ──────────────────────────────────────────────────────────────────────────────────────


def test_a_token_of_one_tenant_cannot_end_a_pause_for_all(guarded, tmp_path):
    """The command line says so; that of the token's own tenant ends."""
    guarded.connection.ask(c.Pause(task="x"))
    guarded.connection.ask(c.Pause(tenant="a", task="x"))

    def resume(secret: str) -> Said:
        url = f"grpc://127.0.0.1:{guarded.port}?token={secret}"
        return Shell(tmp_path).run("resume", "--store", url, "--tenant", "a", "--task", "x")

    said = resume(guarded.token("of-a", tenant="a"))
    assert said.code, said
    assert "task x of all tenants stays paused" in said.err
    assert guarded.connection.ask(q.ListPauses()) == [(None, "x", None)]

    assert resume(guarded.token("of-all")).code == 0
    assert guarded.connection.ask(q.ListPauses()) == []


def records_of(neighbour: Neighbour, kind: Any) -> Iterator[Any]:
    """Commands or queries of a kind about what tenant `a` has, naming `a`, `b` or no tenant."""
    form = form_of(kind)
    assert form.read is not None
    for body in neighbour.asked(kind):
        for tenant in (None, "b", "a"):
            has_tenant = tenant is not None and "tenant" in form.type.__struct_fields__
            said = body | {"tenant": tenant} if has_tenant else body
            try:
                yield form.read(msgspec.json.decode(msgspec.json.encode(said), type=form.type))
            except BadInput:
                continue


def test_a_tenant_neither_sees_nor_touches_what_another_has(guarded):
    """By every command and query, in a call and in a session; whatever ids, names and claims it guesses."""
    neighbour = Neighbour(guarded)
    client = guarded.client(guarded.token("b", tenant="b"))
    before = neighbour.state()
    session = SessionCalls(client)

    for kind in sorted(KINDS, key=lambda kind: (kind in MAKERS, issubclass(kind, c.Command))):
        for asked in records_of(neighbour, kind):
            status, text = answer_of(client, asked)
            assert status is grpc.StatusCode.OK or status in CLEAR, (asked, status, text)
            replied = session.ask(asked)
            is_error = replied.HasField("error")
            for told in [text] * (status is grpc.StatusCode.OK) + [str(replied)] * (not is_error):
                if kind not in MAKERS:
                    assert MARK not in told.replace(MARK + "-b", ""), (asked, told)
                assert not any(str(job_id) in told for job_id in neighbour.ids), (asked, told)

    session.end()
    assert neighbour.state() == before


def test_a_stream_of_another_tenant_gets_and_answers_nothing(guarded):
    """`Next`, `Wait` and `Work`: its own tenant's jobs alone, and claims of others are unknown."""
    neighbour = Neighbour(guarded)
    client = guarded.client(guarded.token("b", tenant="b"))
    before = neighbour.state()
    hold = {field: getattr(neighbour.hold, field) for field in ("job_id", "owner", "claim")}
    sent: SimpleQueue[Any] = SimpleQueue()
    stream = client.channel.stream_stream(f"/{SERVICE.full_name}/Work")
    worker = stream(iter(sent.get, None), metadata=client.metadata)
    sent.put(FromWorker(start={"tasks": [MARK]}, credit=9).SerializeToString())
    sent.put(
        FromWorker(answers=[{"hold": hold}], extends=[{"hold": hold, "lease_ms": 9}]).SerializeToString()
    )
    sent.put(FromWorker(releases=[{"hold": hold}], received=list(neighbour.ids)).SerializeToString())
    settled: list[Any] = []
    while len(settled) < 3:
        heard = stream_message(next(worker))
        assert not heard.jobs
        settled += heard.settled
    assert {one.error.code for one in settled} == {"LEASE_LOST"}
    assert not any(MARK in one.error.text for one in settled)
    sent.put(None)
    for name in ("Next", "Wait"):
        for tenant in ("", "a"):
            request = message_named(f"{name}Request")(tenant=tenant, wait_ms=0)
            if name == "Wait":
                request.job_id = neighbour.ids[0]
            try:
                reply = client.call(name, request)
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.PERMISSION_DENIED  # noqa: PT017 - "" is its own
            else:
                assert MARK not in str(reply)

    assert neighbour.state() == before


def stream_message(raw: bytes) -> Any:
    """What a worker is told."""
    return message_named("ToWorker").FromString(raw)


def message_named(name: str) -> Any:
    """A message of the service by its name."""
    from holdfast.proto.messages import message

    return message(name)


# ── nonsense ─────────────────────────────────────────────────────────────────────────────────────


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
        for raw in [good[:at] for at in range(0, len(good), 5)] + [mutated(rng, good) for _ in range(8)]:
            try:
                call(raw, timeout=LONG_S)
            except grpc.RpcError as error:
                assert error.code() in CLEAR, (kind, raw, error)  # noqa: PT017 - some are messages
        for raw in [mutated(rng, asks) for _ in range(3)]:
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


def test_headers_and_messages_beyond_the_limits_are_refused(guarded):
    """A token of 100 KB, and a message with more asks than one may have."""
    with pytest.raises(grpc.RpcError):
        guarded.client("x" * 100_000).ask(q.GetTime())
    session = SessionCalls(guarded.client(guarded.token("t")))
    session.say(asks=[{"number": n, "get_time": {}} for n in range(MESSAGE_ASKS + 1)])

    assert session.status().code() is grpc.StatusCode.INVALID_ARGUMENT
    assert guarded.client(guarded.token("u")).ask(q.GetTime())


def test_a_job_of_another_tenant_is_refused_as_one_that_is_not_there(guarded):
    """By the same status and the same words, so that guessing ids and claims tells nothing."""
    neighbour = Neighbour(guarded)
    client = guarded.client(guarded.token("b", tenant="b"))

    for kind in KINDS:
        form = form_of(kind)
        assert form.read is not None
        for body in neighbour.asked(kind):
            said = msgspec.json.encode(body).decode()
            answers = []
            for shift in (0, 1 << 40):
                text = said
                for job_id in neighbour.ids:
                    text = text.replace(str(job_id), str(job_id + shift))
                status, told = answer_of(client, form.read(msgspec.json.decode(text, type=form.type)))
                for job_id in neighbour.ids:
                    told = told.replace(str(job_id + shift), "ID")
                answers.append((status, told))
            if any(str(job_id) in said for job_id in neighbour.ids):
                assert answers[0] == answers[1], (kind, said)
