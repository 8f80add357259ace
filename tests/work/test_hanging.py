"""A job that runs past its limit says where its handler was, and one that blocks others where it is."""

import asyncio
import json
import time

import pytest

import holdfast
from holdfast.queue.stacks import STACK_BYTES, STACK_FRAMES
from tests.cli.shell import Shell

APP = "tests.work.hanging:queue"


@pytest.mark.parametrize(
    "inner",
    [
        {
            "in_thread": "_hang_deep",
            "in_recursion": "_hang_deep",
            "in_coroutine": "_hang_below",
            "in_soft_coroutine": "_hang_below",
            "in_batch": "_hang_below",
        },
        pytest.param({"blocks_loop": "_hang_deep"}, marks=pytest.mark.proof),
        {"holds_lock": "_hold_lock"},
        pytest.param({"coroutine_holds_lock": "_hold_lock"}, marks=pytest.mark.proof),
    ],
    ids=lambda inner: next(iter(inner)),
)
def test_a_job_past_its_limit_carries_the_stack_of_its_handler(bench, inner):
    """Of its thread or coroutine, also if its executor cannot answer; in its errors, the log and `show`."""
    jobs = {task: bench.queue.add(task, 1 if task == "in_batch" else None) for task in inner}

    said = bench.work("--threads", "5", "--log-format", "json", name=APP)

    logged = {line["task"]: line for line in map(json.loads, said.splitlines()) if "task" in line}
    shell = Shell(bench.notes.parent)
    for task, job in jobs.items():
        (end,) = job.get().errors
        assert end.error == "still running after its limit of 2 s"
        lines = end.traceback.splitlines()
        assert lines[0] == "Stack (most recent call last):"
        assert all("hanging.py" in line or "asyncio" in line for line in lines[2:])
        assert any(line.endswith(f"in {inner[task]}") for line in lines)
        assert len(lines) <= STACK_FRAMES + 2
        assert len(end.traceback) <= STACK_BYTES
        assert "hunter2" not in end.traceback
        if task == "in_recursion":
            assert (lines[1], len(lines)) == ("  …", STACK_FRAMES + 2)
        else:
            assert lines[1].endswith(f"in {task}")
        assert logged[task]["traceback"] == end.traceback
        assert lines[-1] in shell.ok("show", job.id, "--store", bench.store).out


async def _hang(ended: asyncio.Event) -> None:
    await ended.wait()


def _past_its_limit(errors):
    (end,) = errors
    assert end.error == "still running after its limit of 1 s"
    return end.traceback.splitlines()


def test_work_in_this_process_says_where_a_handler_hangs(tmp_path, caplog):
    """In a thread, and in a coroutine for which a thread waits."""
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:

        def _hang_here(ctx):
            while not ctx.cancelled:
                time.sleep(0.01)

        @queue.task(timeout="1s", attempts=1)
        def in_thread(ctx: holdfast.Context) -> None:
            _hang_here(ctx)

        @queue.task(timeout="1s", attempts=1)
        async def in_coroutine() -> None:
            ended = asyncio.Event()
            asyncio.get_running_loop().call_later(1.2, ended.set)
            await _hang(ended)

        jobs = [in_thread.add(), in_coroutine.add()]
        holdfast.work(queue, threads=2, until_empty=True)

        for job, inner in zip(jobs, ("_hang_here", "_hang"), strict=True):
            lines = _past_its_limit(job.get().errors)
            assert any(line.endswith(inner) for line in lines)
            assert any(lines[-1] in (record.stack_info or "") for record in caplog.records)


def test_work_async_says_where_a_coroutine_hangs(tmp_path):
    """And where a plain function does, in its thread."""

    async def main() -> None:
        async with holdfast.connect_async(str(tmp_path / "jobs.db")) as queue:

            @queue.task(timeout="1s", attempts=1)
            async def in_coroutine() -> None:
                ended = asyncio.Event()
                asyncio.get_running_loop().call_later(1.2, ended.set)
                await _hang(ended)

            @queue.task(timeout="1s", attempts=1)
            def in_thread(ctx: holdfast.Context) -> None:
                while not ctx.cancelled:
                    time.sleep(0.01)

            jobs = [await in_coroutine.add(), await in_thread.add()]
            await holdfast.work_async(queue, threads=2, until_empty=True)

            ends = [_past_its_limit((await job.get()).errors) for job in jobs]
            assert any(line.endswith("in _hang") for line in ends[0])
            assert any("in_thread" in line for line in ends[1])

    asyncio.run(main())


def _block():
    time.sleep(2)


def _blocked(caplog):
    """What was logged of the handler that blocked the loop: once, with the stack."""
    found = [one for one in caplog.records if "blocks the event loop" in one.message]
    # A busy machine may block it elsewhere.
    (record,) = [one for one in found if one.stack_info.splitlines()[-1].endswith("in _block")]
    return record.message


def test_work_in_this_process_logs_a_coroutine_that_blocks_the_loop(tmp_path, caplog):
    """After a second, from another thread."""
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:

        @queue.task
        async def blocks() -> None:
            _block()

        blocks.add()
        holdfast.work(queue, until_empty=True)

    _blocked(caplog)


def test_work_async_logs_the_job_that_blocks_the_loop(tmp_path, caplog):
    """A plain function, too."""

    async def main() -> None:
        async with holdfast.connect_async(str(tmp_path / "jobs.db")) as queue:

            @queue.task
            def blocks() -> None:
                _block()

            job = await blocks.add()
            await holdfast.work_async(queue, until_empty=True)

            assert _blocked(caplog) == f"blocks (job {job.id}) blocks the event loop"

    asyncio.run(main())
