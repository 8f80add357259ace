"""The audit log: only what was done is in it, nobody can push it out, and it is bounded."""

import logging

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.access import OPERATORS_LOG, Scope
from holdfast.core.bounds import DAY_MS
from holdfast.core.indexed import LogItem
from holdfast.serve.dashboard import audit, sessions
from holdfast.store.common.clock import system_clock
from holdfast.store.memory.store import MemoryStore
from tests.http.test_dashboard import add, send, sign_in, token_of


def entries(served, log=OPERATORS_LOG):
    """What is in the log, oldest first."""
    page = served.connection.ask(q.ReadLog(log=log, limit=1000))
    return [msgspec.json.decode(row.body) for row in page.items]


@pytest.mark.parametrize("action", ["requeue", "cancel", "delete"])
def test_a_reader_writes_nothing_to_the_audit_log(serve, caplog, action):
    """Not by actions on many jobs either; a refused one is in the server's own log."""
    served = serve(token_always=True)
    job_id = add(served)
    reader, operator = served.token("reader", Scope.READ), served.token("operator")
    with served.client() as client, caplog.at_level(logging.INFO, logger="holdfast.audit"):
        cookie = sign_in(client, operator)
        csrf = token_of(client.get("/jobs", Cookie=cookie).body.decode())
        send(client, f"/jobs/{add(served)}/cancel", csrf, {"Cookie": cookie})
        cookie = sign_in(client, reader)
        csrf = token_of(client.get("/jobs", Cookie=cookie).body.decode())
        form = {"action": action, "q": "", "sure": "yes"}
        replies = [
            send(client, "/jobs/bulk", csrf, {"Cookie": cookie}, **form, **which)
            for which in ({"all": "yes"}, {"id": str(job_id)}, {"id": "1"})
        ]

    assert [reply.status for reply in replies] == [403] * 3
    assert [one["action"] for one in entries(served)] == ["cancel"]
    refused = [msgspec.json.decode(one.message) for one in caplog.records if one.levelname == "WARNING"]
    assert [(one["who"], one["action"]) for one in refused] == [("reader", "refused: /jobs/bulk")] * 3


def test_an_action_that_changed_nothing_is_not_in_the_audit_log(served, client):
    """Jobs that are gone, or whose state does not allow it."""
    csrf = token_of(client.get("/limits").body.decode())

    replies = [
        send(client, "/jobs/bulk", csrf, action="cancel", id="12345"),
        send(client, "/jobs/12345/cancel", csrf),
        send(client, f"/jobs/{add(served)}/requeue", csrf),
    ]

    assert [reply.status for reply in replies] == [303, 404, 409]
    assert entries(served) == []


def test_the_audit_log_is_kept_by_age_not_by_number(serve):
    """However many come later, an entry stays for its time; then it goes."""
    now = [system_clock()]
    served = serve(lambda: MemoryStore(clock=lambda: now[0]))
    old = msgspec.json.encode(audit.Action(at=now[0], who="operator", action="old")).decode()
    served.connection.ask(c.Append(log=OPERATORS_LOG, items=(LogItem(data=old),) * 1500))
    with served.client() as client:

        def cancel():
            csrf = token_of(client.get("/limits").body.decode())
            assert send(client, f"/jobs/{add(served)}/cancel", csrf).status == 303

        now[0] += audit.KEPT_MS - DAY_MS
        cancel()
        before = served.connection.ask(q.ReadLog(log=OPERATORS_LOG)).ends
        now[0] += 2 * DAY_MS
        cancel()
        after = served.connection.ask(q.ReadLog(log=OPERATORS_LOG)).ends

    assert (before.trimmed, before.head) == (0, 1501)
    assert (after.trimmed, after.head) == (1500, 1502)


def test_one_session_cannot_fill_the_audit_log(serve, monkeypatch):
    """Past its number of actions it is refused until later: nothing is done without an entry."""
    monkeypatch.setattr(sessions, "MOST_ACTIONS", 3)
    served = serve(token_always=True)
    jobs = [add(served) for _ in range(5)]
    with served.client() as client:
        cookies = [sign_in(client, served.token(name)) for name in ("busy", "other")]
        statuses = []
        for cookie, job_id in zip([cookies[0]] * 4 + [cookies[1]], jobs, strict=True):
            csrf = token_of(client.get("/jobs", Cookie=cookie).body.decode())
            statuses.append(send(client, f"/jobs/{job_id}/delete", csrf, {"Cookie": cookie}).status)

    assert statuses == [303, 303, 303, 429, 303]
    assert [one["who"] for one in entries(served)] == ["busy"] * 3 + ["other"]
    assert served.connection.ask(q.GetJob(job_id=jobs[3])).id == jobs[3]


@pytest.mark.parametrize(
    "raw",
    ["not json", "{}", '{"at": 1e300, "who": "x", "action": "y"}', "[1]", b"\xff\x00"]
    + ['{"at": 9000000000000000000, "who": "x", "action": "y"}', '{"at": 1, "who": 7, "action": "y"}'],
)
def test_a_foreign_entry_does_not_break_the_settings(served, client, raw):
    """It is shown as what it is, beside the others."""
    csrf = token_of(client.get("/limits").body.decode())
    send(client, f"/jobs/{add(served)}/cancel", csrf)
    served.connection.ask(c.Append(log=OPERATORS_LOG, items=(LogItem(data=raw),)))

    page = client.get("/settings")

    assert page.status == 200
    assert "not written by the dashboard" in page.body.decode()
    assert '<td data-label="Action">cancel</td>' in page.body.decode()


def test_a_server_counts_the_actions_of_now():
    """What it remembers of tokens does not grow with time."""
    budget = sessions.ActionBudget()

    for at in range(5):
        budget.spend(f"token-{at}", now_ms=at * sessions.SESSION_MS)

    assert len(budget) == 1
