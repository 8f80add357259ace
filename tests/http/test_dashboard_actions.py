"""What the dashboard offers for a job in each state, and what it does if the state has changed meanwhile."""

import re
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.job import Code, Place, State
from tests.http.test_dashboard import add, send, token_of

HOUR_MS = 3_600_000


def running(served, task="resize", **options):
    """A job that a worker holds."""
    job_id = add(served, task, **options)
    (claimed,) = served.connection.ask(c.Claim(tasks=(task,), lease_ms=600_000))
    assert claimed.job.id == job_id
    return claimed.job


def failed(served, **options):
    """A job that has failed for good."""
    job = running(served, max_attempts=1, **options)
    served.connection.ask(c.Answer(hold=c.hold_of(job), code=Code.ERROR, error="ValueError: bad"))
    return job


def finished(served):
    """A job that has ended well."""
    job = running(served)
    served.connection.ask(c.Answer(hold=c.hold_of(job)))
    return job


def family(served):
    """A parent that waits for its child."""
    job = running(served)
    hold = c.hold_of(job)
    served.connection.ask(c.Add(jobs=(c.NewJob(task="child", parent_id=job.id),), hold=hold))
    served.connection.ask(c.Answer(hold=hold))
    return job


def offered(page):
    """What a job's page offers, in order."""
    (actions,) = re.findall(r'<div class="actions">(.*?)</div>', page, re.DOTALL) or [""]
    return re.findall(r"<(?:button|a)\b[^>]*>([^<]+)</", actions)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda served: served.connection.ask(q.GetJob(job_id=add(served))), ["Edit", "Cancel", "Delete"]),
        (
            lambda served: served.connection.ask(q.GetJob(job_id=add(served, delay_ms=HOUR_MS))),
            ["Run now", "Edit", "Cancel", "Delete"],
        ),
        (running, ["Cancel", "Force cancel", "Requeue"]),
        (family, []),
        (failed, ["Retry", "Edit and retry", "Cancel", "Delete"]),
        (finished, ["Delete"]),
    ],
    ids=("ready", "scheduled", "running", "paused", "failed", "finished"),
)
def test_a_job_offers_what_its_state_allows(served, client, make, wanted):
    """And nothing that would be refused, or that would run a job a second time beside itself."""
    job = make(served)

    page = client.get(f"/jobs/{job.id}").body.decode()

    assert offered(page) == wanted


@pytest.mark.parametrize(
    ("tab", "wanted"),
    [
        ("", ["cancel"]),
        ("ready", ["cancel", "delete"]),
        ("scheduled", ["requeue", "cancel", "delete"]),
        ("running", ["cancel"]),
        ("failed", ["requeue", "cancel", "delete"]),
        ("finished", ["delete"]),
    ],
)
def test_a_list_offers_what_its_states_allow(served, client, tab, wanted):
    """For all of its jobs: nothing that ends the claim of a running one."""
    for make in (finished, failed, running, add):
        make(served)
    add(served, delay_ms=HOUR_MS)

    page = client.get(f"/jobs?q=state:{tab}" if tab else "/jobs").body.decode()

    assert re.findall(r'name="action" value="(\w+)"', page) == wanted


def test_a_running_job_is_requeued_only_after_a_question(served, client):
    """The question says what happens; until it is answered the job runs under the same claim."""
    job = running(served)
    csrf = token_of(client.get(f"/jobs/{job.id}").body.decode())

    asked = send(client, f"/jobs/{job.id}/requeue", csrf)
    before: Any = served.connection.ask(q.GetJob(job_id=job.id))
    done = send(client, f"/jobs/{job.id}/requeue", csrf, sure="yes")

    assert asked.status == 200
    assert "runs now" in asked.body.decode()
    assert "a second time" in asked.body.decode()
    assert (before.place, before.claim) == (Place.RUNNING, job.claim)
    assert done.status == 303
    assert served.connection.ask(q.GetJob(job_id=job.id)).place is Place.READY


def test_a_running_job_is_cancelled_by_force_only_after_a_question(served, client):
    """Cancel asks it to stop; Force cancel ends its claim."""
    job = running(served)
    csrf = token_of(client.get(f"/jobs/{job.id}").body.decode())

    stopping = send(client, f"/jobs/{job.id}/cancel", csrf)
    asked = send(client, f"/jobs/{job.id}/force_cancel", csrf)
    between: Any = served.connection.ask(q.GetJob(job_id=job.id))
    done = send(client, f"/jobs/{job.id}/force_cancel", csrf, sure="yes")

    assert (stopping.status, asked.status, done.status) == (303, 200, 303)
    assert between.cancel_requested
    assert between.place is Place.RUNNING
    assert served.connection.ask(q.GetJob(job_id=job.id)).state is State.CANCELLED


def test_what_a_state_does_not_allow_is_refused(served, client):
    """A form of a page from before the job changed: 409, and the job stays as it is."""
    jobs = {"ready": add(served, "first"), "finished": finished(served).id, "paused": family(served).id}
    runs = running(served, "second").id
    csrf = token_of(client.get("/jobs").body.decode())

    statuses = [
        send(client, f"/jobs/{job_id}/{verb}", csrf, sure="yes", data="{}").status
        for job_id, verb in (
            *((jobs["ready"], verb) for verb in ("requeue", "force_cancel")),
            *((jobs["finished"], verb) for verb in ("requeue", "cancel", "edit")),
            *((jobs["paused"], verb) for verb in ("requeue", "cancel", "delete", "edit")),
            *((runs, verb) for verb in ("delete", "edit")),
        )
    ]

    assert statuses == [409] * 11
    assert served.connection.ask(q.GetJob(job_id=runs)).place is Place.RUNNING


def test_many_jobs_are_retried_except_those_that_run(served, client):
    """Selected on a page from before one of them was claimed; the notice says how many were left out."""
    job, runs = failed(served), running(served)
    csrf = token_of(client.get("/jobs").body.decode())

    done = send(client, "/jobs/bulk", csrf, action="requeue", id=[str(job.id), str(runs.id), "12345"])
    page = client.get(done.headers["location"]).body.decode()

    assert served.connection.ask(q.GetJob(job_id=job.id)).place is Place.READY
    assert served.connection.ask(q.GetJob(job_id=runs.id)).claim == runs.claim
    assert served.connection.ask(q.GetJob(job_id=runs.id)).place is Place.RUNNING
    assert "Done. 1 job, 2 left as they are." in page


def test_an_edit_of_a_waiting_job_keeps_its_time(served, client):
    """A priority or data changes that alone: not when it runs, and not its attempts."""
    job_id = add(served, delay_ms=HOUR_MS, data='{"a": 1}')
    before: Any = served.connection.ask(q.GetJob(job_id=job_id))
    form = client.get(f"/jobs/{job_id}/edit").body.decode()

    done = send(client, f"/jobs/{job_id}/edit", token_of(form), data='{"a": 2}', priority="900")
    after: Any = served.connection.ask(q.GetJob(job_id=job_id))

    assert "keeps its time" in form
    assert done.status == 303
    assert (after.place, after.run_at, after.priority) == (Place.SCHEDULED, before.run_at, 900)
    assert served.connection.ask(q.GetData(job_id=job_id)) == '{"a": 2}'


def test_requeue_can_leave_a_running_job_alone(served):
    """`unless_running` is checked in the transaction that requeues, over every door."""
    job = running(served)

    with served.client() as client:
        reply = client.post(f"/v1/jobs/{job.id}/requeue", {"unless_running": True})

    assert reply.status == 409
    assert served.connection.ask(q.GetJob(job_id=job.id)).claim == job.claim
