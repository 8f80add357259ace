"""What follows a job (`then=`): its own arguments, where the result goes (`into=`), and its id."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.bounds import THEN_BYTES
from holdfast.core.errors import BadInput, NotFound
from holdfast.core.job import State
from holdfast.queue.aio import AsyncQueue
from holdfast.queue.answers import FailedJob
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .aio import Story, taken
from .fixtures import MakeQueue
from .tools import HOUR_MS, LONG_S, MINUTE_MS, nothing, state_of, take, unchanged, upkeep


def add_publish(queue: Queue) -> Any:
    """A task of three parameters, one of them optional."""

    @queue.task
    def publish(image: str, album: str, public: bool = False) -> str:
        return f"{album}/{image}/{public}"

    return publish


# ── arguments ────────────────────────────────────────────────────────────────────────────────────


def test_what_follows_keeps_its_arguments_and_gets_the_result_by_name(queue: Queue) -> None:
    """As a pair or as a prepared call with its own options; and so on down the chain."""
    last = queue.call("third", {"keep": True})
    queue.add(
        "first",
        then=queue.call("second", {"album": "x", "n": [1]}, priority=900, then=last, into="path"),
        into="image",
    )
    queue.add("first", then=("pair", {"album": "y"}), into="image")

    for _ in range(2):
        take(queue, "first").done({"name": "a.png"})
    second, pair = take(queue, "second"), take(queue, "pair")
    second.done("x/a.png")

    assert second.data == {"album": "x", "n": [1], "image": {"name": "a.png"}}
    assert second.record.priority == 900
    assert pair.data == {"album": "y", "image": {"name": "a.png"}}
    assert take(queue, "third").data == {"keep": True, "path": "x/a.png"}


@pytest.mark.parametrize(("result", "given"), [(None, None), ([1], [1]), (b"\xff", "/w==")])
def test_a_result_goes_to_the_parameter_as_json(queue: Queue, result: Any, given: Any) -> None:
    """No result is null; bytes are base64 text, which a parameter annotated as bytes reads."""
    queue.add("first", then="second", into="value")

    take(queue, "first").done(result)

    assert take(queue, "second").data == {"value": given}


def test_what_follows_with_arguments_and_without_into_runs_with_those_alone(queue: Queue) -> None:
    """The result is not passed on."""
    queue.add("first", then=("second", {"album": "x"}))

    take(queue, "first").done("a.png")

    assert take(queue, "second").data == {"album": "x"}


def test_typed_tasks_follow_each_other(queue: Queue) -> None:
    """From the decorator too; a call gives it other arguments."""
    publish = add_publish(queue)

    @queue.task(then=(publish, {"album": "x"}), into="image")
    def resize(path: str) -> str:
        return path.upper()

    plain = resize.add("a")
    other = resize.using(then=queue.call(publish, {"album": "y", "public": True}), into="image").add("b")
    for _ in range(4):
        take(queue).run()

    results = [queue.result(job.get().then_id) for job in (plain, other)]
    assert results == ["x/A/False", "y/B/True"]


def test_other_options_of_a_call_replace_what_follows_as_a_whole(queue: Queue) -> None:
    """The parameter of one follower is not that of another."""

    @queue.task(then="second", into="image")
    def first() -> str:
        return "a"

    first.using(then="third").add()
    take(queue, "first").run()

    assert take(queue, "third").data == "a"


def test_a_job_added_where_its_task_is_unknown_is_followed_as_the_task_says(
    queue: Queue, make_queue: MakeQueue
) -> None:
    """With the argument that gets the result; one whose caller gave a follower keeps to that."""
    worker = make_queue()

    @worker.task(then=("second", {"album": "x"}), into="image")
    def first() -> str:
        return "a.png"

    added, other = queue.add("first"), queue.add("first", then="third")
    for _ in range(2):
        take(worker, "first").run()

    assert queue.data(added.get().then_id) == {"album": "x", "image": "a.png"}
    assert queue.data(other.get().then_id) == "a.png"


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


def test_a_follower_that_does_not_fit_is_refused_by_add(queue: Queue) -> None:
    """Where its task is known: anywhere in the chain, and by whatever verb the first job is added."""
    publish = add_publish(queue)

    @queue.task
    def cleanup() -> None:
        """Nothing."""

    @queue.task(batch=10)
    def ship(items: list[Any]) -> list[Any]:
        return items

    misfits: list[tuple[dict[str, Any], str]] = [
        ({"then": publish, "into": "picture"}, "picture.*task publish: image, album, public"),
        ({"then": publish, "into": "image"}, "task publish.*album"),
        ({"then": (publish, {"album": "x", "image": "y"}), "into": "image"}, "image.*not given"),
        ({"then": (publish, {"album": "x", "colour": 1}), "into": "image"}, "task publish.*colour"),
        ({"then": (publish, {"album": 7}), "into": "image"}, "argument album of task publish"),
        ({"then": (publish, {"album": "x"})}, "argument image of task publish"),
        ({"then": queue.call(publish, {"album": "x"})}, "argument image of task publish"),
        ({"then": queue.call("unknown", then="publish", into="picture")}, "picture.*task publish"),
        ({"then": cleanup}, "task cleanup"),
        ({"then": (cleanup, {"a": 1})}, "task cleanup"),
        ({"then": ship, "into": "items"}, "batch task ship"),
    ]
    for options, match in misfits:
        for add in (
            lambda options=options: queue.add("first", **options),
            lambda options=options: queue.add_many([queue.call("first", **options)]),
            lambda options=options: queue.schedule("nightly", "first", cron="0 0 * * *", **options),
        ):
            with unchanged(queue), pytest.raises(BadInput, match=match):
                add()


def test_a_follower_that_makes_no_sense_is_refused_by_add(queue: Queue) -> None:
    """Whether or not its task is known."""
    for options, match in (
        ({"into": "image"}, "into.*absent without then"),
        ({"then": "second", "into": ""}, "into"),
        ({"then": "second", "into": 7}, "into"),
        ({"then": ("second", [1, 2]), "into": "image"}, "then.*object"),
        ({"then": ("second", b"\xff")}, "then.*JSON"),
        ({"then": ("second", {"a": float("nan")})}, "a in the data of then.*nan"),
        ({"then": ("second", {"a": "x" * THEN_BYTES})}, "then.*bytes"),
        ({"then": ("second", {}, 7)}, "then"),
    ):
        bad: Any = options
        with unchanged(queue), pytest.raises(BadInput, match=match):
            queue.add("first", **bad)


# ── its id ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("options", [{}, {"domain": "cdn"}, {"unique": "key"}, {"delay": "1m"}], ids=str)
def test_the_id_of_what_follows_is_known_from_the_start(
    queue: Queue, clock: MovedClock, options: Any
) -> None:
    """In the record of the job before and after its end; whoever has it can wait for the result."""
    added = queue.add("first", then=queue.call("second", **options))
    then_id = added.get().then_id
    assert then_id not in (0, added.id)
    with pytest.raises(NotFound, match="follows"):
        queue.result(then_id)

    take(queue, "first").done(1)
    clock.advance(MINUTE_MS)
    job = take(queue, "second", wait=LONG_S)
    job.done(2)

    assert (job.id, added.get().then_id) == (then_id, then_id)
    assert queue.result(then_id) == 2


def test_each_of_many_jobs_has_a_follower_of_its_own(queue: Queue) -> None:
    """Also where they are alike but for their data."""
    handles = queue.add_many([("first", n) for n in range(20)], then="second")
    ids = [handle.get().then_id for handle in handles]
    assert len({*ids, *(handle.id for handle in handles)}) == 40

    for _ in handles:
        job = take(queue, "first")
        job.done(job.data)

    assert {id: queue.data(id) for id in ids} == dict(zip(ids, range(20), strict=True))


def test_a_job_without_a_follower_has_no_id_of_one(queue: Queue) -> None:
    """The number is 0."""
    assert queue.add("first").get().then_id == 0


def test_each_good_run_of_a_repeating_job_is_followed(queue: Queue) -> None:
    """By a job of its own; the record has the id of the last."""
    added = queue.add("first", repeat="FINISHED, +0 SECONDS", then="second", into="n")
    ids = []
    for n in range(3):
        take(queue, "first").done(n)
        ids.append(added.get().then_id)

    assert len(set(ids)) == 3
    assert [queue.data(id) for id in ids] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_job_that_failed_and_was_put_back_is_followed_by_the_same_job(queue: Queue) -> None:
    """The id that was told stays true."""
    added = queue.add("first", then="second")
    then_id = added.get().then_id
    take(queue).fail()
    assert queue.requeue(added).then_id == then_id

    take(queue, "first").done(1)

    assert take(queue, "second").id == then_id


def test_a_child_that_is_put_back_after_a_good_end_is_followed_again(queue: Queue) -> None:
    """By another job: the first one is there already."""
    queue.add("parent")
    parent = take(queue)
    child = parent.add("child", then="second")
    sibling = parent.add("sibling")
    parent.done()
    take(queue, "child").done(1)
    first = child.get().then_id
    queue.requeue(child)

    take(queue, "child").done(2)

    assert child.get().then_id != first
    assert sorted(take(queue, "second").data for _ in range(2)) == [1, 2]
    assert sibling.get().state == State.QUEUED


def test_where_the_key_of_what_follows_is_held_its_id_is_the_holders(queue: Queue) -> None:
    """That job is what follows."""
    waiting = queue.add("second", 1, unique="key")
    added = queue.add("first", then=queue.call("second", unique="key"))

    take(queue, "first").done(2)

    assert added.get().then_id == waiting.id


def test_the_jobs_of_a_schedule_each_have_a_follower(queue: Queue, clock: MovedClock) -> None:
    """With its arguments and the result."""
    queue.schedule("s", "first", every="1m", then=("second", {"album": "x"}), into="image")
    for n in range(2):
        clock.advance(MINUTE_MS)
        job = take(queue, "first")
        job.done(n)
        follower = take(queue, "second")
        assert (follower.id, follower.data) == (job.record.then_id, {"album": "x", "image": n})
        follower.done()
    assert nothing(queue)


def test_what_follows_in_asyncio(tell: Callable[[Story], None]) -> None:
    """The same words and refusals."""

    async def story(queue: AsyncQueue) -> None:
        @queue.task()
        async def publish(image: str, album: str) -> str:
            return f"{album}/{image}"

        @queue.task(then=(publish, {"album": "x"}), into="image")
        async def resize(path: str) -> str:
            return path.upper()

        with pytest.raises(BadInput, match="task publish"):
            await resize.using(then=publish, into="picture").add("a")
        added = await resize.add("a")
        for _ in range(2):
            await (await taken(queue)).run()
        assert await queue.result((await added.get()).then_id) == "x/A"

    tell(story)


# ── after a failure ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", ["raise", "fail", "lose", "expire"])
def test_a_job_that_fails_is_followed_by_one_that_is_told_so(
    queue: Queue, clock: MovedClock, end: str
) -> None:
    """However it fails: once, with its id, reason and data; its `then` does not follow."""

    @queue.task
    def report(failed: FailedJob, to: str = "ops") -> list[Any]:
        return [failed.id, failed.task, failed.data, failed.reason, to]

    options: Any = {"attempts": 1, "losses": 1, "expires": "1h", "then": "next"}
    job = queue.add("work", {"n": 1}, on_failure=("report", {"to": "me"}), **options)
    if end == "expire":
        clock.advance(HOUR_MS + 1)
    else:
        claimed = take(queue, "work")
        if end == "raise":
            claimed.done(error=ValueError("no"))
        elif end == "fail":
            claimed.fail("no")
        else:
            clock.advance(MINUTE_MS + 1)
    upkeep(queue)

    assert state_of(queue, job) == State.FAILED
    told = take(queue, "report")
    told.run()
    found = queue.result(told.id)
    assert found[:3] == [job.id, "work", {"n": 1}]
    assert found[3:] == [queue.get(job).reason, "me"]
    assert nothing(queue)


def test_each_failure_is_followed_and_a_success_is_not(queue: Queue) -> None:
    """After a requeue too."""
    job = queue.add("work", on_failure="report")
    for _ in range(2):
        take(queue, "work").fail("no")
        take(queue, "report").done()
        queue.requeue(job)
    take(queue, "work").done()

    assert nothing(queue)
    assert queue.counts() == {"work": {"FINISHED": 1}, "report": {"FINISHED": 2}}


def test_a_task_may_say_what_follows_its_failures(queue: Queue, make_queue: MakeQueue) -> None:
    """Also for jobs that a process without the task has added; retries that are left come first."""

    @queue.task(on_failure=("report", {"to": "ops"}), attempts=2, backoff=0)
    def work() -> None:
        raise ValueError("no")

    make_queue().add("work")
    for state in (State.QUEUED, State.FAILED):
        assert take(queue, "work").run().state == state
    told = take(queue, "report")
    assert told.data["to"] == "ops"
    assert told.data["failed"]["attempts"] == 2
    assert "ValueError: no" in told.data["failed"]["reason"]


def test_what_cannot_follow_a_failure_is_refused(queue: Queue) -> None:
    """By the option."""

    @queue.task
    def report(reason: str) -> None: ...

    with unchanged(queue):
        with pytest.raises(BadInput, match="on_failure is 5"):
            queue.add("work", on_failure=5)  # type: ignore[call-overload]
        with pytest.raises(BadInput, match="'failed', and must be a parameter of task report"):
            queue.add("work", on_failure=report)
        with pytest.raises(BadInput, match="data of on_failure"):
            queue.add("work", on_failure=("other", [1]))
