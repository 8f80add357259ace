"""The options of a task hold for all of its jobs, also for those that were added where it is not known."""

from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core.defaults import FOLLOWED, Defaults, source_of
from holdfast.core.errors import BadInput
from holdfast.core.job import Backoff, Job, State
from holdfast.core.kinds import TASK, name_of
from holdfast.core.queries import GetJob, ListDefaults, Query
from holdfast.engine.batch.task_defaults import FRESH_MS, read_published
from holdfast.queue.queue import Queue
from holdfast.store.contract import Changes
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS, MakeQueue
from .hands import Port
from .tools import HOUR_MS, MINUTE_MS, ask, take, upkeep


def work() -> None:
    """Nothing."""


def worker_of(make_queue: MakeQueue, name: str = "work", **options: Any) -> Queue:
    """A process that knows a task."""
    queue = make_queue()
    queue.task(name, **options)(work)
    return queue


def published(queue: Queue) -> dict[Any, Defaults]:
    """What the store of a queue has."""
    return queue.connection.engine.read(read_published)


def test_a_job_that_was_added_where_its_task_is_unknown_follows_its_options(
    queue: Queue, make_queue: MakeQueue
) -> None:
    """All that can still be decided when it is claimed."""
    added = queue.add("work")
    options: Any = {"attempts": 3, "losses": 2, "timeout": "10s", "backoff": "5s", "expires": "1h"}
    options |= {"repeat": "FINISHED, +1 HOUR", "then": "next", "when_child_fails": "wait"}

    claimed = take(worker_of(make_queue, **options)).record

    assert (claimed.id, claimed.max_attempts, claimed.max_losses) == (added.id, 3, 2)
    assert (claimed.timeout_ms, claimed.backoff) == (10_000, Backoff(first_ms=5_000))
    assert (claimed.repeat, claimed.then) == ("FINISHED, +1 HOUR", '{"task":"next"}')
    assert (claimed.wait_for_failed, claimed.expires_at) == (True, START_MS + HOUR_MS)
    assert queue.get(added) == claimed


def test_the_limits_of_a_task_hold_for_a_job_that_was_added_where_it_is_unknown(
    queue: Queue, make_queue: MakeQueue, clock: MovedClock
) -> None:
    """Its `timeout` ends the lease, its `attempts` the tries."""
    worker = worker_of(make_queue, timeout="10s", attempts=2, backoff="1s")
    added = queue.add("work")

    job = take(worker, lease="1h")
    assert job.record.lease_until == START_MS + 10_500
    job.done(error="no")
    clock.advance(MINUTE_MS)
    take(worker).done(error="no")

    assert queue.get(added).state == State.FAILED


def test_a_job_waits_as_long_as_its_task_says_between_two_runs(
    queue: Queue, make_queue: MakeQueue, clock: MovedClock
) -> None:
    """By the `retry_after` that its caller has not given."""
    worker = worker_of(make_queue, retry_after="30s")
    added = queue.add("work")
    assert take(worker).record.lease_until == START_MS + 30_000
    assert queue.get(added).state == State.RUNQUEUED

    clock.advance(31_000)
    upkeep(worker)

    assert (queue.get(added).state, take(worker).id) == (State.RUNQUEUED, added.id)


def test_what_the_caller_gave_stays_also_where_it_is_the_usual_value(
    queue: Queue, make_queue: MakeQueue
) -> None:
    """Whoever says ten attempts, or no limit of time, gets them."""
    worker = worker_of(make_queue, attempts=3, timeout="10s", losses=2)
    queue.add("work", attempts=10, timeout=0)

    claimed = take(worker).record

    assert (claimed.max_attempts, claimed.timeout_ms, claimed.max_losses) == (10, 0, 2)


def test_a_claim_where_the_task_is_unknown_follows_what_was_published(
    queue: Queue, make_queue: MakeQueue
) -> None:
    """By any process that claims."""
    worker = worker_of(make_queue, timeout="10s", attempts=3)
    worker.claim()
    queue.add_many([("work", n) for n in range(3)])

    claimed = queue.claim(limit=3, renew=False)

    assert [(job.record.timeout_ms, job.record.max_attempts) for job in claimed] == [(10_000, 3)] * 3


def test_the_newest_registration_of_a_task_wins(
    queue: Queue, make_queue: MakeQueue, clock: MovedClock
) -> None:
    """Jobs that wait follow it too; in the process that published it at once, in others seconds later."""
    old = worker_of(make_queue, attempts=3)
    queue.add("work")
    assert take(old).record.max_attempts == 3

    old.tasks["work"].add()
    assert take(worker_of(make_queue, attempts=4)).record.max_attempts == 4

    clock.advance(FRESH_MS)
    queue.add("work")
    assert take(old).record.max_attempts == 4


def test_a_task_without_options_takes_back_what_it_has_published(make_queue: MakeQueue) -> None:
    """Nothing remains in the store."""
    worker_of(make_queue, attempts=3).claim()
    queue = worker_of(make_queue)
    assert published(queue) == {("", "work"): Defaults(max_attempts=3)}

    queue.claim()

    assert published(queue) == {}


def test_what_is_published_already_is_not_written_again(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that starts only reads; nor does a second claim read."""
    worker_of(make_queue, attempts=3).claim()
    asked: list[c.Command | Query] = []
    queue = worker_of(make_queue, attempts=3)
    line = queue.connection
    real = line.ask

    def ask_and_note(command: c.Command | Query, **rest: Any) -> Any:
        asked.append(command)
        return real(command, **rest)

    monkeypatch.setattr(line, "ask", ask_and_note)

    queue.claim()
    queue.claim()

    assert [type(command) for command in asked] == [ListDefaults, c.Claim, c.Claim]


def test_tenants_have_defaults_of_their_own(make_queue: MakeQueue) -> None:
    """A record for all of them is for those that have none."""
    mine, other = make_queue(tenant="acme"), make_queue(tenant="zeta")
    ask(mine, c.Publish(tasks=(("acme", "work", Defaults(max_attempts=2)),)))
    ask(mine, c.Publish(tasks=((None, "work", Defaults(max_attempts=5)),)))
    for queue in (mine, other):
        queue.add("work")

    assert (take(mine).record.max_attempts, take(other).record.max_attempts) == (2, 5)


NAN = Backoff(first_ms=1, most_ms=2, jitter=float("nan"))
LONG = Backoff(first_ms=1 << 62, most_ms=1 << 62)


@pytest.mark.parametrize(
    "defaults",
    [
        Defaults(max_attempts=-1),
        Defaults(timeout_ms=-5),
        Defaults(retry_after="garbage"),
        Defaults(repeat="garbage"),
        Defaults(expires_in_ms=(1 << 63) - 1),
        Defaults(backoff=NAN),
        Defaults(backoff=LONG),
        Defaults(then="}{"),
        Defaults(then='{"task":"next","id":5}'),
        Defaults(then='{"task":"next","data":"}{"}'),
        Defaults(then='{"task":"next"}' + " " * 65_536),
        Defaults(then='{"task":"t","then":' * 1_500 + "null" + "}" * 1_500),
    ],
)
def test_defaults_that_no_job_may_have_are_refused(queue: Queue, defaults: Defaults) -> None:
    """Claims fill them in, also those of other tenants."""
    with pytest.raises(BadInput):
        ask(queue, c.Publish(tasks=(("", "work", defaults),)))

    assert published(queue) == {}


@pytest.mark.parametrize(
    "row", [b"}{", b'{"backoff":{"jitter":null}}', b'{"expires_in_ms":9223372036854775807}']
)
def test_defaults_that_cannot_be_read_do_not_stop_claims(queue: Queue, row: bytes) -> None:
    """They are as if not published; a worker that starts replaces them."""
    store = queue.connection.store.shards[0]
    store.run(lambda _: (Changes(rows={(TASK, name_of("", "work")): row}), None))
    queue.add("work")

    assert take(queue).record.max_attempts == 10
    assert queue.connection.ask(ListDefaults()) == []
    ask(queue, c.Publish(tasks=(("", "work", Defaults(max_attempts=3)),)))
    assert published(queue) == {("", "work"): Defaults(max_attempts=3)}


def test_a_job_of_the_port_follows_what_the_documents_leave_open(queue: Queue, make_queue: MakeQueue) -> None:
    """All but `retry_after` and `repeat`, whose absence the documents define. Not if it is claimed there."""
    options: Any = {"attempts": 3, "timeout": "10s", "losses": 1, "expires": "1h", "then": "more"}
    worker = worker_of(make_queue, retry_after="5s", repeat="HOURLY", **options)
    worker.claim()
    port = Port(queue)
    added = port.add(max_attempts=0)

    taken = port.take()
    assert taken is not None
    assert queue.get(taken).timeout_ms == 0
    port.release(added)
    job = take(worker).record

    found = (job.id, job.timeout_ms, job.max_attempts, job.max_losses, job.expires_at - job.created_at)
    assert found == (added, 10_000, 3, 1, HOUR_MS)
    assert (job.retry_after, job.repeat) == (0, "")
    assert {source_of(job, option) for option in options} == {"task"}


def test_a_job_of_the_port_is_tried_as_often_as_its_task_says(
    queue: Queue, make_queue: MakeQueue, clock: MovedClock
) -> None:
    """By a worker; a RetryJob at the port is no attempt."""
    worker = worker_of(make_queue, attempts=3)
    worker.claim()
    port = Port(queue)
    added = port.add(max_attempts=0)

    for _ in range(2):
        take(worker).retry(delay=0)
    for _ in range(5):
        assert port.take() is not None
        port.retry(added, counts=False)
        clock.advance(1000)
    take(worker).retry(delay=0)

    assert queue.get(added).reason == "gave up after 3 attempts: retry"


def test_a_job_of_the_port_with_a_retry_after_is_lost_as_often_as_the_documents_say(
    queue: Queue, make_queue: MakeQueue
) -> None:
    """Ten times, whatever its task says."""
    worker = worker_of(make_queue, losses=2)
    worker.claim()
    Port(queue).add(retry_after=60_000)

    job = take(worker).record

    assert (job.max_losses, source_of(job, "losses")) == (10, "default")


def test_a_job_of_the_port_has_the_follow_up_of_its_task(queue: Queue, make_queue: MakeQueue) -> None:
    """It gets the result."""
    worker = worker_of(make_queue, then="more")
    worker.claim()
    Port(queue).add()

    take(worker).done({"n": 7})

    assert take(queue, "more").data == {"n": 7}


def test_jobs_that_have_what_their_task_says_are_claimed_as_plain_ones(make_queue: MakeQueue) -> None:
    """Without a second write: the claim is the second version of the record, not the third."""
    worker = worker_of(make_queue, attempts=3)
    added = worker.tasks["work"].add()
    take(worker)

    assert worker.get(added).version == 2


def test_it_is_told_where_an_option_comes_from(queue: Queue, make_queue: MakeQueue) -> None:
    """Also before the job is claimed, and then of the job as it would run."""
    worker = worker_of(make_queue, timeout="10s", attempts=3)
    worker.claim()
    by_name, by_task = queue.add("work", attempts=10), worker.tasks["work"].add()

    def sources(job: Job) -> dict[str, str]:
        found = {option: source_of(job, option) for option in FOLLOWED}
        return {option: source for option, source in found.items() if source != "default"}

    expected = queue.connection.ask(GetJob(job_id=by_name.id, as_claimed=True))
    assert (expected.timeout_ms, sources(expected)) == (10_000, {"attempts": "given", "timeout": "task"})
    first, second = (job.record for job in worker.claim(limit=2, renew=False))
    assert (first.id, second.id) == (by_name.id, by_task.id)
    assert sources(first) == {"attempts": "given", "timeout": "task"}
    assert sources(second) == {"attempts": "task", "timeout": "task"}
