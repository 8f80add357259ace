"""`holdfast limit`, `limits`, `pause` and `resume`."""

import pytest

from holdfast.core.commands import Pause
from holdfast.core.queries import ListPauses


def test_a_limit_is_set_shown_changed_and_lifted(shell):
    """A rate with its burst, a number at once, or both; each replaces the one before."""
    assert shell.ok("limit", "cdn", "--rate", "10/s", "--burst", 5, "--concurrency", 3).out == (
        "cdn: 10/s in bursts of 5, 3 at once\n"
    )
    assert shell.ok("limit", "cdn", "--rate", "30/m").out == "cdn: 30/m\n"
    assert shell.ok("limit", "cdn", "--rate", "2.5").out == "cdn: 2.5/s\n"
    assert shell.ok("limit", "cdn", "--rate", "100/m").out == "cdn: 100/m\n"
    assert shell.ok("limit", "cdn", "--rate", "1000000").out == "cdn: 1,000,000/s\n"
    assert shell.ok("limit", "cdn", "--rate", "0.1/d").out == "cdn: 0.1/d\n"
    assert shell.ok("limit", "cdn", "--concurrency", 0).out == "cdn: 0 at once\n"
    assert shell.ok("limit", "cdn", "--off").out == "cdn: no limit\n"
    assert shell.ok("limits").out == "no limits\n"


def test_limits_are_listed_with_what_they_hold_back(shell):
    """For people and for programs."""
    shell.ok("limit", "cdn", "--concurrency", 1)
    shell.ok("limit", "mail-*", "--rate", "5/h", "--burst", 2)
    for _ in range(3):
        shell.add("a", "--domain", "cdn")
    with shell.queue() as queue:
        queue.claim(limit=2, renew=False)

    rows = [line.split() for line in shell.ok("limits").lines]
    records = shell.ok("limits", "--json").records

    assert rows[0] == ["DOMAIN", "RATE", "BURST", "CONCURRENCY", "RUNNING", "HELD"]
    assert rows[1:] == [["cdn", "1", "1", "2"], ["mail-*", "5/h", "2", "0", "0"]]
    cdn = {"domain": "cdn", "rate_per_s": None, "burst": 1, "concurrency": 1}
    assert records[0] == cdn | {"running": 1, "held": 2, "is_partial": False}
    assert records[1]["rate_per_s"] == 5 / 3600
    assert shell.ok("limits", "--tenant", "kim").out == "no limits\n"


def test_a_pattern_has_the_sums_of_the_domains_that_it_limits(shell, monkeypatch):
    """Not of those with a limit of their own, or by a longer pattern."""
    shell.ok("limit", "*.org", "--concurrency", 1)
    shell.ok("limit", "www.*.org", "--rate", "1/h")
    shell.ok("limit", "own.org", "--concurrency", 0)
    for domain in ("a.org", "b.org", "own.org", "www.c.org", "free"):
        for _ in range(3):
            shell.add("a", "--domain", domain)
    with shell.queue() as queue:
        assert len(queue.claim(limit=20, renew=False)) == 6

    found = {words[0]: words[-2:] for words in map(str.split, shell.ok("limits").lines[1:])}
    assert found == {"own.org": ["0", "3"], "*.org": ["2", "4"], "www.*.org": ["1", "2"]}
    monkeypatch.setattr("holdfast.engine.queries.HOLDING_DOMAINS", 1)
    found = {words[0]: words[-2:] for words in map(str.split, shell.ok("limits").lines[1:])}
    assert found == {"own.org": ["0", "3"], "*.org": ["1+", "2+"], "www.*.org": ["0+", "0+"]}


def test_a_limit_is_told_to_programs(shell):
    """As it is kept."""
    record = shell.ok("limit", "cdn", "--rate", "10/s", "--json").record

    assert record == {"domain": "cdn", "rate_per_s": 10.0, "burst": 1, "concurrency": None}
    assert shell.ok("limit", "cdn", "--off", "--json").record == {"domain": "cdn"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "DOMAIN"),
        (["cdn"], "give --rate, --concurrency or --off"),
        (["cdn", "--burst", 5], "give --rate"),
        (["cdn", "--burst", 5, "--concurrency", 3], "--burst needs --rate"),
        (["cdn", "--off", "--rate", "10/s"], "--off needs DOMAIN and nothing else"),
        (["cdn", "--rate", "fast"], "rate is 'fast'"),
        (["cdn", "--rate", "10/fortnight"], "rate is"),
        (["cdn", "--rate=-1/s"], "rate is -1"),
        (["cdn", "--rate", "0"], "rate is 0"),
        (["cdn", "--rate", "nan"], "rate is nan"),
        (["cdn", "--rate", "inf/s"], "rate is inf"),
        (["cdn", "--rate", "1e400/s"], "rate is inf"),
        (["cdn", "--rate", "2000000/s"], "rate is 2000000"),
        (["cdn", "--rate", "10/s", "--burst", 0], "burst is 0"),
        (["cdn", "--rate", "10/s", "--burst", 10**30], "burst is 1000"),
        (["cdn", "--concurrency=-1"], "concurrency is -1"),
        (["cdn", "--concurrency", "few"], "--concurrency"),
        (["", "--concurrency", 1], "domain is empty"),
        (["x" * 1025, "--concurrency", 1], "1,024 bytes"),
        (["cdn", "--concurrency", 1, "--tenant", "x" * 256], "tenant is"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(shell, words, complaint):
    """And leaves no store behind."""
    assert complaint in shell.refused("limit", *words, code=2)
    assert not shell.file.exists()


def test_a_limit_that_is_not_there_cannot_be_lifted(shell):
    """A slip in the name is told."""
    shell.ok("limit", "cdn", "--concurrency", 1)

    assert "there is no limit on cdm" in shell.refused("limit", "cdm", "--off", code=3)


@pytest.mark.parametrize(
    ("words", "text"), [([], "all jobs"), (["--task", "a"], "task a"), (["--domain", "cdn"], "domain cdn")]
)
def test_what_is_paused_is_passed_by_until_it_is_resumed(shell, words, text):
    """A task, a domain, or all."""
    job_id = shell.add("a", "--domain", "cdn")

    if not words:
        said = shell.run("pause", stdin="n\n")
        assert (said.code, said.err) == (1, "Pause all jobs? [y/N] holdfast: nothing was changed\n")
        assert shell.ok("counts", "--json").record["paused"] == []
    assert shell.ok("pause", *words, *([] if words else ["--yes"])).out == f"paused {text}\n"
    with shell.queue() as queue:
        assert queue.claim(renew=False) == []
    assert shell.ok("counts", "--json").record["paused"] == [text]
    assert "paused" in shell.ok("why", job_id).out

    assert shell.ok("resume", *words, "--json").record == {"resumed": text}
    with shell.queue() as queue:
        assert [job.id for job in queue.claim(renew=False)] == [job_id]


def test_a_tenant_pauses_alone(shell):
    """Others go on."""
    assert shell.ok("pause", "--tenant", "kim", "--yes", "--json").record == {"paused": "tenant kim"}

    assert shell.ok("counts", "--json").record["paused"] == []
    assert shell.ok("counts", "--tenant", "kim", "--json").record["paused"] == ["tenant kim"]


def test_a_pause_for_all_tenants_is_shown_and_resumed(shell):
    """The HTTP API can make one; it is resumed together with that of the tenant."""
    shell.ok("pause", "--task", "a")
    with shell.queue() as queue:
        queue.connection.ask(Pause(task="a"))

    assert shell.ok("counts", "--json").record["paused"] == ["task a", "task a of all tenants"]
    assert shell.ok("resume", "--task", "a").out == "resumed task a, task a of all tenants\n"
    assert shell.ok("counts", "--json").record["paused"] == []


def test_a_resume_of_one_tenant_leaves_a_pause_of_all(shell):
    """It is told that there is one."""
    with shell.queue() as queue:
        queue.connection.ask(Pause(task="a"))

    said = shell.refused("resume", "--task", "a", "--tenant", "kim", code=3)

    assert "paused is: task a of all tenants" in said
    assert shell.ok("resume", "--task", "a").out == "resumed task a of all tenants\n"


def test_a_queue_resumes_what_was_paused_without_a_tenant(shell):
    """As the command line does; that of a tenant stays."""
    with shell.queue() as queue:
        for tenant in (None, "", "kim"):
            queue.connection.ask(Pause(task="a", tenant=tenant))

        queue.resume("a")

        assert queue.connection.ask(ListPauses()) == [("kim", "a", None)]


def test_what_is_not_paused_cannot_be_resumed(shell):
    """What is paused is told instead."""
    shell.add("a")

    assert "there is no pause of all jobs" in shell.refused("resume", code=3)
    shell.ok("pause", "--task", "a")
    assert "paused is: task a" in shell.refused("resume", "--domain", "a", code=3)


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_pause_is_of_one_thing(shell, command):
    """And its name must be one."""
    shell.add("a")

    assert "not both" in shell.refused(command, "--task", "a", "--domain", "b", code=2)
    assert "did you mean --task a?" in shell.refused(command, "a", code=2)
    code = 2 if command == "pause" else 3
    assert "task" in shell.refused(command, "--task", "x" * 256, code=code)
    assert "domain" in shell.refused(command, "--domain", "x" * 1025, code=code)
