"""`holdfast add`: one job."""

import pytest

from holdfast.core.bounds import DATA_BYTES


def test_a_job_is_added_and_its_id_printed(shell):
    """The id alone, so that a shell can keep it."""
    said = shell.ok("add", "resize", '{"path": "a.png", "width": 200}')

    with shell.queue() as queue:
        job = queue.get(said.out.strip())
        assert (job.task, queue.data(job)) == ("resize", {"path": "a.png", "width": 200})


def test_programs_get_the_id_as_text(shell):
    """It does not fit the numbers of every language."""
    record = shell.ok("add", "resize", "--json").record

    assert list(record) == ["id", "is_new"]
    assert isinstance(record["id"], str)


@pytest.mark.parametrize(
    ("words", "stdin", "data"),
    [
        ([], None, {}),
        (["[1, 2]"], None, [1, 2]),
        (['"text"'], None, "text"),
        (["null"], None, None),
        (["-"], '{"from": "stdin"}\n', {"from": "stdin"}),
        (["--arg", "path=a.png", "--arg", "width=200"], None, {"path": "a.png", "width": 200}),
        (
            ["--arg", "a=[1, null]", "--arg", 'b="200"', "--arg", "c="],
            None,
            {"a": [1, None], "b": "200", "c": ""},
        ),
        (["--arg", "query=a=b&c={d"], None, {"query": "a=b&c={d"}),
        (['{"snow": "☃"}'], None, {"snow": "☃"}),
        (["--", "-5"], None, -5),
    ],
)
def test_data_comes_as_json_from_stdin_or_by_parts(shell, words, stdin, data):
    """Whatever JSON can say; a part that is no JSON is text."""
    job_id = shell.ok("add", "task", *words, stdin=stdin).out

    with shell.queue() as queue:
        assert queue.data(job_id.strip()) == data


def test_json_is_kept_as_it_was_written(shell):
    """A number that no float can hold stays the number that it is."""
    job_id = shell.add("task", "[123456789012345678901234567890, 1.10]")

    with shell.queue() as queue:
        (claimed,) = queue.claim(renew=False)
        assert (claimed.id, claimed.body) == (job_id, "[123456789012345678901234567890, 1.10]")


def test_every_option_reaches_the_job(shell):
    """Durations, moments, keys and numbers."""
    words = ["--priority", 900, "--delay", "2h 30m", "--attempts", 3, "--timeout", "2m", "--expires", "1d"]
    words += ["--retry-after", "30s", "--unique", "a", "--unique-for", "10m", "--on-conflict", "replace"]
    words += ["--domain", "cdn", "--backoff", "5s", "--then", "mail", "--repeat", "FINISHED, +1 HOUR"]

    job_id = shell.add("resize", *words)

    with shell.queue() as queue:
        job = queue.get(job_id)
    assert (job.priority, job.max_attempts, job.timeout_ms, job.retry_after) == (900, 3, 120_000, 30_000)
    assert (job.unique, job.unique_for_ms, job.domain, job.repeat) == (
        b"a",
        600_000,
        b"cdn",
        "FINISHED, +1 HOUR",
    )
    assert (job.run_at - job.created_at, job.expires_at - job.created_at) == (9_000_000, 86_400_000)
    assert job.backoff.first_ms == 5000
    assert '"mail"' in job.then


def test_what_follows_has_arguments_and_gets_the_result_by_name(shell):
    """By options, and on a line of a file as in Python; its id is shown."""
    words = ["--then", "publish", "--then-data", '{"album": "x"}', "--into", "image"]
    line = '{"task": "resize", "then": ["publish", {"album": "x"}], "into": "image"}'
    shell.add("resize", *words)
    shell.ok("add", "--file", "-", stdin=line)
    with shell.queue() as queue:
        added = [job.id for job in queue.jobs(task="resize")]

    assert len(added) == 2
    for job_id in added:
        record = shell.ok("show", job_id, "--json").record
        assert record["then"] == "publish"
        assert f"publish, job {record['then_id']}" in shell.ok("show", job_id).out
        with shell.queue() as queue:
            (claimed,) = queue.claim(["resize"], renew=False)
            claimed.done("a.png")
            assert queue.data(record["then_id"]) == {"album": "x", "image": "a.png"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--then-data", "{}"], "--then"),
        (["--then", "publish", "--then-data", "{"], "JSON"),
        (["--then", "publish", "--then-data", "[1]", "--into", "image"], "object"),
        (["--into", "image"], "then"),
    ],
)
def test_a_follower_that_makes_no_sense_is_refused(shell, words, complaint):
    """And nothing is added."""
    assert complaint in shell.refused("add", "resize", *words, code=2)


def test_moments_are_given_in_iso_form(shell):
    """Both when it may start and when it is given up."""
    words = ["--run-at", "2027-01-01T00:00:00Z", "--expires", "2027-01-02T01:00:00+01:00"]

    record = shell.ok("show", shell.add("resize", *words), "--json").record

    assert record["run_at"] == "2027-01-01T00:00:00.000Z"
    assert record["expires_at"] == "2027-01-02T00:00:00.000Z"


def test_a_unique_key_that_is_held_gives_the_id_of_its_holder(shell):
    """As in Python."""
    assert shell.add("mail", "--unique", "k") == shell.add("mail", "--unique", "k")
    assert shell.ok("add", "mail", "--unique", "k", "--json").record["is_new"] is False


def test_a_tenant_has_jobs_of_its_own(shell):
    """Before the command or behind it."""
    job_id = shell.add("mail", "--tenant", "kim")

    assert shell.ok("--tenant", "kim", "jobs", "--json").record["id"] == str(job_id)
    assert shell.ok("jobs", "--json").records == []


def test_a_result_that_is_there_is_printed(shell):
    """Under the id for people, beside it for programs."""
    first = shell.add("sum", "--unique", "k", "--unique-for", "1h")
    shell.finish(first, result={"sum": 3})

    again = ["add", "sum", "--unique", "k", "--wait", "5s"]

    assert shell.ok(*again).lines == [str(first), '{"sum": 3}']
    assert shell.ok(*again, "--json").record == {"id": str(first), "state": "FINISHED", "result": {"sum": 3}}


def test_a_result_that_does_not_come_is_waited_for_and_no_longer(shell):
    """The job stays; the code says that time was up."""
    said = shell.run("add", "sum", "--wait", "20ms")
    for_programs = shell.run("add", "sum", "--wait", "20ms", "--json")

    assert said.code == for_programs.code == 6
    assert said.err.startswith(f"holdfast: job {said.lines[0]} has not ended within 0.02 s: It is ready")
    assert (for_programs.record["state"], for_programs.record["result"]) == ("QUEUED", None)
    assert shell.ok("counts", "--json").record["totals"] == {"QUEUED": 2}


def test_a_job_that_ends_in_vain_has_a_code_of_its_own(shell):
    """And its reason is told."""
    job_id = shell.add("sum", "--unique", "k", "--unique-for", "1h")
    shell.fail(job_id, "there is no file a.png")

    said = shell.run("add", "sum", "--unique", "k", "--wait", "5s")

    assert said.code == 7
    assert "there is no file a.png" in said.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "TASK is missing"),
        ([""], "task is ''"),
        (["x" * 256], "at most 255 bytes"),
        (["a\nb"], "control characters"),
        (["resize", "{width: 200}"], "DATA is not JSON"),
        (["resize", "hello"], "need double quotes"),
        (["resize", "path=a.png"], "did you mean --arg path=…?"),
        (["resize", "[NaN]"], "DATA is not JSON"),
        (["resize", '{"v":"\\ud800"}'], "a lone surrogate, such as \\ud800, is half of a character"),
        (["resize", '{"v":"\\ud83d\\ude00'], "truncated"),
        (["resize", ""], "DATA is empty"),
        (["resize", '{"path":', '"a.png"}'], "DATA must be one argument"),
        (["resize", "{}", "--arg", "a=1"], "cannot be combined"),
        (["resize", "--arg", "width"], "name=value"),
        (["resize", "--arg", "=5"], "name=value"),
        (["resize", "--arg", "a=1", "--arg", "a=2"], "a different name"),
        (["resize", "[" * 100_000], "DATA is"),
        (["resize", "--priority", "high"], "--priority"),
        (["resize", "--priority", "-1"], "priority is -1"),
        (["resize", "--priority", "1001"], "0 to 1,000"),
        (["resize", "--priority", "9" * 5000], "--priority"),
        (["resize", "--delay", "soon"], "delay is 'soon'"),
        (["resize", "--delay=-5s"], "delay is '-5s'"),
        (["resize", "--delay", "11000d"], "ten years"),
        (["resize", "--run-at", "tomorrow"], "run_at is 'tomorrow'"),
        (["resize", "--run-at", "1969-01-01"], "1970 to 2248"),
        (["resize", "--run-at", "2026-02-30"], "run_at is"),
        (["resize", "--expires", "2026-13-01"], "expires is"),
        (["resize", "--expires", "never"], "expires is"),
        (["resize", "--attempts=-1"], "attempts is -1"),
        (["resize", "--attempts", "1000001"], "attempts is"),
        (["resize", "--timeout", "1.5.5s"], "timeout is"),
        (["resize", "--backoff", "x"], "backoff is"),
        (["resize", "--repeat", "now and then"], "repeat is"),
        (["resize", "--repeat", "FINISHED, +1 FORTNIGHT"], "repeat is"),
        (["resize", "--retry-after", "+1 FORTNIGHT"], "retry_after is"),
        (["resize", "--unique", ""], "unique is"),
        (["resize", "--unique", "x" * 1025], "1,024 bytes"),
        (["resize", "--unique-for", "1h"], "without unique"),
        (["resize", "--on-conflict", "shout"], "--on-conflict"),
        (["resize", "--domain", "x" * 1025], "1,024 bytes"),
        (["resize", "--parent", "abc"], "job id is 'abc'"),
        (["resize", "--parent", "9" * 5000], "job id is"),
        (["resize", "--then", ""], "then is ''"),
        (["resize", "--wait", "a while"], "wait is"),
        (["resize", "--tenant", "x" * 256], "tenant is"),
        (["resize", "--colour", "red"], "--colour"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(shell, words, complaint):
    """Not even an empty store is left behind, nor does one that is there change."""
    assert complaint in shell.refused("add", *words, code=2)
    assert not shell.file.exists()

    shell.add("mail")

    assert complaint in shell.refused("add", *words, code=2)


def test_data_that_is_too_large_is_refused_and_not_shown(shell):
    """From a file of standard input; no command line is that long."""
    err = shell.refused("add", "resize", "-", stdin='"' + "secret" * (DATA_BYTES // 5) + '"', code=2)

    assert "at most 16,777,216 bytes" in err
    assert "secret" not in err


@pytest.mark.parametrize("data", ['{"secret": 1', '{"secret": 1} x', '"\\secret"', '{"secret" 1}'])
def test_no_error_shows_what_was_to_be_kept(shell, data):
    """An error may end up in a log that others read."""
    for words in (["add", "resize", data], ["schedule", "s", "resize", data, "--every", "1h"]):
        assert "secret" not in shell.refused(*words, code=2)
    assert "secret" not in shell.refused("add", "resize", "-", stdin=data, code=2)
    assert "secret" not in shell.refused("add", "resize", *data.split(" "), "more", code=2)


def test_bytes_that_are_no_text_are_refused(shell):
    """Data is JSON, and JSON is UTF-8."""
    assert "standard input is not JSON" in shell.refused("add", "resize", "-", stdin=b'"\xff\xfe"', code=2)


def test_a_child_needs_a_parent_that_can_have_one(shell):
    """Unknown: not found; not waiting for children: refused."""
    job_id = shell.add("mail")

    assert "there is no parent job 12" in shell.refused("add", "mail", "--parent", 12, code=3)
    assert "must be PAUSED" in shell.refused("add", "mail", "--parent", job_id, code=4)
