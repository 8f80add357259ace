"""Each row of the documents' table of states, said in commands."""

import pytest

from holdfast.core import commands as c
from tests.queue_suite.tools import MINUTE_MS

NOT_OUT = "405 Can only retry/finish RUNNING and RUNQUEUED jobs"
NOT_OUT_TO_FAIL = "405 Can only fail RUNNING or RUNQUEUED jobs"
RUNNING = "405 Can't delete a RUNNING job"
WAITING = "405 Can't delete a parent jobs with children running"
UNSHARDED = "404 Invalid jobID - Cannot cancel a job without a parent"
PARENT = "404 Invalid jobID - Cannot cancel a job with children"
OK = "200 OK"


# ── into each state ──────────────────────────────────────────────────────────────────────────────


def queued(client, clock):
    """A job that waits."""
    return client.create()


def running(client, clock):
    """One that was handed out."""
    job_id = client.create()
    client.take()
    return job_id


def runqueued(client, clock):
    """One that was handed out with a retryAfter."""
    job_id = client.create(retryAfter="+1 MINUTE")
    client.take()
    return job_id


def failed(client, clock):
    """One that ended in vain."""
    job_id = running(client, clock)
    client.ok("FailJob", jobID=job_id)
    return job_id


def _family(client, clock):
    parent = client.create("parent")
    client.take("parent")
    children = [client.create("foo", parentJobID=parent), client.create("other", parentJobID=parent)]
    client.ok("FinishJob", jobID=parent)
    return parent, *children


def paused_parent(client, clock):
    """One that waits for its children."""
    return _family(client, clock)[0]


def paused_child(client, clock):
    """One that waits for its parent."""
    parent = client.create("parent")
    client.take("parent")
    return client.create(parentJobID=parent)


def queued_child(client, clock):
    """One whose parent has finished its run."""
    return _family(client, clock)[1]


def running_child(client, clock):
    """One of these that was handed out."""
    child = _family(client, clock)[1]
    client.take()
    return child


def finished_child(client, clock):
    """One that is done, beside a parent that waits for another."""
    child = running_child(client, clock)
    client.ok("FinishJob", jobID=child)
    return child


def cancelled_child(client, clock):
    """One that was cancelled."""
    child = queued_child(client, clock)
    client.ok("CancelJob", jobID=child)
    return child


def failed_child(client, clock):
    """One that ended in vain."""
    child = running_child(client, clock)
    client.ok("FailJob", jobID=child)
    return child


# ── what each command makes of it ────────────────────────────────────────────────────────────────

Q, R, RQ, P, FIN, FAIL, CAN = (
    *("QUEUED", "RUNNING", "RUNQUEUED", "PAUSED"),
    *("FINISHED", "FAILED", "CANCELLED"),
)
COMMANDS = ("GetJob", "FinishJob", "RetryJob", "FailJob", "CancelJob", "DeleteJob", "RequeueJobs")
_NO = [(NOT_OUT,), (NOT_OUT,), (NOT_OUT_TO_FAIL,)]

# From which state; for each command its status, and then the state, None for no trace, where it changes.
TABLE = {
    queued: (Q, (OK, R), *_NO, (UNSHARDED,), (OK, None), (OK, Q)),
    running: (R, (OK,), (OK, None), (OK, Q), (OK, FAIL), (UNSHARDED,), (RUNNING,), (OK, Q)),
    runqueued: (RQ, (OK,), (OK, None), (OK, Q), (OK, FAIL), (UNSHARDED,), (OK, None), (OK, Q)),
    failed: (FAIL, (OK,), *_NO, (UNSHARDED,), (OK, None), (OK, Q)),
    paused_parent: (P, (OK,), *_NO, (PARENT,), (WAITING,), (OK, Q)),
    paused_child: (P, (OK,), *_NO, (OK,), (WAITING,), (OK, Q)),
    queued_child: (Q, (OK, R), *_NO, (OK, CAN), (OK, None), (OK, Q)),
    running_child: (R, (OK,), (OK, FIN), (OK, Q), (OK, FAIL), (OK,), (RUNNING,), (OK, Q)),
    finished_child: (FIN, (OK,), *_NO, (OK,), (OK, None), (OK, Q)),
    cancelled_child: (CAN, (OK,), *_NO, (OK,), (OK, None), (OK, Q)),
    failed_child: (FAIL, (OK,), *_NO, (OK, CAN), (OK, None), (OK, Q)),
}


@pytest.mark.parametrize("start", TABLE, ids=lambda start: start.__name__)
def test_each_command_leads_from_each_state_where_the_table_says(client, clock, start):
    """And where it is refused, in the documents' words, the state is as it was."""
    before, *after = TABLE[start]

    for command, (status, *state) in zip(COMMANDS, after, strict=True):
        job_id = start(client, clock)
        assert client.state(job_id) == before
        if command == "GetJob":
            while client.status("GetJob", name="*") == OK:
                pass
        elif command == "RequeueJobs":
            assert client.status(command, jobIDs=job_id) == status
        else:
            assert client.status(command, jobID=job_id) == status, command
        assert client.state(job_id) == (state[0] if state else before), command
        client.ok("RequeueJobs", jobIDs=job_id)
        client.status("GetJobs", name="*", numResults="1000")


def test_a_job_with_a_retry_after_is_handed_out_again(client, clock, served):
    """RUNQUEUED stays RUNQUEUED, the counter goes up by one, and its holder may finish it."""
    job_id = client.create(retryAfter="+1 minute", data={"a": 1})
    first = client.take()
    assert (first["data"], first["retryAfter"]) == ({"a": 1}, "+1 minute")
    shown = client.ok("QueryJob", jobID=job_id)
    assert (shown["data"], shown["nextRun"]) == ({"a": 1, "retryAfterCount": 1}, "2026-11-15 13:01:00")
    assert client.status("GetJob", name="foo") == "404 No job found"

    clock.advance(MINUTE_MS)
    again = client.take()

    assert (again["jobID"], again["data"]) == (job_id, {"a": 1, "retryAfterCount": 1})
    assert again["nextRun"] == "2026-11-15 13:01:00"
    assert again["lastRun"] == "2026-11-15 13:00:00"
    assert client.ok("QueryJob", jobID=job_id)["data"]["retryAfterCount"] == 2
    client.ok("UpdateJob", jobID=job_id, data={"b": 2})
    assert client.ok("QueryJob", jobID=job_id)["data"] == {"b": 2, "retryAfterCount": 2}
    client.ok("RetryJob", jobID=job_id)
    assert client.ok("QueryJob", jobID=job_id)["data"] == {"b": 2}


@pytest.mark.parametrize(("name", "end"), [("foo", "FAILED"), ("manual/foo", "RUNQUEUED")])
def test_after_ten_hand_outs_without_a_word_a_job_is_failed(client, clock, served, name, end):
    """The eleventh finds nothing; but a name that begins with manual is tried for ever, and not counted."""
    job_id = client.create(name, retryAfter="+1 MINUTE")
    for _ in range(10):
        client.take(name)
        clock.advance(MINUTE_MS)
    served.upkeep()
    assert client.state(job_id) == end

    if end == "FAILED":
        assert client.status("GetJob", name=name) == "404 No job found"
        client.ok("RequeueJobs", jobIDs=job_id)
        assert client.take(name)["data"] == {"retryAfterCount": 10}
    else:
        assert client.take(name)["data"] == {}


def test_requeueing_may_forgive_a_hand_out(client, clock):
    """The counter is as it was, or one less; by name, too; and due since it was made."""
    job_id = client.create(retryAfter="+1 MINUTE")
    client.take()
    clock.advance(MINUTE_MS)
    client.take()

    client.ok("RequeueJobs", jobIDs=f"12345, {job_id}", name="bar")
    shown = client.ok("QueryJob", jobID=job_id)
    assert (shown["state"], shown["name"], shown["data"]) == ("QUEUED", "bar", {"retryAfterCount": 2})
    assert shown["nextRun"] == shown["created"]
    client.ok("RequeueJobs", jobIDs=str(job_id), decrementFailures="true")
    assert client.ok("QueryJob", jobID=job_id)["data"] == {"retryAfterCount": 1}
    client.ok("RequeueJobs", jobIDs="")
    client.ok("RequeueJobs")
    assert client.status("RequeueJobs", jobIDs="abc") == "402 Malformed jobIDs"


def test_after_a_requeue_next_run_is_created_as_it_is_printed(client, clock):
    """Both in whole seconds, whatever the job was when it was requeued."""
    clock.advance(250)
    waiting, handed_out = client.create("waiting"), client.create("taken")
    client.take("taken")
    clock.advance(MINUTE_MS)

    client.ok("RequeueJobs", jobIDs=f"{waiting},{handed_out}")

    for job_id in (waiting, handed_out):
        shown = client.ok("QueryJob", jobID=job_id)
        assert shown["nextRun"] == shown["created"] == "2026-11-15 13:00:00"
    (row,) = client.ok("Query", query=f"SELECT nextRun = created FROM jobs WHERE jobID = {waiting}")
    assert row == [1]


def test_a_retried_parent_is_due_from_the_second_it_was_retried_in(client, clock):
    """As printed: in the second in which it was made and handed out, all three times are the same."""
    clock.advance(250)
    parent = client.create("parent")
    client.take("parent")
    client.create(parentJobID=parent)

    client.ok("RetryJob", jobID=parent)

    shown = client.ok("QueryJob", jobID=parent)
    assert shown["nextRun"] == shown["lastRun"] == shown["created"] == "2026-11-15 13:00:00"
    assert client.take("parent")["jobID"] == parent


def test_a_parent_that_waited_for_its_children_is_due_since_its_last_run(client, clock):
    """`nextRun` is `lastRun` as printed, while it waits and when it is put back."""
    clock.advance(250)
    parent, first, second = _family(client, clock)
    shown = client.ok("QueryJob", jobID=parent)
    assert (shown["state"], shown["nextRun"]) == ("PAUSED", shown["lastRun"])

    clock.advance(MINUTE_MS)
    for child in (first, second):
        client.take("foo,other")
        client.ok("FinishJob", jobID=child)

    shown = client.ok("QueryJob", jobID=parent)
    assert (shown["state"], shown["nextRun"]) == ("QUEUED", shown["lastRun"])
    assert client.take("parent")["jobID"] == parent


@pytest.mark.one_shard
def test_requeueing_is_all_or_nothing(served, client):
    """One command for all of them; where one of them cannot go back, none does."""
    new = c.NewJob(task="foo", unique=b"k")
    (first,) = served.ask(c.Add(jobs=(new,)))
    others = [client.create() for _ in range(3)]
    for _ in range(4):
        client.ok("FailJob", jobID=client.take()["jobID"])
    (second,) = served.ask(c.Add(jobs=(new,)))
    numbers = ",".join(str(number) for number in (*others, first))

    assert client.status("RequeueJobs", jobIDs=numbers) == (
        "405 Cannot requeue: another job has its unique name"
    )
    assert {client.state(number) for number in (*others, first)} == {"FAILED"}

    client.ok("DeleteJob", jobID=second)
    client.ok("RequeueJobs", jobIDs=numbers)
    assert {client.state(number) for number in (*others, first)} == {"QUEUED"}


def test_requeueing_leaves_alone_what_is_over_or_of_another_tenant(served, client):
    """Without a word."""
    over = client.create()
    client.take()
    client.ok("FinishJob", jobID=over)
    (foreign,) = served.ask(c.Add(jobs=(c.NewJob(task="foo", tenant="other"),)))

    client.ok("RequeueJobs", jobIDs=f"{over},{foreign},-5", name="bar")

    assert client.state(over) is None
    assert client.status("GetJob", name="bar") == "404 No job found"
    assert served.committer.engine.read(lambda txn: txn.load([foreign]))[foreign].task == "foo"


def test_a_timeout_resets_a_job_that_runs_too_long(client, clock, served):
    """The documents' idea: `expires` is set when it starts, and past that it may run again."""
    job_id = client.create(timeout="60000")
    assert client.ok("QueryJob", jobID=job_id)["expires"] == ""
    client.take()
    shown = client.ok("QueryJob", jobID=job_id)
    assert (shown["state"], shown["expires"]) == ("RUNNING", "2026-11-15 13:01:00")
    assert client.status("GetJob", name="foo") == "404 No job found"

    clock.advance(MINUTE_MS)

    assert client.take()["jobID"] == job_id


def test_a_claim_without_retry_after_or_timeout_has_no_end(client, clock, served):
    """As documented; such a one is stuck until somebody requeues it."""
    client.create()
    client.take()
    clock.advance(365 * 24 * 60 * MINUTE_MS)
    served.upkeep()

    assert client.status("GetJob", name="foo") == "404 No job found"


def test_a_server_may_give_every_claim_an_end(serve, clock):
    """`--bedrock-timeout`."""
    served = serve(lease_ms=MINUTE_MS)
    with served.client() as client:
        job_id = client.create()
        client.take()
        clock.advance(MINUTE_MS)

        assert client.take()["jobID"] == job_id
