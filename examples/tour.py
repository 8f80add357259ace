"""A tour: the tasks of the README, queued in a file and worked before your eyes.

Run it with `make run`. It keeps its jobs in a temporary folder, which it removes at the end.
"""

import logging
import tempfile
import threading
from pathlib import Path

import holdfast


def say(text: str) -> None:
    """Print a line at once."""
    print(text + "\n", end="", flush=True)  # one write, so that two workers do not mix


def define(queue: holdfast.Queue) -> dict[str, holdfast.Task[..., object]]:
    """The tasks: plain functions."""

    @queue.task(attempts=5, timeout="2m")
    def resize(path: str, width: int) -> str:
        return f"{path} at {width} px"

    @queue.task(attempts=3, backoff="50ms")
    def flaky(seen: list[int]) -> str:
        if queue.get(queue.jobs(task="flaky", limit=1)[0]).attempts < 2:
            raise ConnectionError("the other side hung up")
        return f"third time lucky with {seen}"

    @queue.task(domain=str.lower)
    def fetch(host: str) -> str:
        return f"fetched {host}"

    return {"resize": resize, "flaky": flaky, "fetch": fetch}


def work(queue: holdfast.Queue) -> None:
    """A worker in a few lines: claim, run, answer, until nothing is left to do."""
    while job := queue.next(until_empty=True):
        after = job.run()
        error = f"  ({after.outcome.error})" if after.outcome and after.outcome.error else ""
        say(f"  worked   {job.task:<8} claim {job.claim}, attempt {job.attempt} → {after.state}{error}")


def main() -> None:
    """Queue some jobs, work them, show what became of them."""
    # A run that fails is logged with its traceback; the tour tells of it in a line of its own.
    logging.getLogger("holdfast.job").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, holdfast.connect(f"{folder}/jobs.db") as queue:
        say(f"A queue in one file: {Path(folder, 'jobs.db')}\n")
        tasks = define(queue)
        queue.limit("*.example", rate=5)

        done = tasks["resize"].add("a.png", 200)
        tasks["resize"].using(delay="300ms", priority=900).add("b.png", 400)
        tasks["flaky"].add([1, 2, 3])
        for host in ("one.example", "one.example", "one.example", "two.example"):
            tasks["fetch"].add(host)
        say(f"  added    {sum(sum(row.values()) for row in queue.counts().values())} jobs: {queue.counts()}")
        say(f"  why?     {done.why()}\n")

        workers = [threading.Thread(target=work, args=(queue,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        say(f"  result   {done.result(wait=10)!r}")
        for worker in workers:
            worker.join()

        say(f"\nWhat became of them: {queue.counts()}")
        starts = [job.started_at for job in queue.jobs(task="fetch", archived=True)]
        after_ms = [at - starts[0] for at in starts[:3]]
        say(f"one.example was asked at most 5 times a second: starts at {after_ms} ms")
        say("Nothing is left to do. Your own queue is two lines away: see README.md.")
        say("`make demo` runs a server and a worker until Ctrl-C, with a dashboard to see them.")


if __name__ == "__main__":
    main()
