"""Sessions and forms of the dashboard: sign-in, when a session ends, and forms that are refused."""

from urllib.parse import parse_qs, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.access import SESSIONS_LOG
from holdfast.core.bounds import TOKEN_NAME_BYTES
from holdfast.queue.connect import store_maker
from holdfast.serve.dashboard.app import FORM_FIELDS, read_form
from holdfast.serve.dashboard.sessions import (
    COOKIE,
    SESSION_MS,
    EndedSessions,
    Sessions,
    SignIn,
    read_session,
)
from holdfast.serve.guard import WRONG_SECRETS
from tests.http.served import lines_of
from tests.http.test_dashboard import add, send, sign_in, token_of
from tests.queue_suite.tools import until

FORM_HEAD = (
    b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: %d\r\n\r\n"
)


def test_people_sign_in_with_a_token_and_out(serve):
    """Without a session a page leads to the sign-in; a wrong token is refused; a right one opens the page."""
    served = serve(token_always=True)
    secret = served.token("ops")
    with served.client() as client:
        away = client.get("/jobs?q=state:failed")
        wrong = [send(client, "/sign-in", "", token=one) for one in ("", "x", secret[:-1] + "x")]
        reply = send(client, "/sign-in", "", token=secret, next="/jobs")
        cookie = reply.headers["set-cookie"]
        value = cookie.partition(";")[0]
        inside = client.get("/jobs", Cookie=value)
        pushed = send(client, "/sign-out", "", {"Cookie": value, "Origin": "http://evil.example"})
        out = send(client, "/sign-out", "", {"Cookie": value})

    assert (away.status, away.headers["location"]) == (303, "/sign-in?next=%2Fjobs%3Fq%3Dstate%3Afailed")
    assert [one.status for one in wrong] == [401, 401, 401]
    assert (reply.status, reply.headers["location"]) == (303, "/jobs")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert secret not in cookie
    assert inside.status == 200
    assert (pushed.status, "set-cookie" in pushed.headers) == (403, False)
    assert "Max-Age=0" in out.headers["set-cookie"]


def test_a_copied_cookie_ends_with_the_sign_out(serve, tmp_path):
    """On this server at once, and within about a second on another with the same key and store."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    first, second = (serve(store_maker(url), token_always=True, session_key="k" * 32) for _ in range(2))
    secret = first.token("ops")
    with first.client() as here, second.client() as there:
        copied, other = sign_in(here, secret), sign_in(here, secret)
        assert there.get("/", Cookie=copied).status == 200

        send(here, "/sign-out", "", {"Cookie": copied})

        assert here.get("/", Cookie=copied).status == 303
        until(lambda: there.get("/", Cookie=copied).status == 303)
        assert there.get("/", Cookie=other).status == 200


def test_what_ended_sessions_leave_in_the_store_goes_with_their_time(served):
    """A sign-out forgets the sessions that have expired since."""
    ended = EndedSessions(served.connection)

    async def end_all() -> None:
        for n in range(10):
            await ended.end(SignIn("ops", n, f"mac {n}"), now_ms=n)

    served._run(end_all())
    page = served.connection.ask(q.ReadLog(log=SESSIONS_LOG, limit=100))

    assert (page.ends.head, page.ends.trimmed) == (10, 10)
    assert ended._hashes == set()


def test_wrong_tokens_at_the_sign_in_are_limited(serve):
    """As wrong tokens elsewhere: 429 after some."""
    served = serve(token_always=True)
    with served.client() as client:
        statuses = [send(client, "/sign-in", "", token=f"wrong {n}").status for n in range(WRONG_SECRETS + 1)]

    assert statuses == [401] * WRONG_SECRETS + [429]


def test_sign_in_leads_to_no_other_site(serve):
    """An address of another site as the page to go to is not followed."""
    served = serve(token_always=True)
    secret = served.token("ops")
    with served.client() as client:
        for there in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
            reply = send(client, "/sign-in", "", token=secret, next=there)

            assert reply.headers["location"] == "/"


def test_sessions_end_with_their_token_and_their_time(serve):
    """Forged, expired, of another key, of a revoked or replaced token: all lead to the sign-in."""
    served = serve(token_always=True)
    secret = served.token("ops")
    ask = served.connection.ask
    kept = ask(q.FindToken(name="ops"))
    now_ms = ask(q.GetTime())
    with served.client() as client:
        good = sign_in(client, secret)
        name, expires, mac = good.partition("=")[2].strip('"').split("~")
        stranger = Sessions().open("ops", kept.hash, now_ms=now_ms).value
        forged = [
            f"{name}~{int(expires) + 1000}~{mac}",
            f"other~{expires}~{mac}",
            f"{name}~{expires}~{'0' * 64}",
            f"{name}~{expires}",
            f"{name}~{expires}~\xe9",
            stranger,
            "",
        ]
        refused = [client.get("/", Cookie=f"{COOKIE}={value}").status for value in forged]
        assert client.get("/", Cookie=good).status == 200
        ask(c.RevokeToken(name="ops"))
        served.token("ops")
        until(lambda: client.get("/", Cookie=good).status == 303)
    assert refused == [303] * len(forged)


def test_a_live_page_ends_with_its_token(serve):
    """It tells of no change after that."""
    served = serve(token_always=True)
    job_id = add(served)
    with served.client() as client, served.raw() as live:
        cookie = sign_in(client, served.token("ops"))
        head = f"GET /live?job={job_id} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n"
        live.sendall(head.encode())
        lines_of(live, lambda found: b"retry:" in found)
        served.connection.ask(c.RevokeToken(name="ops"))
        until(lambda: client.get("/", Cookie=cookie).status == 303)
        served.connection.ask(c.Update(job_id=job_id, priority=900))

        told = lines_of(live, lambda found: found.endswith(b"0\r\n\r\n"))

    assert b"UNAUTHENTICATED" in told
    assert b"changed" not in told


def test_a_cookie_with_a_name_that_no_token_has_is_no_session():
    """So the server neither looks such a name up nor remembers it."""
    for name in ("", "n" * (TOKEN_NAME_BYTES + 1), "a b", "\xe9"):
        assert read_session(f"{name}~1~mac") is None, name
    assert read_session("ops~1~mac") is not None


def test_a_form_without_a_token_is_not_read(serve):
    """The reply does not wait for it; the form of a sign-in is small."""
    served = serve(token_always=True)
    for path, status in (("/jobs/1/cancel", b"401"), ("/jobs/bulk", b"401"), ("/sign-in", b"413")):
        with served.raw() as sock:
            sock.sendall(FORM_HEAD % (path.encode(), 40 << 20))

            assert sock.recv(65536).startswith(b"HTTP/1.1 " + status), path


def test_a_form_with_too_many_fields_is_refused(served):
    """With the reason."""
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    with served.client() as client:
        action = client.ask("POST", "/jobs/bulk", b"a=1&" * (FORM_FIELDS + 1), kind)

    assert action.status == 400
    assert b"at most 20,000" in action.body


@pytest.mark.parametrize("path", ["/jobs/1/cancel", "/sign-in"])
def test_a_client_that_goes_away_within_its_form_is_no_error(served, caplog, path):
    """Nothing is logged."""
    with served.raw() as sock:
        sock.sendall(FORM_HEAD % (path.encode(), 100) + b"token=")
        until(lambda: bool(served.service._state.tasks))
    until(lambda: not served.service._state.tasks)

    assert caplog.records == []


def test_a_session_is_over_after_its_time():
    """Twelve hours, to the millisecond."""
    sessions = Sessions(b"k" * 32)
    session = sessions.open("ops", "hash", now_ms=1_000)

    assert sessions.holds(session, "hash", now_ms=1_000 + SESSION_MS - 1)
    assert not sessions.holds(session, "hash", now_ms=1_000 + SESSION_MS)
    assert not sessions.holds(session, "other", now_ms=1_000)


def test_a_form_of_one_session_is_refused_in_another(serve):
    """Two people are signed in; the form of one does nothing for the other."""
    served = serve(token_always=True)
    job_id = add(served)
    with served.client() as client:
        first, second = sign_in(client, served.token("a")), sign_in(client, served.token("b"))
        token = token_of(client.get(f"/jobs/{job_id}", Cookie=first).body.decode())
        other = send(client, f"/jobs/{job_id}/delete", token, {"Cookie": second})
        own = send(client, f"/jobs/{job_id}/delete", token, {"Cookie": first})

    assert (other.status, own.status) == (403, 303)


def test_a_cookie_of_another_server_does_not_lock_out_where_no_token_is_needed(served, client, serve):
    """A browser sends it to all ports of a machine; where tokens are needed it leads to the sign-in page."""
    stale = {"Cookie": f"{COOKIE}=old~9999999999999~00"}
    job_id = add(served)
    page = client.ask("GET", f"/jobs/{job_id}", headers=stale)
    cancelled = send(client, f"/jobs/{job_id}/cancel", token_of(page.body.decode()), stale)
    with serve(token_always=True).client() as other:
        refused = other.ask("GET", "/", headers=stale)

    assert (page.status, cancelled.status, refused.status) == (200, 303, 303)
    assert cancelled.headers["location"] == f"/jobs/{job_id}?done=cancel"
    assert refused.headers["location"].startswith("/sign-in")


@given(st.lists(st.tuples(st.text(), st.text())))
def test_a_form_is_read_as_a_browser_wrote_it(fields):
    """Whatever is in it, a sign of an escape too."""
    sent = urlencode(
        [(name.encode(errors="replace"), text.encode(errors="replace")) for name, text in fields]
    )

    assert read_form(sent.encode()) == parse_qs(sent, keep_blank_values=True)
