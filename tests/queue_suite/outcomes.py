"""How runs end: the four outcomes, attempts and losses, expiry, what follows, and results."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core.defaults import Defaults
from holdfast.core.errors import JobFailed, LeaseLost, NotFound, Timeout
from holdfast.core.job import Backoff, Code, State
from holdfast.queue.answers import Failed, Retry
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS, MakeQueue
from .tools import DAY_MS, HOUR_MS, MINUTE_MS, STEADY, ask, nothing, state_of, take, unchanged, upkeep

# ── four outcomes ────────────────────────────────────────────────────────────────────────────────


def _ends(queue: Queue, function: Callable[[], Any], **options: Any) -> Any:
    """The record of a job after one run of a task."""
    task = queue.task(name="work", **options)(function)
    added = task.add()
    take(queue, "work").run()
    return added.get()


def _raising(error: Exception) -> Callable[[], Any]:
    def work() -> None:
        raise error

    return work


def test_what_a_task_returns_is_ok(queue: Queue) -> None:
    """Exit code 200, and the result is what was returned."""
    job = _ends(queue, lambda: {"size": 7})

    assert (job.state, job.outcome.code, job.outcome.exit_code) == (State.FINISHED, Code.OK, 200)
    assert queue.result(job) == {"size": 7}


@pytest.mark.parametrize("way", ["raised", "returned"])
def test_failed_is_the_end(queue: Queue, way: str) -> None:
    """It is not tried again, however many attempts are left."""
    failed = Failed("no such image")
    job = _ends(queue, _raising(failed) if way == "raised" else lambda: failed, attempts=5)

    assert (job.state, job.reason) == (State.FAILED, "no such image")
    assert (job.outcome.code, job.outcome.exit_code) == (Code.FAILED, 400)


@pytest.mark.parametrize("way", ["raised", "returned"])
def test_retry_runs_again_after_its_delay(queue: Queue, way: str) -> None:
    """And spends an attempt."""
    again = Retry("30s", reason="not yet")
    job = _ends(queue, _raising(again) if way == "raised" else lambda: again)

    assert (job.state, job.attempts, job.run_at) == (State.QUEUED, 1, START_MS + 30_000)
    assert (job.outcome.code, job.outcome.exit_code, job.outcome.error) == (Code.RETRY, 100, "not yet")


def test_any_other_exception_is_an_error_and_runs_again(queue: Queue) -> None:
    """After the backoff, and what was raised is kept."""
    job = _ends(queue, _raising(ZeroDivisionError("by zero")), backoff=STEADY)

    assert (job.state, job.attempts, job.run_at) == (State.QUEUED, 1, START_MS + 1_000)
    assert (job.outcome.code, job.outcome.exit_code) == (Code.ERROR, 500)
    assert job.outcome.error == "ZeroDivisionError: by zero"
    assert "in work" in job.outcome.traceback


def test_an_unknown_task_is_no_answer(queue: Queue) -> None:
    """A queue that does not know the task says so, and the job is still held."""
    queue.add("strange")
    job = take(queue)

    with pytest.raises(NotFound, match="'strange' known to this queue"):
        job.run()

    assert (job.answered, state_of(queue, job.id)) == (False, State.RUNNING)


# ── attempts ─────────────────────────────────────────────────────────────────────────────────────


def _runs(queue: Queue, clock: MovedClock, answer: Callable[[ClaimedJob], Any], most: int = 20) -> int:
    """How often a job is run, if each run ends alike, however long it has to wait in between."""
    runs = 0
    while runs < most and (job := queue.next(["work"], renew=False)) is not None:
        runs += 1
        answer(job)
        clock.advance(2 * HOUR_MS)
    return runs


def test_five_attempts_are_five_runs_in_all(queue: Queue, clock: MovedClock) -> None:
    """Then the job is FAILED, and stays to be seen."""
    added = queue.add("work", attempts=5)

    assert _runs(queue, clock, lambda job: job.done(error="broke")) == 5

    job = added.get()
    assert (job.state, job.attempts) == (State.FAILED, 5)
    assert job.reason == "gave up after 5 attempts: broke"
    assert [end.error for end in job.errors] == ["broke"] * 5


@pytest.mark.parametrize(("attempts", "runs"), [(1, 1), (None, 10), (0, 20)])
def test_ten_attempts_are_the_default_and_none_is_no_limit(
    queue: Queue, clock: MovedClock, attempts: Any, runs: int
) -> None:
    """And one attempt is one run."""
    queue.add("work", attempts=attempts)

    assert _runs(queue, clock, lambda job: job.retry(), most=20) == runs


def test_a_retry_that_does_not_count_spends_no_attempt(queue: Queue, clock: MovedClock) -> None:
    """So a job may wait for something as often as it takes."""
    added = queue.add("work", attempts=2)

    assert _runs(queue, clock, lambda job: job.done(error=Retry(1, counts=False)), most=15) == 15
    assert (added.get().state, added.get().attempts) == (State.QUEUED, 0)


def test_the_wait_doubles_up_to_its_limit(queue: Queue, clock: MovedClock) -> None:
    """One second, two, four, and so on."""
    added = queue.add("work", backoff=Backoff(first_ms=1_000, most_ms=5_000, jitter=0.0))
    waits = []
    for _ in range(5):
        take(queue).done(error="broke")
        waits.append(added.get().run_at - clock())
        clock.advance(waits[-1])

    assert waits == [1_000, 2_000, 4_000, 5_000, 5_000]


def test_the_wait_is_spread_by_a_fifth(queue: Queue) -> None:
    """A thousand jobs that failed together do not come back together."""
    added = queue.add_many([("work", n) for n in range(50)])
    for job in queue.claim(limit=50, renew=False):
        job.done(error="broke")

    waits = {job.get().run_at - START_MS for job in added}

    assert len(waits) > 10
    assert 800 <= min(waits) < max(waits) <= 1_200


def test_a_delay_of_its_own_goes_before_the_backoff(queue: Queue) -> None:
    """Also one of nothing at all."""
    queue.add("work")

    take(queue).retry("0s")

    assert take(queue).attempt == 2


def test_a_run_that_went_well_forgives_what_came_before(queue: Queue, clock: MovedClock) -> None:
    """A repeating job has all its attempts and losses for each of its runs."""
    added = queue.add("work", repeat="FINISHED, +1 HOUR", backoff=STEADY)
    take(queue).done(error="broke")
    clock.advance(1_000)
    take(queue, lease=1)
    clock.advance(1_000)
    job = take(queue)
    assert (job.attempt, job.record.losses) == (2, 1)

    job.done()

    assert (added.get().attempts, added.get().losses) == (0, 0)


# ── losses ───────────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_kills_its_processes_is_quarantined(queue: Queue, clock: MovedClock) -> None:
    """After ten losses; it has spent no attempt, and waits for somebody to look at it."""
    added = queue.add("work")

    assert _runs(queue, clock, lambda _job: None) == 10

    upkeep(queue)
    job = added.get()
    assert (job.state, job.losses, job.attempts) == (State.FAILED, 10, 0)
    assert job.reason.startswith("quarantined")


def test_losses_have_a_limit_of_their_own(queue: Queue, clock: MovedClock) -> None:
    """Which a job may set, and which releases and attempts do not spend."""
    added = queue.add("work", losses=2, attempts=0)
    for answer in (ClaimedJob.release, ClaimedJob.retry, ClaimedJob.release):
        answer(take(queue))
        clock.advance(HOUR_MS)

    assert _runs(queue, clock, lambda _job: None) == 2
    assert added.get().state == State.FAILED


# ── expiry ───────────────────────────────────────────────────────────────────────────────────────


def test_an_expired_job_is_not_started(queue: Queue, clock: MovedClock) -> None:
    """From wherever it waits: due, later, or behind its domain. Not a millisecond before."""
    queue.limit("full", concurrency=0)
    jobs = [
        queue.add("work", expires="1m", priority=0),
        queue.add("work", expires="1m", delay="1h"),
        queue.add("work", expires="1m", domain="full"),
    ]
    clock.advance(MINUTE_MS - 1)
    take(queue).release()
    clock.advance(1)

    assert nothing(queue)

    assert [(job.get().state, job.get().reason) for job in jobs] == [(State.FAILED, "expired")] * 3


@pytest.mark.parametrize("ends", ["expired", "failed before"])
def test_an_operator_puts_back_a_job_whose_expiry_has_passed(
    queue: Queue, clock: MovedClock, ends: str
) -> None:
    """It runs: an expiry that has passed would end it at once, whatever default its task has by then."""
    added = queue.add("work", expires="1m")
    if ends == "failed before":
        take(queue).fail()
    clock.advance(MINUTE_MS)
    assert nothing(queue)
    ask(queue, c.Publish(tasks=((None, "work", Defaults(expires_in_ms=1_000)),)))

    queue.requeue(added)

    assert take(queue).done().state == State.FINISHED


def test_an_operator_who_puts_a_job_back_in_time_leaves_its_expiry(queue: Queue, clock: MovedClock) -> None:
    """It still counts."""
    added = queue.add("work", expires="1m")
    take(queue).fail()

    queue.requeue(added)

    clock.advance(MINUTE_MS)
    assert nothing(queue)
    assert added.get().reason == "expired"


def test_a_lost_job_that_has_expired_is_not_put_back(queue: Queue, clock: MovedClock) -> None:
    """It is over, and its holder is too late."""
    added = queue.add("work", expires="1m")
    job = take(queue)
    clock.advance(HOUR_MS)
    upkeep(queue)

    assert (added.get().state, added.get().reason) == (State.FAILED, "expired")
    with unchanged(queue), pytest.raises(LeaseLost, match=str(job.id)):
        job.done()


def test_a_job_that_expires_while_its_lease_stands_may_finish(queue: Queue, clock: MovedClock) -> None:
    """It was started in time."""
    added = queue.add("work", expires="1m")
    job = take(queue, lease="1h")
    clock.advance(2 * MINUTE_MS)
    upkeep(queue)

    job.done("late")

    assert added.result() == "late"


@pytest.mark.parametrize("wait_s", [59, 60])
def test_a_job_is_not_run_again_once_it_has_expired(queue: Queue, wait_s: int) -> None:
    """A retry that would come too late is none."""
    added = queue.add("work", expires="1m")

    take(queue).retry(wait_s)

    expected = (State.QUEUED, "") if wait_s < 60 else (State.FAILED, "expired")
    assert (added.get().state, added.get().reason) == expected


# ── what follows ─────────────────────────────────────────────────────────────────────────────────


def test_a_job_is_followed_by_another_that_gets_its_result(queue: Queue) -> None:
    """By task, by name, or by a prepared call with its options; and so on down the chain."""
    last = queue.call("last")
    queue.add("first", then=queue.call("second", priority=900, then=last))

    take(queue, "first").done({"n": 1})
    job = take(queue, "second")
    assert (job.data, job.record.priority) == ({"n": 1}, 900)
    job.done([1, 2])
    job = take(queue, "last")
    assert job.data == [1, 2]
    job.done()

    assert nothing(queue)


def test_what_follows_gets_null_where_there_is_no_result(queue: Queue) -> None:
    """And bytes where that is what was returned."""
    queue.add("first", then="second")
    take(queue, "first").done()
    assert take(queue, "second").data is None

    queue.add("first", then="third")
    take(queue, "first").done(b"\xff")
    assert take(queue, "third").data == b"\xff"


@pytest.mark.parametrize("end", ["fail", "cancel", "retry"])
def test_nothing_follows_a_job_that_did_not_go_well(queue: Queue, end: str) -> None:
    """FAILED, cancelled, or not over yet."""
    added = queue.add("first", then="second")
    job = take(queue)
    if end == "cancel":
        queue.cancel(added, force=True)
    else:
        getattr(job, end)()

    assert queue.jobs(task="second") == []


def test_a_parent_is_followed_once_its_children_have_ended(queue: Queue) -> None:
    """Not by the finish that only lets them run."""
    queue.add("parent", then="second")
    parent = take(queue)
    parent.add("child")
    parent.done("too early")
    assert queue.jobs(task="second") == []
    take(queue, "child").done()

    take(queue, "parent").done("in time")

    assert take(queue, "second").data == "in time"


# ── results ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": [1]}, "text", b"\x00\xff"], ids=repr)
def test_a_result_comes_back_as_it_was_given(queue: Queue, value: Any) -> None:
    """As long as the archive keeps it."""
    added = queue.add("work")

    take(queue).done(value)

    assert added.result() == value


def test_the_result_of_a_job_that_has_not_ended_is_a_timeout(queue: Queue) -> None:
    """Which names the job and how long was waited."""
    added = queue.add("work")

    with pytest.raises(
        Timeout, match=f"{added.id} has not ended within 0.01 s: .*No live worker knows the task"
    ):
        added.result(wait=0.01)
    with pytest.raises(Timeout):
        added.result()


def test_the_result_of_a_failed_job_is_its_failure(queue: Queue) -> None:
    """With its reason and its outcome."""
    added = queue.add("work")
    take(queue).fail("no such image")

    with pytest.raises(JobFailed, match="no such image") as raised:
        added.result()

    assert getattr(raised.value.outcome, "code", None) == Code.FAILED
    cancelled = queue.add("work")
    queue.cancel(cancelled)
    with pytest.raises(JobFailed, match="cancelled"):
        cancelled.result()


def test_a_queue_that_keeps_nothing_says_so(make_queue: MakeQueue) -> None:
    """With `retention=0` a result is gone with its job; a FAILED job stays."""
    queue = make_queue(retention=0)
    added, failed = queue.add("work"), queue.add("work")
    take(queue).done("gone")
    take(queue).fail("stays")

    with pytest.raises(NotFound, match=f"{added.id} .*retention has passed"):
        added.result()
    with pytest.raises(JobFailed):
        failed.result()
    assert queue.counts() == {"work": {"FAILED": 1}}


def test_a_retention_that_was_said_holds_for_all(make_queue: MakeQueue, clock: MovedClock) -> None:
    """What was said last, by anybody."""
    first, second = make_queue(retention="1h"), make_queue()
    added = first.add("work")
    take(second).done(1)
    clock.advance(HOUR_MS)
    upkeep(second)
    assert added.result() == 1

    clock.advance(1)
    upkeep(second)

    with pytest.raises(NotFound):
        added.result()


def test_the_retention_is_changed_while_it_is_used(make_queue: MakeQueue, clock: MovedClock) -> None:
    """From the next end on, for all; what is too old already goes with the next upkeep."""
    first, second = make_queue(), make_queue()
    assert first.retention() == timedelta(days=1)
    added = first.add("work")
    take(first).done(1)
    clock.advance(2 * HOUR_MS)

    first.set_retention("1h")
    upkeep(first)

    assert second.retention() == timedelta(hours=1)
    with pytest.raises(NotFound):
        added.result()
    second.set_retention(0)
    gone = second.add("work")
    take(second).done(1)
    with pytest.raises(NotFound):
        gone.result()


def test_a_job_that_never_was_has_no_result(queue: Queue, clock: MovedClock) -> None:
    """Nor one whose retention has passed; the error says which it may be."""
    with pytest.raises(NotFound, match="it never was, was deleted, or its retention has passed"):
        queue.result(12345)
    added = queue.add("work")
    take(queue).done(1)
    clock.advance(DAY_MS + 1)
    upkeep(queue)

    with pytest.raises(NotFound, match=str(added.id)):
        added.result(wait=1)
