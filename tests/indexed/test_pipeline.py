"""Pipelines: stages in a row, through progress, through a log, and through an ordinary queue."""

import asyncio
import threading
from datetime import date
from enum import Enum
from itertools import pairwise
from typing import Any

import pytest

from holdfast.core.errors import BadInput, JobFailed
from holdfast.indexed import AsyncLog, Log, Progress, Restart, consumers, pipeline, stage
from holdfast.indexed.stages import items_of
from holdfast.store.contract import Changes
from tests.indexed.roles import Block, Chunk, block_at, chain, verified
from tests.indexed.test_kills import chunk_count, unkilled
from tests.indexed.tools import PATIENCE_S, Numbers, Until


class Kind(Enum):
    """One of two."""

    OLD = "old"
    NEW = "new"


def cut(job):
    """A block into its chunks."""
    return [Chunk(job.item.height, number) for number in job.item.chunks]


def test_a_stage_sees_what_the_one_before_has_finished(queue):
    """Never more, and all of it; each has its own progress and its own number of workers."""
    first, second = set(), []
    lock = threading.Lock()

    def one(job):
        with lock:
            first.add(job.index)

    def two(job):
        # All up to here were finished by the stage before, and the store knew.
        assert Progress(queue, "p.one").processed() >= job.index
        assert set(range(1, job.index + 1)) <= first
        second.append(job.index)

    stages = stage(one, max_processing=3), stage(two, max_processing=1, max_ahead=1)
    with pipeline(Numbers(40), *stages, queue=queue, name="p") as line:
        assert line.drain(PATIENCE_S)

    assert second == list(range(1, 41))
    assert {name: mark.processed for name, mark in consumers(queue).items()} == {"p.one": 40, "p.two": 40}


def test_a_stage_pushes_through_a_log(queue):
    """What a block has in it is verified, each chunk once; the log between is trimmed."""
    found = {}

    def verify(job):
        found[job.item.height, job.item.number] = verified(job.item)

    chunks = Log(queue, "chunks", Chunk)
    stages = stage(cut, max_processing=2, into=chunks), stage(verify, max_processing=5)
    with pipeline(chain(1200), *stages, queue=queue, name="p") as line:
        assert line.drain(PATIENCE_S * 3)

    assert found == unkilled(1200)
    assert chunks.head() == chunk_count(1200)
    assert chunks.trim() < 1000


def test_a_block_that_is_cut_again_brings_nothing_twice(queue):
    """Without keys of its own the log is given the stage, the index and the place."""
    chunks = Log(queue, "chunks", Chunk)
    for _ in range(2):
        with pipeline(chain(20), stage(cut, into=chunks), queue=queue, name="p") as line:
            assert line.drain(PATIENCE_S)
        # As after a crash that lost the progress.
        store = queue.connection.store
        for one in getattr(store, "shards", (store,)):
            one.run(
                lambda txn: (Changes(rows={("progress", key): None for key in txn.rows("progress")}), None)
            )

    assert chunks.head() == chunk_count(20)


def test_a_stage_may_be_jobs_of_an_ordinary_queue(queue, make_queue):
    """Workers anywhere do them; their results go on into the log."""
    found, over = {}, threading.Event()

    @queue.task
    def split(block: Block) -> list[Chunk]:
        return [Chunk(block.height, number) for number in block.chunks]

    def verify(job):
        found[job.item.height, job.item.number] = verified(job.item)

    def work():
        while not over.is_set():
            if job := queue.next(["split"], wait=0.1):
                job.run()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    chunks = Log(queue, "chunks", Chunk)
    try:
        stages = stage(split, via=queue, max_processing=3, into=chunks), stage(verify)
        with pipeline(chain(12), *stages, queue=queue, name="p") as line:
            assert line.drain(PATIENCE_S)
    finally:
        over.set()
        for worker in workers:
            worker.join()

    assert found == unkilled(12)
    assert sum(sum(row.values()) for row in queue.counts().values()) == 12


def test_the_result_of_a_queues_job_is_read_along_the_type_of_the_log(queue):
    """Whatever the annotation of its task has made of it before."""
    days, kinds = Log(queue, "days", str), Log(queue, "kinds", Kind)

    assert items_of(stage("cut", via=queue, into=days), [date(2026, 11, 15)]) == ["2026-11-15"]
    assert items_of(stage("sort", via=queue, into=kinds), {Kind.OLD}) == [Kind.OLD]


def test_a_job_of_a_queue_that_failed_stops_its_stage(queue):
    """It is an error like any other, and the index is not done."""

    def work():
        job = queue.next(["check"], wait=PATIENCE_S)
        job.fail("no")

    worker = threading.Thread(target=work)
    worker.start()
    line = pipeline(Numbers(3), stage("check", via=queue), queue=queue, name="p")
    line.start()

    with pytest.raises(JobFailed, match="no"):
        line.closed().wait(PATIENCE_S)
    line.stop()
    worker.join()
    assert Progress(queue, "p.check").processed() == 0


def test_a_stage_that_stops_finds_its_job_again(queue):
    """While a job of the queue has not ended there is one for each index."""
    for _ in range(2):
        line = pipeline(Numbers(1), stage("later", via=queue), queue=queue, name="p")
        line.start()
        Until().wait(lambda: bool(queue.jobs(task="later")))
        line.stop()
        assert line.closed().wait(PATIENCE_S)

    assert len(queue.jobs(task="later")) == 1


def test_one_stage_that_fails_stops_all_and_its_error_is_the_owners(queue):
    """Also where it is drained."""

    def two(job):
        if job.index == 3:
            raise ZeroDivisionError("three")

    def one(job):
        return None

    line = pipeline(Numbers(9), one, stage(two, max_ahead=1), queue=queue, name="p")
    line.start()

    with pytest.raises(ZeroDivisionError):
        line.drain(PATIENCE_S)
    assert isinstance(line.error, ZeroDivisionError)
    assert Progress(queue, "p.two").processed() == 2
    line.stop()


def test_a_stage_that_fails_before_the_others_are_started_stops_them(queue, monkeypatch):
    """The last stage starts first, and may have ended before the next one starts."""
    words, ran = Log(queue, "words", str), list[Any]()
    words.append("x")

    def fails(job):
        raise ValueError("broken")

    line = pipeline(
        Numbers(10), stage(ran.append, name="feeds", into=words), stage(fails), queue=queue, name="p"
    )
    last = line.groups["fails"]
    start = last.start

    def start_and_fail():
        start()
        Until().wait(last.closed().is_set)

    monkeypatch.setattr(last, "start", start_and_fail)

    line.start()

    with pytest.raises(ValueError, match="broken"):
        line.closed().wait(PATIENCE_S)
    assert ran == []


def test_a_stage_may_start_again_by_itself(queue):
    """The others do not notice."""
    runs = []

    def shaky(job):
        runs.append(job.index)
        if len(runs) % 3 == 0:
            raise ConnectionError

    line = pipeline(
        Numbers(9), stage(shaky, restart=Restart(delay="1ms")), len_of_life, queue=queue, name="p"
    )
    with line:
        assert line.drain(PATIENCE_S)
        assert line.groups["shaky"].restarts > 0


def len_of_life(job):
    """A stage that does nothing."""


def test_stages_may_run_in_different_processes(make_queue):
    """What they know of each other is in the store."""
    until = Until()
    second: list[int] = []
    one = pipeline(Numbers(20), _first, _second(second), queue=make_queue(), name="p", only=["_first"])
    two = pipeline(Numbers(20), _first, _second(second), queue=make_queue(), name="p", only=["second"])

    with two, one:
        until.wait(lambda: len(second) == 20)

    assert sorted(second) == list(range(1, 21))


def _first(job):
    """A stage that does nothing."""


def _second(seen):
    return stage(lambda job: seen.append(job.index), name="second")


def test_advances_of_a_stage_are_told(queue):
    """Without a gap."""
    told = []
    first = stage(len_of_life, name="a", on_advance=lambda old, new: told.append((old, new)))
    with pipeline(Numbers(30), first, queue=queue, name="p") as line:
        assert line.drain(PATIENCE_S)

    assert told[0][0] == 0
    assert told[-1][1] == 30
    assert all(before[1] == after[0] for before, after in pairwise(told))


def test_ready_comes_when_all_have_started(queue):
    """And closed when all have ended."""
    line = pipeline(Numbers(0), _first, len_of_life, queue=queue)

    assert not line.ready().is_set()
    with line:
        assert line.ready().wait(PATIENCE_S)
        line.check()
    assert line.closed().wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("stages", "match"),
    [
        ((), "no stages"),
        ((_first, _first), "no other stage"),
        ((5,), "a function"),
    ],
)
def test_bad_stages_are_refused(queue, stages, match):
    """By name."""
    with pytest.raises(BadInput, match=match):
        pipeline(Numbers(0), *stages, queue=queue)


def test_bad_words_for_a_stage_are_refused(queue):
    """By name, and what was needed."""
    for words, match in (
        ({"via": 5}, "via"),
        ({"into": []}, "into"),
        ({"max_processing": -1}, "max_processing"),
        ({"via": queue}, "a task"),
    ):
        with pytest.raises(BadInput, match=match):
            stage(_first, **words)
    with pytest.raises(BadInput, match="only"):
        pipeline(Numbers(0), _first, queue=queue, only=["x"])


def test_a_pipeline_of_coroutines(make_async_queue):
    """The same stages, awaited: pushed through a log, then one after another."""
    found, last = {}, []

    async def verify(job):
        await asyncio.sleep(0)
        found[job.item.height, job.item.number] = verified(job.item)

    async def cut_later(job):
        await asyncio.sleep(0)
        return cut(job)

    async def main():
        async with make_async_queue() as queue:
            stages = (
                stage(cut_later, max_processing=2, into=AsyncLog(queue, "chunks", Chunk)),
                stage(verify, max_processing=5),
                stage(lambda job: last.append(job.index), name="last", max_ahead=1),
            )
            async with pipeline(chain(30), *stages, queue=queue, name="p") as line:
                await line.ready()
                await asyncio.wait_for(line.drain(), PATIENCE_S)

    asyncio.run(main())

    assert found == unkilled(30)
    assert last == list(range(1, chunk_count(30) + 1))


def test_a_coroutine_stage_through_a_queue(make_async_queue):
    """Jobs of the queue do the work, and one that fails stops the pipeline."""

    async def main():
        async with make_async_queue() as queue:

            async def work():
                for _ in range(3):
                    job = await queue.next(["check"], wait=PATIENCE_S)
                    await (job.fail("no") if job.data == 3 else job.done())

            worker = asyncio.ensure_future(work())
            line = pipeline(Numbers(3), stage("check", via=queue, max_ahead=1), queue=queue, name="p")
            await line.start()
            with pytest.raises(JobFailed):
                await line.drain()
            await line.stop()
            await worker
            assert line.groups["check"].processed == 2

    asyncio.run(main())


def test_what_blocks_are_made_of():
    """The chain of these tests has blocks without chunks too."""
    assert {len(block_at(height).chunks) for height in range(1, 20)} == {0, 1, 2, 3, 4, 5}
