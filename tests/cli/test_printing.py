"""What commands print, however it was asked for: times, numbers with their nouns, tries, colours."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len

import holdfast
from holdfast.cli.output import painted
from holdfast.core.units import counted
from holdfast.indexed import Log, Progress


def moments(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All values of a record whose names say that they are moments."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from moments(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from moments(inner, name)
    elif name in ("at", "next") or name.endswith(("_at", "_until")):
        yield name, value


def numbers(value: Any) -> Iterator[float]:
    """All numbers of a record."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from numbers(inner)
    elif isinstance(value, int | float):
        yield value


def test_every_time_in_json_is_iso_8601_in_utc(shell):
    """Of every command that prints any, and no number is a time in disguise."""
    with shell.queue() as queue:

        @queue.task(attempts=3)
        def broken(ctx: holdfast.Context) -> None:
            ctx.log("here")
            raise ValueError("no good")

        job = broken.add()
        queue.next().run()
        queue.schedule("nightly", "report", cron="@daily")
        Log(queue, "chunks", int).append(1)
        reader = Progress(queue, "verify")
        reader.initialize(log="chunks")
        reader.move(1)
    commands = [["jobs"], ["show", job.id], ["counts"], ["schedules"], ["consumers"], ["workers"]]
    commands += [["top", "--interval", "1ms"], ["consumers", "set", "verify", 0, "--yes"], ["limits"]]
    commands += [["schedule", "hourly", "report", "--every", "1h"], ["doctor"]]

    records = [one for words in commands for one in shell.ok(*words, "--json").records]

    found = [(name, moment) for name, moment in moments(records) if moment is not None]
    assert {"created_at", "run_at", "moved_at", "at", "next"} <= {name for name, _ in found}
    for name, moment in found:
        assert datetime.fromisoformat(moment).utcoffset() == timedelta(0), (name, moment)
    assert max(numbers(records)) < 10**9


def test_a_number_agrees_with_its_noun():
    """One of a thing is no plural."""
    assert counted(1, "job") == "1 job"
    assert [counted(count, "job") for count in (0, 2, 1000)] == ["0 jobs", "2 jobs", "1,000 jobs"]
    assert counted(1, "index", "indexes") == "1 index"
    assert counted(2, "index", "indexes") == "2 indexes"


def test_no_command_speaks_of_one_jobs(shell):
    """Wherever one of something is told."""
    with shell.queue() as queue:

        @queue.task(attempts=2)
        def once(ctx: holdfast.Context) -> None:
            ctx.log("one line")
            raise holdfast.Retry("1h")

        job = once.add()
        queue.next().run()
        Progress(queue, "verify").initialize()
    said = [shell.ok("why", job.id), shell.ok("show", job.id), shell.ok("doctor")]
    said += [shell.ok("consumers", "set", "verify", 1, "--yes"), shell.ok("purge", "--before", "1d")]
    said += [shell.ok("cancel", "--all", "--yes"), shell.ok("add", "a", "--file", "-", stdin="1\n")]

    text = "".join(one.out + one.err for one in said)

    assert "It was tried 1 time." in text
    assert "log, 1 line:" in text
    assert "1 index after 0" in text
    assert re.findall(r"\b1 \w+s\b", text) == []


def test_columns_are_aligned_as_a_terminal_shows_them(shell):
    """Some characters take two columns there."""
    for task in ("日本語", "🦑", "plain"):
        shell.add(task)

    for command in ("counts", "jobs"):
        lines = shell.ok(command).lines[:4]
        ends = {cell_len(line.partition("QUEUED" if command == "jobs" else "1")[0]) for line in lines[1:]}
        assert len(ends) == 1, lines


@pytest.mark.parametrize(
    ("end", "tries"),
    [("claimed", 1), ("released", 0), ("done", 1), ("failed", 1), ("errors", 2), ("errors, then done", 3)],
)
def test_tries_counts_all_runs(shell, end, tries):
    """Those that failed, and the one that goes on or that ended the job."""
    with shell.queue(lease=60) as queue:
        queue.add("work", attempts=9, backoff=0)

        for _ in range(2 if "errors" in end else 0):
            queue.next(renew=False).retry(0)
        claimed = queue.next(renew=False)
        if end == "errors":
            claimed.release()
        match end.rpartition(" ")[2]:
            case "done":
                claimed.done()
            case "failed":
                claimed.fail("no good")
            case "released":
                claimed.release()

    archived = ["--archived"] if end.endswith("done") else []
    assert re.search(rf" 500 +{tries}\b", shell.ok("jobs", *archived).lines[1]), shell.ok(
        "jobs", *archived
    ).out


def test_tries_counts_losses(shell):
    """A run that was lost is one too."""
    with shell.queue() as queue:
        queue.add("work")
        queue.next(renew=False, lease="10ms")
        queue.next(wait=60, renew=False)

    assert re.search(r" 500 +2\b", shell.ok("jobs").lines[1])


def test_states_are_in_colour_on_a_terminal(shell):
    """In lists, in counts and of one job; wide tables too."""
    failed, waiting = shell.add("a"), shell.add("a" * 90)
    shell.fail(failed)

    for columns in (100, 250):
        shown = shell.on_terminal("jobs", columns=columns)
        assert "\x1b[31mFAILED\x1b[0m" in shown
        assert "\x1b[36mQUEUED\x1b[0m" in shown
    assert "\x1b[31m     1\x1b[0m" in shell.on_terminal("counts", columns=250)
    assert shell.on_terminal("show", str(failed)).startswith(f"job {failed}: a, \x1b[31mFAILED\x1b[0m")
    assert "\x1b[36mQUEUED\x1b[0m" in shell.on_terminal("show", str(waiting))


@pytest.mark.parametrize(
    "words", [["jobs"], ["counts"], ["show", "{}"], ["top", "--once", "--interval", "1ms"]]
)
def test_no_escape_where_no_colour_is_wanted(shell, words):
    """NO_COLOR, --json, and whatever is no terminal."""
    job_id = shell.add("a")
    shell.fail(job_id)
    words = [word.format(job_id) for word in words]

    assert "\x1b" in shell.on_terminal(*words)
    assert "\x1b" not in shell.on_terminal(*words, NO_COLOR="1")
    assert "\x1b" not in shell.on_terminal(*words, "--json")
    assert "\x1b" not in shell.ok(*words).out
    assert painted("FAILED") == "FAILED"
