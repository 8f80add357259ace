"""`holdfast consumers` and `holdfast consumers set`."""

from datetime import datetime, timedelta

from holdfast.indexed import Log, Progress
from holdfast.store.common.clock import system_clock


def some(shell):
    """A consumer that reads a log, and one that does not."""
    # More than a minute ago, and less than two, also on a busy machine.
    with shell.queue(clock=lambda: system_clock() - 65_000) as queue:
        log = Log(queue, "chunks", int)
        log.append_many(range(1500))
        reader = Progress(queue, "verify")
        reader.initialize(log="chunks")
        reader.move(1000)
        Progress(queue, "blocks", start=7).initialize()


def test_there_may_be_none(shell):
    """And then it says so."""
    shell.add("a")

    assert shell.ok("consumers").out == "no consumers\n"
    assert shell.ok("consumers", "--json").out == ""


def test_each_is_listed_with_how_far_it_is(shell):
    """What reads a log is as far behind as the log is long."""
    some(shell)

    header, blocks, verify = shell.ok("consumers").lines

    assert header.split() == ["NAME", "PROCESSED", "HEAD", "LAG", "IN", "FLIGHT", "RATE", "MOVED", "LOG"]
    assert blocks.split() == ["blocks", "7", "7", "0", "0", "0.0/s", "never"]
    assert verify.split() == ["verify", "1,000", "1,500", "500", "0", "0.0/s", "1m", "ago", "chunks"]


def test_programs_hear_numbers(shell):
    """One object for each."""
    some(shell)

    _, verify = shell.ok("consumers", "--json").records

    assert {name: verify[name] for name in ("name", "processed", "head", "lag", "in_flight", "log")} == {
        "name": "verify",
        "processed": 1000,
        "head": 1500,
        "lag": 500,
        "in_flight": 0,
        "log": "chunks",
    }
    assert datetime.fromisoformat(verify["moved_at"]).utcoffset() == timedelta(0)


def test_one_is_set_with_a_warning(shell):
    """Forward and back, each with what it means."""
    some(shell)

    forward = shell.ok("consumers", "set", "verify", 1200, "--yes")
    back = shell.ok("consumers", "set", "verify", 100, "--yes", "--json")

    assert forward.out == "verify continues after 1,200\n"
    assert "200 indexes after 1,000 will never be processed by verify" in forward.err
    assert "1,100 indexes up to 1,200 will be processed again by verify" in back.err
    assert back.record["processed"] == 100


def test_without_a_yes_nothing_is_set(shell):
    """Asked, and answered no, or not answered at all."""
    some(shell)

    said = shell.run("consumers", "set", "verify", 5, stdin="n\n")
    assert (said.code, said.out) == (1, "")
    assert said.err.endswith("nothing was changed\n")
    assert shell.run("consumers", "set", "verify", 5, stdin="").code == 2
    assert shell.ok("consumers", "set", "verify", 5, stdin="y\n").out == "verify continues after 5\n"


def test_what_cannot_be_set_is_refused(shell):
    """No such consumer, no index, a place that is gone."""
    some(shell)
    with shell.queue() as queue:
        Log(queue, "chunks", int).trim(up_to=600)

    assert shell.run("consumers", "set", "nobody", 5, "--yes").code == 3
    assert shell.run("consumers", "set", "verify", "x", "--yes").code == 2
    gone = shell.run("consumers", "set", "verify", 599, "--yes")
    assert gone.code == 2
    assert "600 or more" in gone.err
