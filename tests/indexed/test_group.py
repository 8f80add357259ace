"""Groups: a pool that looks by itself, hands its errors over, and starts again where it is told to."""

import asyncio
import threading

import pytest

from holdfast.core.errors import BadInput, Closed, Trimmed
from holdfast.indexed import (
    LATER,
    AlreadyStarted,
    ConsumerGroup,
    IndexedJob,
    Log,
    Progress,
    Restart,
)
from tests.indexed.tools import PATIENCE_S, Numbers, Until


def reached(group, index, until):
    """Wait until a group is there, or has failed."""
    until.wait(lambda: group.processed >= index or group.closed().is_set())


def test_a_backlog_is_worked_off_without_a_signal(queue):
    """By as many threads as allowed and no more, each job once."""
    seen, until, lock = [], Until(), threading.Lock()
    now = most = 0

    def run(job):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            seen.append(job.index)
        with lock:
            now -= 1

    group = ConsumerGroup(
        Numbers(200), Progress(queue, "c"), run, max_processing=4, on_advance=until.tell, poll="1h"
    )
    with group:
        reached(group, 200, until)

    assert sorted(seen) == list(range(1, 201))
    assert most <= 4
    assert Progress(queue, "c").processed() == 200
    assert group.size == 0


def test_a_source_that_tells_nobody_is_looked_at_now_and_then(queue):
    """Every `poll`."""
    source, until = Numbers(0), Until()
    with ConsumerGroup(source, Progress(queue, "c"), lambda job: None, poll="10ms") as group:
        group.ready().wait(PATIENCE_S)
        source.last = 3
        reached(group, 3, until)

        assert group.processed == 3


def test_the_first_error_is_the_owners_and_no_job_is_counted_that_failed(queue):
    """What runs beside it may end and counts; nothing new begins."""
    begun, go_on = threading.Barrier(2), threading.Event()
    seen = []

    def run(job):
        seen.append(job.index)
        if job.index == 1:
            begun.wait(PATIENCE_S)
            go_on.wait(PATIENCE_S)
        elif job.index == 2:
            begun.wait(PATIENCE_S)
            raise ZeroDivisionError("two")

    group = ConsumerGroup(Numbers(9), Progress(queue, "c"), run, max_processing=2)
    group.start()
    Until().wait(lambda: group.error is not None)
    go_on.set()

    with pytest.raises(ZeroDivisionError):
        group.closed().wait(PATIENCE_S)
    assert sorted(seen) == [1, 2]
    assert group.processed == Progress(queue, "c").processed() == 1
    group.stop()


def test_leaving_the_block_raises_what_stopped_it(queue):
    """Unless something else is on its way."""

    def run(job):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), ConsumerGroup(Numbers(1), Progress(queue, "c"), run) as group:
        Until().wait(group.closed().is_set)


def test_later_is_not_done(queue):
    """Until somebody says so; it keeps its place among those that run."""
    seen, until = [], Until()

    def run(job):
        seen.append(job.index)
        return LATER if job.index == 1 else None

    group = ConsumerGroup(
        Numbers(9), Progress(queue, "c"), run, max_processing=2, max_ahead=5, on_advance=until.tell
    )
    with group:
        until.wait(lambda: group.size == 5 and sorted(seen) == [1, 2, 3, 4, 5])
        assert group.processed == 0

        assert group.done("1") >= 5
        reached(group, 9, until)

    assert sorted(seen) == list(range(1, 10))


def test_a_group_starts_again_as_often_as_it_may(queue):
    """From the stored progress, with what has failed first; progress forgives."""
    runs: dict[int, int] = {}
    until = Until()

    def run(job):
        runs[job.index] = runs.get(job.index, 0) + 1
        if runs[job.index] < 3 and job.index % 2:
            raise ConnectionError("the other side hung up")

    group = ConsumerGroup(
        Numbers(6),
        Progress(queue, "c"),
        run,
        max_ahead=1,
        restart=Restart(2, delay="1ms"),
        on_advance=until.tell,
    )
    with group:
        reached(group, 6, until)

    assert (group.processed, group.restarts) == (6, 6)
    assert runs == {1: 3, 2: 1, 3: 3, 4: 1, 5: 3, 6: 1}


def test_a_group_that_only_fails_gives_up(queue):
    """After so many in a row without progress; the last error is the owner's."""
    runs = []

    def run(job):
        runs.append(job.index)
        raise ConnectionError(len(runs))

    group = ConsumerGroup(Numbers(6), Progress(queue, "c"), run, restart=Restart(3, delay=0))
    group.start()

    with pytest.raises(ConnectionError, match="4"):
        group.closed().wait(PATIENCE_S)
    assert runs == [1, 1, 1, 1]
    group.stop()


def test_a_policy_may_look_at_the_error(queue):
    """What is not worth another try ends the group at once."""
    group = ConsumerGroup(
        Numbers(1),
        Progress(queue, "c"),
        lambda job: 1 / 0,
        restart=Restart(when=lambda error: not isinstance(error, ZeroDivisionError)),
    )
    group.start()

    with pytest.raises(ZeroDivisionError):
        group.closed().wait(PATIENCE_S)
    assert group.restarts == 0
    group.stop()


def test_delays_double_up_to_a_limit():
    """And an exit is never restarted."""
    policy = Restart(10, delay=1, most=5)

    assert [policy.delay_s(OSError(), n) for n in (1, 2, 3, 4, 10, 11)] == [1, 2, 4, 5, 5, None]
    assert policy.delay_s(KeyboardInterrupt(), 1) is None
    with pytest.raises(BadInput, match="times"):
        Restart(0)


def test_a_group_waits_for_what_runs_when_it_stops(queue):
    """It is not cut off, and counts; what was not begun is not."""
    begun, go_on = threading.Event(), threading.Event()

    def run(job):
        begun.set()
        group.stopping.wait(PATIENCE_S)
        go_on.wait(PATIENCE_S)

    group = ConsumerGroup(Numbers(9), Progress(queue, "c"), run)
    group.start()
    begun.wait(PATIENCE_S)
    stopper = threading.Thread(target=group.stop)
    stopper.start()
    assert group.stopping.wait(PATIENCE_S)
    assert not group.closed().is_set()
    go_on.set()
    stopper.join()

    assert group.closed().wait(PATIENCE_S)
    assert group.processed == Progress(queue, "c").processed() == 1


def test_a_worker_may_stop_its_group(queue):
    """It does not wait for itself."""

    def run(job):
        if job.index == 3:
            group.stop()

    group = ConsumerGroup(Numbers(9), Progress(queue, "c"), run)
    group.start()

    assert group.closed().wait(PATIENCE_S)
    assert group.processed == 3


def test_it_starts_once_and_may_be_stopped_before(queue):
    """As a consumer does."""
    group = ConsumerGroup(Numbers(1), Progress(queue, "c"), lambda job: None)
    group.stop()
    with group, pytest.raises(AlreadyStarted):
        group.start()


def test_threads_and_coroutines_wait_for_the_same_signals(queue):
    """Before they come, after, and many at once; giving up on one does it no harm."""
    group = ConsumerGroup(Numbers(1), Progress(queue, "c"), lambda job: None)

    async def follow():
        waiting = [asyncio.ensure_future(_await(group.ready())) for _ in range(3)]
        waiting[0].cancel()
        await asyncio.sleep(0)
        group.start()
        await asyncio.gather(*waiting[1:])
        await asyncio.to_thread(group.stop)
        await group.closed()

    assert group.ready().wait(0.01) is False
    asyncio.run(follow())
    assert group.closed().wait(0)


async def _await(signal):
    await signal


def test_a_slow_look_up_is_given_up_when_the_consumer_stops(queue):
    """A source whose `at` takes `stop` is told."""
    asked = threading.Event()

    class Slow(Numbers):
        def at(self, index: int, stop: threading.Event | None = None) -> IndexedJob[int]:
            asked.set()
            assert stop is not None
            assert stop.wait(PATIENCE_S)
            raise InterruptedError

    group = ConsumerGroup(Slow(1), Progress(queue, "c"), lambda job: None)
    group.start()
    asked.wait(PATIENCE_S)
    group.stop()

    assert group.closed().wait(PATIENCE_S)
    assert group.processed == 0


def test_a_reader_behind_the_trimmed_part_is_told(queue):
    """It does not wait for ever for what is gone."""
    log = Log(queue, "l", int)
    log.append_many(range(5))
    group = ConsumerGroup(log, Progress(queue, "c"), lambda job: None)
    # What should never happen, done behind everybody's back.
    other = Progress(queue, "c")
    other.initialize()
    log.trim(up_to=3)

    group.start()

    with pytest.raises(Trimmed):
        group.closed().wait(PATIENCE_S)
    group.stop()


def test_a_closed_queue_ends_a_group(make_queue):
    """There is nothing to wait for."""
    queue, source = make_queue(), Numbers(1)
    group = ConsumerGroup(source, Progress(queue, "c"), lambda job: queue.close(), poll="10ms")
    group.start()

    with pytest.raises(Closed):
        group.closed().wait(PATIENCE_S)
    group.stop()
