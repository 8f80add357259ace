"""`holdfast schedule` and `schedules`."""

import pytest


def test_a_schedule_is_set_and_listed(shell):
    """With its task, its times and its next moments."""
    said = shell.ok(
        "schedule", "nightly", "report", '{"full": true}', "--cron", "30 4 * * *", "--tz", "Asia/Tokyo"
    )

    assert said.out.startswith("nightly: next at ")
    header, row = shell.ok("schedules").lines
    assert header.split() == ["NAME", "TASK", "TIMES", "LAST", "FIRED", "NEXT"]
    assert row.split()[:7] == ["nightly", "report", "30", "4", "*", "*", "*"]
    assert row.count("T19:30:00Z") == 3


def test_programs_hear_all_of_a_schedule(shell):
    """When it is set and when it is listed."""
    words = ["--every", "10m", "--catch-up", "all", "--overlap", "wait", "--jitter", "5s", "--priority", 7]

    record = shell.ok("schedule", "often", "poll", *words, "--json").record

    assert (record["every_s"], record["catch_up"], record["overlap"], record["jitter_s"]) == (
        600,
        "all",
        "wait",
        5,
    )
    assert (record["task"], record["cron"], record["paused"], record["fired"]) == ("poll", None, False, 0)
    assert len(record["next"]) == 3
    assert len(shell.ok("schedules", "--next", 5, "--json").record["next"]) == 5


def test_the_jobs_of_a_schedule_have_its_data_and_options(shell):
    """As if they had been added by hand."""
    shell.ok("schedule", "often", "poll", "--arg", "a=1", "--every", "1s", "--priority", 7, "--domain", "d")

    with shell.queue() as queue:
        (job,) = queue.claim(wait=60, renew=False)
        assert (job.data, job.record.priority, job.record.domain) == ({"a": 1}, 7, b"d")
        assert job.record.schedule == "often"


def test_saying_a_schedule_again_changes_it(shell):
    """It stays one schedule."""
    shell.ok("schedule", "s", "a", "--every", "1h")
    shell.ok("schedule", "s", "b", "--repeat", "FINISHED, +1 HOUR")

    record = shell.ok("schedules", "--json").record

    assert (record["task"], record["repeat"], record["every_s"]) == ("b", "FINISHED, +1 HOUR", None)


def test_a_schedule_is_paused_resumed_and_deleted(shell):
    """By its name alone."""
    shell.ok("schedule", "s", "a", "--every", "1h")

    assert shell.ok("schedule", "s", "--pause").out == "s: paused\n"
    assert shell.ok("schedules").lines[1].endswith("paused")
    assert shell.ok("schedule", "s", "a", "--every", "1h").out == "s: paused\n"
    assert shell.ok("schedule", "s", "--resume", "--json").record == {"name": "s", "paused": False}
    assert shell.ok("schedule", "s", "--delete").out == "s: deleted\n"
    assert shell.ok("schedules").out == "no schedules\n"
    assert shell.ok("schedules", "--json").out == ""


def test_a_schedule_is_run_now(shell):
    """The id is printed, and its times stay."""
    shell.ok("schedule", "s", "a", "--every", "1h")

    told = shell.ok("schedule", "s", "--run").out
    record = shell.ok("schedule", "s", "--run", "--json").record

    assert told.startswith("s: added job ")
    assert shell.ok("show", record["id"], "--json").record["schedule"] == "s"
    assert "--run" in shell.refused("schedule", "run", "s", code=2)


@pytest.mark.parametrize("verb", ["--pause", "--resume", "--delete", "--run"])
def test_a_schedule_that_is_not_there_is_not_found(shell, verb):
    """Nor does it come into being."""
    shell.add("a")

    assert shell.refused("schedule", "s", verb, code=3) == "holdfast: there is no schedule s\n"
    assert "nothing else" in shell.refused("schedule", "s", "a", verb, code=2)
    assert "nothing else" in shell.refused("schedule", "s", verb, "--every", "1h", code=2)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "NAME"),
        (["s"], "TASK is missing"),
        (["s", "a"], "give one of"),
        (["s", "a", "--every", "1h", "--cron", "@daily"], "exactly one of"),
        (["", "a", "--every", "1h"], "name is ''"),
        (["x" * 256, "a", "--every", "1h"], "255 bytes"),
        (["s", "", "--every", "1h"], "task is ''"),
        (["s", "x" * 256, "--every", "1h"], "255 bytes"),
        (["s", "a", "{", "--every", "1h"], "DATA is not JSON"),
        (["s", "a", "{}", "{}", "--every", "1h"], "DATA must be one argument"),
        (["s", "a", "--every", "often"], "every is 'often'"),
        (["s", "a", "--every", "0s"], "whole seconds, at least 1"),
        (["s", "a", "--every", "1500ms"], "whole seconds"),
        (["s", "a", "--every", "11000d"], "every is"),
        (["s", "a", "--cron", "at tea time"], "cron"),
        (["s", "a", "--cron", "61 * * * *"], "cron"),
        (["s", "a", "--cron", "0 0 30 2 *"], "cron"),
        (["s", "a", "--repeat", "sometimes"], "repeat is 'sometimes'"),
        (["s", "a", "--cron", "@daily", "--tz", "Atlantis"], "Atlantis"),
        (["s", "a", "--every", "1h", "--jitter", "2h"], "jitter is"),
        (["s", "a", "--every", "1h", "--jitter=-1s"], "jitter is"),
        (["s", "a", "--every", "1h", "--catch-up", "some"], "--catch-up"),
        (["s", "a", "--every", "1h", "--overlap", "some"], "--overlap"),
        (["s", "a", "--every", "1h", "--priority", 1001], "0 to 1,000"),
        (["s", "a", "--every", "1h", "--unique-for", "1h"], "without unique"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(shell, words, complaint):
    """And leaves no store behind."""
    assert complaint in shell.refused("schedule", *words, code=2)
    assert not shell.file.exists()


def test_a_number_of_moments_has_bounds(shell):
    """From one to a thousand."""
    shell.ok("schedule", "s", "a", "--every", "1h")

    for count in (0, 1001, "x"):
        shell.refused("schedules", "--next", count, code=2)
