"""What the job-command port says that no other door does: verbs with a new name, with mercy, by pattern."""

import pytest

from holdfast.core import commands as c
from holdfast.core.checks import check_command
from holdfast.core.errors import BadInput, LeaseLost, NotFound, Refused, TooLarge
from holdfast.core.ids import PORT_SYSID
from holdfast.core.job import Job, Place, State
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS
from .hands import Port
from .tools import HOUR_MS, MINUTE_MS, ask, ask_all, take, unchanged, upkeep


def _taken(port: Port, task: str = "work") -> Job:
    job = port.take(task)
    assert job is not None
    return job


def test_a_retry_may_rename_and_reprioritise(queue: Queue) -> None:
    """From then on it is found by its new name, and its old one is free."""
    port = Port(queue)
    first = port.add(unique=b"work")
    _taken(port)

    job = port.retry(first, task="other", priority=900, counts=False)

    assert (job.task, job.priority, job.state) == ("other", 900, State.QUEUED)
    assert port.take("work") is None
    assert _taken(port, "other").id == first
    assert port.add(unique=b"work") != first
    assert port.add("other", unique=b"other") == first


def test_a_retry_natively_may_rename_too(queue: Queue) -> None:
    """It is a field of the answer."""
    queue.add("work")
    job = take(queue)
    hold = c.Hold(job_id=job.id, owner=job.record.owner, claim=job.claim)

    after = ask(queue, c.Answer(hold=hold, code="retry", delay_ms=0, task="other", priority=0))  # type: ignore[arg-type]

    assert (after.task, after.priority, after.attempts) == ("other", 0, 1)


def test_a_retry_at_the_port_ignores_its_repeat_when_told(queue: Queue) -> None:
    """Otherwise that goes before any time given."""
    port = Port(queue)
    job_id = port.add(repeat="FINISHED, +1 HOUR")
    _taken(port)
    assert port.retry(job_id, run_at=START_MS + MINUTE_MS).run_at == START_MS + HOUR_MS
    port.requeue(job_id)
    _taken(port)

    assert port.retry(job_id, run_at=START_MS + MINUTE_MS, ignore_repeat=True).run_at == START_MS + MINUTE_MS


def test_a_retry_at_the_port_forgives_losses(queue: Queue, clock: MovedClock) -> None:
    """The documents' counter begins anew."""
    port = Port(queue)
    job_id = port.add(retry_after=MINUTE_MS)
    _taken(port)
    clock.advance(MINUTE_MS)
    assert _taken(port).losses == 1

    assert port.retry(job_id).losses == 0


@pytest.mark.parametrize(("forgive", "losses"), [(None, 0), (0, 2), (1, 1), (9, 0)])
def test_a_requeue_forgives_as_many_losses_as_it_says(
    queue: Queue, clock: MovedClock, forgive: int | None, losses: int
) -> None:
    """The run that it ends is one of them."""
    port = Port(queue)
    job_id = port.add(retry_after=MINUTE_MS)
    _taken(port)
    clock.advance(MINUTE_MS)
    _taken(port)

    job = ask(queue, c.Requeue(job_id=job_id, forgive=forgive))

    assert (job.losses, job.state) == (losses, State.QUEUED)


def test_a_claim_tells_when_the_job_was_handed_out_before(queue: Queue, clock: MovedClock) -> None:
    """0 the first time."""
    port = Port(queue)
    job_id = port.add()
    assert ask(queue, port.claim(("work",)))[0].last_run == 0
    port.retry(job_id)
    clock.advance(MINUTE_MS)

    assert ask(queue, port.claim(("work",)))[0].last_run == START_MS


def test_the_port_finds_only_jobs_of_its_tenant(queue: Queue) -> None:
    """Where it names one; another's are not there."""
    port = Port(queue)
    job_id = port.add(tenant="acme")
    _taken(port)

    theirs = c.Answer(hold=c.Hold(job_id=job_id, owner=PORT_SYSID, tenant="zeta"))
    with unchanged(queue), pytest.raises(NotFound, match=str(job_id)):
        ask(queue, theirs)
    mine = c.Answer(hold=c.Hold(job_id=job_id, owner=PORT_SYSID, tenant="acme"))
    assert ask(queue, mine).state == State.FINISHED


def test_children_of_several_parents_are_added_together(queue: Queue) -> None:
    """By the port, under whichever claim it has of each; where it has not, none is."""
    port = Port(queue)
    parents = [port.add("parent"), port.add("parent")]
    for _ in parents:
        _taken(port, "parent")
    hold = c.Hold(job_id=0, owner=PORT_SYSID)
    children = tuple(port.new("child", {"parent_id": parent}) for parent in parents)

    ids = ask(queue, c.Add(jobs=children, hold=hold))

    assert [queue.get(job_id).parent_id for job_id in ids] == parents
    queue.add("native")
    held = take(queue, "native")
    stranger = (*children, port.new("child", {"parent_id": held.id}))
    with unchanged(queue), pytest.raises(LeaseLost, match=str(held.id)):
        ask(queue, c.Add(jobs=stranger, hold=hold))


def test_a_repeating_parent_of_the_port_goes_on_beside_a_failed_child(queue: Queue) -> None:
    """It is not deleted, and so nobody is orphaned."""
    port = Port(queue)
    parent = port.add("parent", repeat="FINISHED, +1 HOUR")
    _taken(port, "parent")
    bad, good = port.add("bad", parent=parent), port.add("good", parent=parent)
    port.finish(parent)
    _taken(port, "bad")
    port.fail(bad)
    _taken(port, "good")
    port.finish(good)
    _taken(port, "parent")
    with unchanged(queue), pytest.raises(Refused, match="outstanding"):
        port.finish(parent, ignore_repeat=True)

    assert port.finish(parent).state == State.QUEUED


def test_a_repeat_of_the_port_is_kept_as_it_was_typed(queue: Queue) -> None:
    """The documents show it so; elsewhere it has one form."""
    port = Port(queue)

    assert queue.get(port.add(repeat="finished,  +1 minute")).repeat == "finished,  +1 minute"
    assert queue.get(queue.add("native", repeat="finished,  +1 minute")).repeat == "FINISHED, +1 MINUTE"


def test_an_update_moves_the_lease_of_a_job_of_the_port(queue: Queue, clock: MovedClock) -> None:
    """With a `retry_after` there is one time for both: due, and handed out again."""
    port = Port(queue)
    job_id = port.add(retry_after=MINUTE_MS)
    _taken(port)

    job = ask(queue, c.Update(job_id=job_id, run_at=START_MS + HOUR_MS))

    assert (job.place, job.lease_until) == (Place.RUNNING, START_MS + HOUR_MS)
    clock.advance(HOUR_MS)
    upkeep(queue)
    assert _taken(port).id == job_id


def test_claims_by_pattern_wait_like_others(queue: Queue) -> None:
    """Alike ones get what there is in turn, in one transaction."""
    first, second = queue.add("www/a").id, queue.add("www/b").id
    queue.add("other")
    asked = c.Claim(glob="www/*", tenant="", lease_ms=MINUTE_MS)

    replies = ask_all(queue, [asked] * 4)

    assert [[one.job.id for one in reply] for reply in replies] == [[first], [second], [], []]


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        (c.Claim(glob=""), BadInput),
        (c.Claim(glob="x" * 12_751), TooLarge),
        (c.Answer(hold=c.Hold(job_id=1, owner=1), priority=1_001), BadInput),
        (c.Answer(hold=c.Hold(job_id=1, owner=1), task=""), BadInput),
    ],
    ids=str,
)
def test_what_the_port_may_say_has_limits(command: c.Command, refusal: type[BadInput]) -> None:
    """Refused before anything is written."""
    with pytest.raises(refusal):
        check_command(command)
