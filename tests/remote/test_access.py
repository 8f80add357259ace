"""Who may ask what over gRPC: all commands and queries, by calls and sessions."""

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
from holdfast.core.ids import SLOTS, ms_of
from holdfast.core.job import Place
from holdfast.core.token import Scope, Token, hash_of, secret_of
from holdfast.engine.store_connection import StoreConnection
from holdfast.proto.conversion import SERVICE, VERBS, Asks, FromWorker, Replies
from holdfast.remote.address import parse
from holdfast.serve.guard import Rates
from holdfast.serve.http.forms import form_of
from holdfast.store.memory.store import MemoryStore
from tests.cli.shell import Said, Shell
from tests.core.test_access import one_of
from tests.http.test_access import KINDS, MARK, Neighbour
from tests.queue_suite.tools import LONG_S, until
from tests.remote.served import Served
from tests.remote.test_door import Client, Worker, code_of, refused

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

    def __init__(self, *, rate: float = 0.0) -> None:
        super().__init__(StoreConnection(MemoryStore(), rng=lambda: 0.5), always=True, rate=rate)
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


def test_nobody_asks_anything_without_a_token_that_holds(guarded, monkeypatch):
    """None, a wrong, an expired, a revoked one: each call and each stream is refused, and nothing is done."""
    # This client sends more wrong tokens than an address may.
    monkeypatch.setattr(Rates, "check", lambda *_: 0.0)
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


@pytest.mark.parametrize("where", ["h:99999", "h:x", "[::1", "", "h:1/x"])
def test_a_wrong_address_is_shown_without_its_token(where):
    """It is logged where a program cannot start."""
    with pytest.raises(BadInput) as caught:
        parse(f"grpc://{where}?token=hf_a_SECRET")

    assert "SECRET" not in str(caught.value)


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


@pytest.mark.parametrize("way", ["Next", "Wait", "Session"])
def test_a_token_that_is_revoked_gets_nothing_that_it_waited_for(guarded, way):
    """Neither the job of a claim, which is released, nor the result of a job."""
    client = guarded.client(guarded.token("t", tenant="a"))
    add = c.Add(jobs=(c.NewJob(task="t", tenant="a"),))
    if way == "Session":
        (job_id,) = guarded.connection.ask(add)
        session = SessionCalls(client)
        session.say(asks=[{"number": 1, "wait_ms": 60_000, "await": {"job_id": job_id}}])
        until(guarded.pending)
    else:
        job_id = 0 if way == "Next" else guarded.connection.ask(add)[0]
        request = message_named(f"{way}Request")(wait_ms=60_000, **({"job_id": job_id} if job_id else {}))
        call = client.channel.unary_unary(f"/{SERVICE.full_name}/{way}")
        waiting = call.future(request.SerializeToString(), metadata=client.metadata)
        until(guarded.waiting_calls)

    guarded.connection.ask(c.RevokeToken(name="t"))
    guarded.forget_tokens()
    if way == "Next":
        (job_id,) = guarded.connection.ask(add)
    else:
        (one,) = guarded.connection.ask(c.Claim(lease_ms=60_000))
        guarded.connection.ask(c.Answer(hold=c.hold_of(one.job), result='"secret"'))

    error = session.status() if way == "Session" else refused(lambda: waiting.result(LONG_S))
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    if way == "Next":
        until(lambda: guarded.connection.ask(q.GetJob(job_id=job_id)).place is Place.READY)


def test_a_worker_that_sends_too_much_is_slowed_down():
    """No message is dropped: jobs that it has received are not given to another when it vanishes."""
    server = TokenServer(rate=10.0)
    secret = server.token("t")
    job_ids = server.connection.ask(c.Add(jobs=(c.NewJob(task="work"),), more=("1", "2")))
    worker = Worker(server.client(secret))
    for _ in job_ids:
        worker.say(credit=1)
    heard = 0
    while heard < len(job_ids):
        heard += len(worker.hear().jobs)

    for _ in range(12):
        worker.say(credit=0)
    worker.say(received=job_ids)
    # Until the server has read it: the reply to what comes after it says so.
    worker.say(releases=[{"hold": {"job_id": 1, "owner": 2, "claim": 3}}])
    assert worker.hear().settled[0].error.code == "LEASE_LOST"
    worker.cut()

    until(lambda: not server._door._streams)
    assert {server.connection.ask(q.GetJob(job_id=one)).place for one in job_ids} == {Place.RUNNING}
    server.close()


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
        return Shell(tmp_path).run("resume", "--store", url, "--task", "x")

    said = resume(guarded.token("of-a", tenant="a"))
    assert said.code, said
    assert "task x of all tenants stays paused" in said.err
    assert guarded.connection.ask(q.ListPauses()) == [(None, "x", None)]

    assert resume(guarded.token("of-all")).code == 0
    assert guarded.connection.ask(q.ListPauses()) == []


def test_a_token_of_one_tenant_adds_only_under_ids_that_were_lent_to_it(guarded):
    """By calls and in sessions; not under ids of its own choice, nor under those of others."""
    mine, other = (guarded.client(guarded.token(name, tenant=name)) for name in "ab")

    def add_under(*ids: int) -> Any:
        return c.Add(jobs=(c.NewJob(task="t"),), more=("1",) * (len(ids) - 1), ids=ids)

    (lent,) = mine.ask(c.ReserveIds(count=1))
    (foreign,) = other.ask(c.ReserveIds(count=1))
    until(lambda: guarded.connection.ask(q.GetTime()) > ms_of(foreign.first))
    for asked in (
        c.Add(jobs=(c.NewJob(task="t", id=12_345),)),
        c.Add(jobs=(c.NewJob(task="t", id=lent.first),)),
        add_under(12_345),
        add_under(foreign.first),
        add_under(lent.first, foreign.first),
        add_under(lent.first + SLOTS),
    ):
        assert answer_of(mine, asked)[0] is grpc.StatusCode.PERMISSION_DENIED, asked
        session = SessionCalls(mine)
        assert session.ask(asked).error.code == "FORBIDDEN", asked
        session.end()

    assert mine.ask(add_under(lent.first + 5)) == [lent.first + 5]
    first, second = SessionCalls(mine), SessionCalls(mine)
    (reserved,) = first.ask(c.ReserveIds(count=1)).reserve_ids.ranges
    first.end()
    assert second.ask(add_under(reserved.first)).add.job_ids == [reserved.first]
    second.end()


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
    from holdfast.proto.conversion import message

    return message(name)


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
