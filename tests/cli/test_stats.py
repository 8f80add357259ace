"""`holdfast stats`: what log lines tell, whatever stands between them."""

import gzip
import json

import holdfast


def line(event, second, **fields):
    """A log line as a worker writes it."""
    known = {"time": f"2026-11-15T13:00:{second:06.3f}Z", "level": "INFO", "logger": "holdfast.job"}
    return json.dumps(known | {"message": "…", "event": event, "job_id": "1", "task": "resize"} | fields)


def test_rates_latencies_and_failures_by_task(shell):
    """Percentiles are exact, other lines are counted, files may be compressed and in any order."""
    first, second = shell.folder / "a.log", shell.folder / "b.log.gz"
    lines = [line("finished", n / 10, waited_ms=n, duration_ms=2 * n, cpu_ms=1.5) for n in range(1, 101)]
    lines += [line("added", 0) for _ in range(3)]
    lines += ["13:00:00 INFO worker ready", "{not json", json.dumps({"logger": "app", "message": "x"})]
    first.write_text("\n".join(reversed(lines)))
    failed = [line("failed", 5, tenant="a", duration_ms=7, error="boom"), line("retry", 6, tenant="a")]
    second.write_bytes(gzip.compress("\n".join([*failed, line("started", 5, waited_ms=9)]).encode()))

    said = shell.ok("stats", first, second, "--json")

    own, other = said.records
    assert (own["tenant"], own["added"], own["started"], own["finished"]) == ("", 3, 1, 100)
    assert own["waited_ms"] == {"p50": 50, "p95": 95, "p99": 99}
    assert own["duration_ms"] == {"p50": 100, "p95": 190, "p99": 198}
    assert (own["per_s"], own["cpu_ms"], own["failed_percent"]) == (10.0, 150.0, 0.0)
    assert (other["tenant"], other["failed"], other["retry"], other["failed_percent"]) == ("a", 1, 1, 50.0)
    assert "3 other lines" in said.err
    table = shell.ok("stats", first, second)
    assert "resize" in table.out


def test_what_holdfast_logs_is_what_stats_reads(shell, caplog):
    """Jobs that enter, run and complete: a line for each, in JSON as a worker writes it."""
    from holdfast.work.logs import JsonFormatter

    with holdfast.connect("memory://", tenant="acme") as queue, caplog.at_level("DEBUG", "holdfast.job"):

        @queue.task(attempts=1)
        def halve(n: int) -> float:
            return 1 / n

        halve.add_many([(n,) for n in (0, 1, 2, 3)])
        holdfast.work(queue, until_empty=True)
    log = shell.folder / "worker.log"
    log.write_text("\n".join(JsonFormatter().format(record) for record in caplog.records))

    (found,) = shell.ok("stats", log, "--json").records

    assert (found["tenant"], found["task"]) == ("acme", "halve")
    assert [found[name] for name in ("added", "started", "finished", "failed")] == [4, 4, 3, 1]
    assert found["failed_percent"] == 25.0
    assert all(value is not None for value in (*found["waited_ms"].values(), *found["duration_ms"].values()))


def test_no_file_and_no_jobs(shell):
    """Said as such; of a log of text, what is needed instead."""
    empty = shell.folder / "empty.log"
    empty.write_text("")

    assert shell.ok("stats", empty).lines == ["no jobs"]
    text = shell.folder / "text.log"
    text.write_text("13:00:00 INFO job 1 (resize) finished in 4 ms")
    assert (
        "1 other line: it reads what workers write with -v --log-format json" in shell.ok("stats", text).err
    )
    shell.refused("stats", code=2)
    assert "missing: No such file" in shell.refused("stats", shell.folder / "missing", code=2)


def test_a_compressed_file_that_is_damaged(shell):
    """It is named, whether it is no gzip, breaks off, or has wrong bytes."""
    whole = gzip.compress(b"{}\n" * 1000)
    damaged = {"none.gz": b"plain", "half.gz": whole[:-9], "bad.gz": whole[:10] + b"\xff" * 20}
    for name, content in damaged.items():
        (shell.folder / name).write_bytes(content)
        assert f"{name}: " in shell.refused("stats", shell.folder / name, code=2)
