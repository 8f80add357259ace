"""`holdfast add --file`: one job for each line."""

import json

import pytest

from holdfast.cli.commands import add
from holdfast.core.errors import StoreFull


def test_each_line_is_the_data_of_a_job(shell):
    """Empty lines are none, and the last one needs no end; options hold for all."""
    (shell.folder / "data.jsonl").write_bytes(b'\xef\xbb\xbf{"n": 1}\n\n  {"n": 2}\r\n3')

    said = shell.ok("add", "count", "--file", "data.jsonl", "--priority", 7)

    assert said.out == "3 jobs added\n"
    with shell.queue() as queue:
        jobs = queue.jobs()
        assert [queue.data(job) for job in jobs] == [{"n": 1}, {"n": 2}, 3]
        assert {job.priority for job in jobs} == {7}


def test_each_line_is_a_job_of_its_own_without_a_task(shell):
    """With options as in Python, on top of those of the command line."""
    lines = [{"task": "a", "data": [1], "priority": 9, "delay": "1h"}, {"task": "b", "unique": "k"}]
    text = "\n".join(json.dumps(line) for line in lines)

    said = shell.ok("add", "--file", "-", "--attempts", 3, "--priority", 1, "--json", stdin=text)

    first, second = (shell.ok("show", record["id"], "--json").record for record in said.records)
    assert (first["task"], first["data"], first["priority"], first["place"]) == ("a", [1], 9, "SCHEDULED")
    assert (second["task"], second["data"], second["priority"], second["unique"]) == ("b", {}, 1, "k")
    assert first["max_attempts"] == second["max_attempts"] == 3


def test_more_than_a_transaction_is_added(shell, monkeypatch):
    """All of them, in order."""
    monkeypatch.setattr(add, "BATCH_JOBS", 10)

    said = shell.ok("add", "count", "--file", "-", "--json", stdin="\n".join(map(str, range(95))))

    assert len(said.records) == 95
    with shell.queue() as queue:
        assert [queue.data(record["id"]) for record in said.records] == list(range(95))


def test_no_lines_are_no_jobs(shell):
    """And no reason to complain."""
    assert shell.ok("add", "count", "--file", "-", stdin="\n \n").out == "0 jobs added\n"


@pytest.mark.parametrize(
    ("words", "line", "complaint"),
    [
        (["count"], "{secret}", "the data is not JSON"),
        (["count"], '{"secret": 1}{}', "the data is not JSON"),
        (["count"], '"' + "secret" * 3_000_000 + '"', "at most 16,777,216 bytes"),
        ([], "{secret}", "the line is not JSON"),
        ([], '["secret"]', 'an object with a "task"'),
        ([], '{"data": "secret"}', 'an object with a "task"'),
        ([], '{"task": 5, "data": "secret"}', 'an object with a "task"'),
        ([], '{"task": "", "data": "secret"}', "task is ''"),
        ([], '{"task": "a", "data": "secret", "colour": "red"}', "option is 'colour'"),
        ([], '{"task": "a", "data": "secret", "priority": "high"}', "priority is 'high'"),
        ([], '{"task": "a", "data": "secret", "priority": 5000}', "0 to 1,000"),
        ([], '{"task": "a", "data": "secret", "delay": [1]}', "delay is [1]"),
        ([], '{"task": "a", "data": "secret", "tenant": "kim"}', "--tenant says it"),
        ([], '{"task": "a", "data": "secret", "self": 1}', "option is 'self'"),
        ([], '{"task": "a", "data": "secret", "domain": 5}', "domain is 5"),
        ([], '{"task": "a", "data": "secret", "parent": "' + "9" * 5000 + '"}', "a whole number"),
        ([], '{"task": "a", "data": "secret", "repeat": 5}', "repeat is 5"),
        ([], '{"task": "a", "data": "secret", "repeat": "soon"}', "repeat is 'soon'"),
        ([], '{"task": "a", "data": "secret", "unique_for": 5}', "without unique"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_added(shell, words, line, complaint):
    """Also where many good ones stand before it, from a file or from standard input."""
    text = '{"task": "a"}\n' * 2_000 + line + "\n{}\n"
    (shell.folder / "jobs.jsonl").write_text(text)

    for name, stdin, shown in (("jobs.jsonl", None, "jobs.jsonl"), ("-", text, "standard input")):
        err = shell.refused("add", *words, "--file", name, stdin=stdin, code=2)
        assert err.startswith(f"holdfast: {shown}, line 2,001: ")
        assert complaint in err
        assert "secret" not in err
    assert not shell.file.exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["a", "--file", "none.jsonl"], "none.jsonl: No such file"),
        (["a", "--file", "."], "Is a directory"),
        (["a", "--file", ""], "--file"),
        (["a", "{}", "--file", "-"], "cannot be combined"),
        (["a", "--arg", "b=1", "--file", "-"], "cannot be combined"),
        (["a", "--wait", "1s", "--file", "-"], "cannot be combined"),
        (["a", "--priority", "1001", "--file", "-"], "0 to 1,000"),
    ],
)
def test_what_cannot_be_read_is_refused(shell, words, complaint):
    """Before anything is written."""
    assert complaint in shell.refused("add", *words, code=2)
    assert not shell.file.exists()


def test_whoever_is_stopped_in_the_middle_hears_how_far_it_came(shell, monkeypatch):
    """So that the rest can be added later."""
    real = add._batches

    def full_soon(jobs):
        yield from (pair for pair, _ in zip(real(jobs), range(3), strict=False))
        raise StoreFull("no space left")

    monkeypatch.setattr(add, "BATCH_JOBS", 10)
    monkeypatch.setattr(add, "_batches", full_soon)
    said = shell.run("add", "count", "--file", "-", stdin="\n".join(map(str, range(95))))

    assert said.code == 5
    assert said.err == "holdfast: stopped after line 30: 30 jobs were added\nholdfast: no space left\n"
    assert shell.ok("counts", "--json").record["totals"] == {"QUEUED": 30}
