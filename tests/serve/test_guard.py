"""The guard: secrets, loopback, caching, an outage of the store, rates."""

import asyncio
import random
from contextlib import nullcontext

import pytest

from holdfast.core import commands as c
from holdfast.core import redaction
from holdfast.core.access import EVERYTHING, Grant, Scope, confine
from holdfast.core.errors import Forbidden, NotFound, RateLimited, Unauthenticated, Unavailable, Unsettled
from holdfast.core.handler import Handler, SetHandler
from holdfast.core.token import Token, hash_of, secret_of
from holdfast.engine.store_connection import StoreConnection
from holdfast.serve.app import ServerApp
from holdfast.serve.bedrock.parameters import PortRefusal
from holdfast.serve.bedrock.port import PortGuard
from holdfast.serve.config import Options
from holdfast.serve.guard import GRACE_S, INCIDENT_S, WRONG_SECRETS, Guard, Incidents
from holdfast.store.memory.store import MemoryStore

SECRET = secret_of("shop", bytes(24))


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    """A clock of this process and of the store."""
    return Clock()


@pytest.fixture
def connection(clock):
    """A store with one token, which expires after a minute."""
    made = StoreConnection(MemoryStore(clock=lambda: int(clock.now_s * 1000)), rng=random.random)
    token = Token(name="shop", tenant="a", scopes=(Scope.ADD,), hash=hash_of(SECRET))
    made.ask(c.CreateToken(token=token, expires_in_ms=60_000))
    yield made
    made.close()


def admit(guard, secret, *, loopback=False, peer=""):
    """What the guard says."""
    return asyncio.run(guard.admit(secret, loopback=loopback, peer=peer))


def test_a_token_is_needed_beyond_loopback(connection):
    """On loopback it is not, but one that is shown must hold."""
    guard = Guard(connection)

    assert admit(guard, SECRET) == Grant(tenant="a", scopes=(Scope.ADD,), name="shop")
    assert admit(guard, SECRET, loopback=True).tenant == "a"
    assert admit(guard, None, loopback=True) == EVERYTHING
    for secret, loopback in (
        (None, False),
        ("", False),
        ("hf_shop_00", True),
        ("hf_x_00", False),
        ("\0", True),
    ):
        with pytest.raises(Unauthenticated):
            admit(guard, secret, loopback=loopback)
    with pytest.raises(Unauthenticated):
        admit(Guard(connection, always=True), None, loopback=True)


def test_the_job_command_port_answers_no_web_page(connection):
    """On loopback nothing is asked for, so a page in a browser must not get in by the methods of HTTP."""
    guard = PortGuard(Guard(connection), tenant="a", loopback=True)

    def ask(**headers):
        asyncio.run(guard.check("CreateJob", headers, ""))

    ask()
    ask(host="localhost:8888")
    ask(host="evil.example", origin="http://evil.example", token=SECRET)
    for headers in ({"host": "evil.example"}, {"host": "localhost", "origin": "http://localhost"}):
        with pytest.raises(PortRefusal, match="403"):
            ask(**headers)


def test_a_token_that_expires_is_refused_from_then_on(connection, clock):
    """To the millisecond, also while it is remembered."""
    guard = Guard(connection, clock=clock)
    clock.now_s += 59.5
    assert admit(guard, SECRET)

    clock.now_s += 0.5

    with pytest.raises(Unauthenticated, match="expired"):
        admit(guard, SECRET)


def test_a_revoked_token_is_refused_a_second_later(connection, clock):
    """So long it is remembered; a new one is known at once where nobody has asked for it before."""
    guard = Guard(connection, clock=clock)
    assert admit(guard, SECRET)
    connection.ask(c.RevokeToken(name="shop"))

    assert admit(guard, SECRET)
    clock.now_s += 1.0
    with pytest.raises(Unauthenticated):
        admit(guard, SECRET)


def test_tokens_hold_for_a_while_when_the_store_is_away(connection, clock, monkeypatch):
    """A short outage turns nobody away that was known; a long one does, and unknown ones at once."""
    guard = Guard(connection, clock=clock)
    assert admit(guard, SECRET)

    async def away(_asked):
        raise Unavailable("away")

    monkeypatch.setattr(connection, "ask_async", away)
    clock.now_s += GRACE_S - 1
    assert admit(guard, SECRET)
    with pytest.raises(Unavailable):
        admit(guard, secret_of("new", bytes(24)))
    clock.now_s += 1
    with pytest.raises(Unavailable):
        admit(guard, SECRET)


def test_a_client_asks_no_faster_than_its_rate(connection, clock):
    """Each token for itself; those without one by their address; on loopback nobody is counted."""
    guard = Guard(connection, clock=clock, rate=10)
    for _ in range(10):
        admit(guard, SECRET)

    with pytest.raises(RateLimited) as refused:
        admit(guard, SECRET)
    assert refused.value.after_s == pytest.approx(0.1)
    clock.now_s += 0.1
    admit(guard, SECRET)
    with pytest.raises(RateLimited):
        admit(guard, SECRET)
    for _ in range(100):
        admit(guard, None, loopback=True)


def test_a_flood_of_unknown_names_is_bounded(connection, monkeypatch):
    """What is remembered of them does not grow without end."""
    monkeypatch.setattr("holdfast.serve.guard.REMEMBERED", 8)
    guard = Guard(connection, rate=1_000_000)

    async def flood() -> None:
        for n in range(50):
            with pytest.raises(Unauthenticated):
                await guard.admit(secret_of(f"n{n}", bytes(24)), loopback=False, peer=f"10.0.0.{n}")

    asyncio.run(flood())
    assert len(guard._known) <= 8


def test_wrong_tokens_are_limited_and_logged(connection, clock, caplog):
    """By address, of IPv6 by network; the secret is not logged; a client whose token is known is served."""
    guard = Guard(connection, clock=clock)
    wrong = secret_of("shop", b"x" * 24)
    assert admit(guard, SECRET, peer="10.0.0.1")
    for n in range(WRONG_SECRETS):
        with pytest.raises(Unauthenticated):
            admit(guard, wrong if n % 2 else f"nonsense {n}", peer="10.0.0.1")

    for secret in (wrong, secret_of("new", bytes(24)), "nonsense"):
        with pytest.raises(RateLimited):
            admit(guard, secret, peer="10.0.0.1")
    assert admit(guard, SECRET, peer="10.0.0.1")
    with pytest.raises(Unauthenticated):
        admit(guard, wrong, peer="10.0.0.2")
    clock.now_s += 60 / WRONG_SECRETS
    with pytest.raises(Unauthenticated):
        admit(guard, wrong, peer="10.0.0.1")
    for n in range(WRONG_SECRETS):
        with pytest.raises(Unauthenticated):
            admit(guard, wrong, peer=f"ipv6:%5B2001:db8::{n:x}%5D")
    with pytest.raises(RateLimited):
        admit(guard, wrong, peer="2001:db8::ffff")

    assert "refused a wrong token from 10.0.0.1, of the name shop" in caplog.text
    assert len(caplog.records) == 2 * WRONG_SECRETS + 2
    assert wrong not in caplog.text
    assert wrong.rpartition("_")[2] not in caplog.text


def test_clients_are_not_told_where_the_store_is(clock, caplog):
    """They get the kind of the error and a number; the log has the rest, once a minute."""
    incidents = Incidents(clock)
    error = Unavailable("cannot reach postgresql://10.1.2.3/jobs: refused")

    told = [incidents.report(error), incidents.report(Unavailable(str(error)))]
    clock.now_s += INCIDENT_S
    told.append(incidents.report(error))
    unsettled = incidents.report(Unsettled("lost 10.1.2.3"))

    assert {type(one) for one in told} == {Unavailable}
    assert str(told[0]) == str(told[1]) != str(told[2])
    assert "10.1.2.3" not in f"{told}{unsettled!r}"
    assert isinstance(unsettled, Unsettled)
    assert "may have been committed" in str(unsettled)
    assert len(caplog.records) == 3
    number = str(told[0]).partition("(incident ")[2].rstrip(")")
    assert f"incident {number}: Unavailable: {error}" in caplog.text
    other = NotFound("job", 5)
    assert incidents.report(other) is other


def test_code_is_uploaded_over_loopback_only_where_nothing_confines_it(connection):
    """A URL is no code. If clients on loopback need a token, they may come from other machines."""
    python, url = (SetHandler(handler=Handler(task="t", lang=lang, body="x")) for lang in ("python", "http"))
    secret, reason = secret_of("owner", bytes(24)), "nothing confines it"
    connection.ask(
        c.CreateToken(token=Token(name="owner", tenant=None, scopes=tuple(Scope), hash=hash_of(secret)))
    )

    for refused, always, loopback in ((True, False, False), (True, True, True), (False, False, True)):
        grant = admit(Guard(connection, no_code=reason, always=always), secret, loopback=loopback)
        assert confine(grant, url) == url
        with pytest.raises(Forbidden, match=reason) if refused else nullcontext():
            confine(grant, python)


def test_a_known_token_does_not_wait_for_a_store_that_hangs(connection, clock, monkeypatch):
    """A second at most; clients that ask meanwhile share one lookup."""
    guard = Guard(connection, clock=clock)
    assert admit(guard, SECRET)
    asked = []

    async def hang(question, **_options):
        asked.append(question)
        await asyncio.Event().wait()

    monkeypatch.setattr(connection, "ask_async", hang)
    monkeypatch.setattr("holdfast.serve.guard.LOOKUP_S", 0.01)
    clock.now_s += 2

    async def admit_all():
        return await asyncio.gather(*(guard.admit(SECRET, loopback=False) for _ in range(10)))

    assert len(asyncio.run(admit_all())) == 10
    assert len(asked) == 1


def test_what_shows_secrets_at_the_port_needs_more_than_read(connection):
    """`QueryJob` and `Query` are not redacted."""
    port = PortGuard(Guard(connection), tenant="a", loopback=False)

    def allowed(*scopes):
        grant = Grant(tenant="a", scopes=scopes, name="t")
        return [verb for verb in ("QueryJob", "Query") if port._is_allowed(grant, verb)]

    assert allowed(Scope.READ, Scope.ADD) == []
    assert allowed(Scope.WORK) == ["QueryJob"]
    assert allowed(Scope.DATA) == allowed(Scope.MANAGE) == ["QueryJob", "Query"]


def test_a_server_hides_the_words_that_it_is_told(tmp_path):
    """`--hidden-words`, beside those that it knows."""
    try:
        ServerApp(Options(store=str(tmp_path / "jobs.db"), hidden_words="pin, -session"), print)

        assert redaction.redact({"pin": 1, "session": 2, "pwd": 3})[0] == {
            "pin": redaction.HIDDEN,
            "session": 2,
            "pwd": redaction.HIDDEN,
        }
    finally:
        redaction.configure()
