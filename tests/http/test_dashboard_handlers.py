"""The pages of handlers and of the journal, over HTTP."""

import asyncio

import pytest

from holdfast.core import commands as c
from holdfast.core.access import Scope
from holdfast.core.errors import NotFound
from holdfast.core.handler import GetHandler, Handler, RunnerOptions, SetHandler
from holdfast.journal.connection import JournalMaker
from holdfast.queue.queue import Queue
from holdfast.serve.config import Options
from holdfast.serve.dashboard import view
from holdfast.serve.service import ListenAddress
from tests.http.test_dashboard import send, sign_in, token_of
from tests.journal.test_queue import Away
from tests.queue_suite.tools import until

BODY = "print('seen')\nreturn {'sum': data['a'] + data['b']}\n"


def latest(served, task="add", tenant=""):
    """The newest version of a handler."""
    return served.connection.ask(GetHandler(task=task, tenant=tenant))


def test_a_handler_is_edited_rolled_back_and_deleted(served):
    """Each is a new version or none, and the audit log tells; limits and scripts are kept as set."""
    with served.client() as client:
        token = token_of(client.get("/handler").body.decode())
        first = {"task": "add", "lang": "python", "body": BODY}
        replies = [
            send(client, "/handlers/set", token, **first),
            send(client, "/handlers/set", token, **first, before="import os", timeout="5s", memory_mb="64"),
        ]
        second = latest(served)
        page = client.get("/handler?task=add&version=1").body.decode()
        replies.append(send(client, "/handlers/rollback", token, task="add", version="1"))
        third = latest(served)
        replies.append(send(client, "/handlers/delete", token, task="add"))
        audit = client.get("/settings").body.decode()

    assert [reply.status for reply in replies] == [303] * 4
    assert (second.version, second.body, second.before) == (2, BODY, "import os")
    assert (second.options.timeout_ms, second.options.memory_mb) == (5_000, 64)
    assert "python, version 1" in page
    assert (third.version, third.restores, third.before) == (3, 1, "")
    with pytest.raises(NotFound):
        latest(served)
    assert all(f"{verb} handler" in audit for verb in ("set", "roll back", "delete"))


def test_a_draft_is_tried_without_being_saved(serve):
    """It gets the sample data; its result, log and error are shown, and no version is made."""
    served = serve(handlers=True)
    served.connection.ask(SetHandler(handler=Handler(task="add", lang="python", body="return 1")))
    draft = {"task": "add", "lang": "python", "body": BODY}
    with served.client() as client:
        token = token_of(client.get("/handler?task=add").body.decode())
        good = send(client, "/handlers/try", token, **draft, sample='{"a": 2, "b": 40}').body.decode()
        bad = send(client, "/handlers/try", token, **draft, sample='{"a": "<b>"}').body.decode()

    assert "seen" in good
    assert "42" in good
    assert "KeyError" in bad
    assert "<b>" not in bad
    assert latest(served).version == 1


def test_a_trial_does_not_last_as_long_as_its_author_likes(monkeypatch):
    """Neither do the scripts around its job: few trials run at once, for all tenants."""
    monkeypatch.setattr(view, "TRIAL_MS", 300)
    options = RunnerOptions(timeout_ms=3_600_000)
    slow = Handler(
        task="add", lang="python", body=BODY, before_each="import time\ntime.sleep(3600)", options=options
    )

    result = asyncio.run(view.HandlerTrials().run(slow, b"{}"))

    assert (result.exit_code, result.error.partition(":")[0]) == (500, "TIMEOUT")


@pytest.mark.parametrize(
    ("http", "token_always", "reached"),
    [("127.0.0.1", False, True), ("127.0.0.1", True, False), ("0.0.0.0", False, False)],
)
def test_private_hosts_are_for_users_of_this_machine(http, token_always, reached):
    """A server that always asks for a token may be behind a proxy, and its clients anywhere."""
    options = Options(store="jobs.db", http=ListenAddress(http, 80), token_always=token_always)

    assert options.private_hosts is reached


def test_scripts_are_for_clients_with_the_scope(serve):
    """A manager without `handlers` sees the versions, and no script; it can set, try and delete nothing."""
    served = serve(token_always=True, handlers=True)
    secret_code = Handler(task="add", lang="python", body="SECRET = 1", tenant="a")
    served.connection.ask(SetHandler(handler=secret_code))
    with served.client() as client:
        manager = sign_in(client, served.token("m", Scope.READ, Scope.MANAGE, tenant="a"))
        other = sign_in(client, served.token("b", tenant="b"))
        page = client.get("/handler?task=add", Cookie=manager).body.decode()
        foreign = client.get("/handler?task=add", Cookie=other)
        fields = {"task": "add", "lang": "python", "body": BODY, "sample": "{}"}
        refused = [
            send(client, f"/handlers/{verb}", token_of(page), {"Cookie": manager}, **fields).status
            for verb in ("set", "try", "rollback", "delete")
        ]
        listed = client.get("/handlers", Cookie=other).body.decode()

    assert "Versions of add" in page
    assert "SECRET" not in page
    assert refused == [403] * 4
    assert foreign.status == 404
    assert "No stored handlers" in listed


def test_handlers_are_not_run_where_the_server_runs_none(served):
    """`holdfast dashboard` and a dashboard in another application: no trial."""
    with served.client() as client:
        page = client.get("/handler").body.decode()
        reply = send(
            client, "/handlers/try", token_of(page), task="add", lang="python", body=BODY, sample="{}"
        )

    assert "holdfast handler run" in page
    assert reply.status == 400


def test_the_journal_is_shown_while_the_store_is_away(tmp_path, serve):
    """How many jobs wait, and why; once the store is back, that all of them are there."""
    away = Away(str(tmp_path / "jobs.db"))
    away.is_away = False
    maker = JournalMaker(away, tmp_path / "j")
    # The first id comes from the store.
    with Queue(maker, url="store") as queue:
        queue.add("first")
    away.is_away = True
    served = serve(maker)
    served.connection.ask(c.Add(jobs=tuple(c.NewJob(task="kept") for _ in range(3))))
    with served.client() as client:
        until(served.connection.find_outage)
        shown_away = client.get("/journal").body.decode()
        away.is_away = False
        until(lambda: served.connection.journal.is_empty)
        until(lambda: not served.connection.find_outage())
        shown = client.get("/journal").body.decode()

    assert "The store cannot be used: the store is away" in shown_away
    assert "<strong>3</strong>" in shown_away
    assert "All jobs are in the store" in shown
    assert "<strong>3</strong>" not in shown
    assert "Ingested up to" in shown


def test_the_journal_concerns_all_tenants(serve):
    """A client of one tenant does not see it; without one the page says how to use one."""
    served = serve(token_always=True)
    with served.client() as client:
        tenant = sign_in(client, served.token("a", tenant="a"))
        every = sign_in(client, served.token("all", Scope.READ))
        refused = client.get("/journal", Cookie=tenant)
        page = client.get("/journal", Cookie=every).body.decode()

    assert refused.status == 403
    assert "--journal" in page
