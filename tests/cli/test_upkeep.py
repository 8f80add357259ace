"""`holdfast purge`, `doctor` and `completion`, and the words around all commands."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.shell_completion import ShellComplete

from holdfast import connect
from holdfast.cli.app import COMMANDS, app
from holdfast.cli.commands import doctor
from holdfast.cli.exits import MEANINGS
from holdfast.core.commands import Enlist
from holdfast.core.queries import HasUnfinished
from holdfast.core.worker import Served, Worker
from holdfast.store.common.clock import system_clock
from holdfast.store.contract import Changes
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.redis.connection import server_of
from holdfast.store.redis.keys import Keys, member
from holdfast.store.redis.url import parse


def test_old_jobs_are_purged(shell):
    """By how long ago they ended, or before a moment; the rest stays."""
    with shell.queue(clock=lambda: system_clock() - 3_600_000) as earlier:
        earlier.add("a")
        earlier.claim(renew=False)[0].done()
    shell.finish(shell.add("a"))

    assert shell.ok("purge", "--before", "2h").out == "purged 0 jobs\n"
    assert shell.ok("purge", "--before", "30m", "--json").record == {"purged": 1}
    assert shell.ok("purge", "--before", "2248-01-01").out == "purged 1 job\n"
    assert shell.ok("counts").out == "no jobs\n"


@pytest.mark.parametrize(
    "word", ["", "yesterday", "-7d", "7", "2025", "1.5", "1969-12-31", "2026-02-30", "9" * 100]
)
def test_a_purge_without_a_moment_is_refused(shell, word):
    """A bare number could be seconds or a year, and is neither."""
    shell.finish(shell.add("a"))

    assert "before is" in shell.refused("purge", f"--before={word}", code=2)
    assert "--before" in shell.refused("purge", code=2)


def test_a_sound_store_has_nothing_wrong(shell):
    """It is described, and the code is 0."""
    shell.add("a")

    said = shell.ok("doctor")
    record = shell.ok("doctor", "--full", "--json").record

    assert said.lines[-1] == "✓ nothing is wrong"
    assert "journal mode  wal" in said.out
    assert (record["ok"], record["complaints"], record["notes"]) == (True, [], [])
    assert record["facts"]["path"] == str(shell.file)


def test_what_is_worth_knowing_is_noted(shell):
    """Without being wrong: failed and stuck jobs, and pauses."""
    shell.fail(shell.add("a"))
    with shell.queue(clock=lambda: system_clock() - 600_000) as earlier:
        earlier.add("b")
        earlier.claim(lease="1m", renew=False)
    shell.ok("pause", "--task", "a")

    out = shell.ok("doctor").out

    assert "1 job FAILED" in out
    assert "1 job past the lease" in out
    assert "paused: task a" in out


def test_a_restored_backup_is_noted_and_made_fit_for_use(shell):
    """Its claims rise above those that were used since the backup."""
    with shell.queue(clock=lambda: system_clock() - 7_200_000) as earlier:
        job_id = earlier.add("a").id
        with closing(sqlite3.connect(shell.file)) as source:
            source.execute("VACUUM INTO 'backup.db'")
        last = earlier.next(renew=False).claim
    (shell.folder / "backup.db").replace(shell.file)

    assert "last used 2h ago, by a process that did not close it: if" in shell.ok("doctor").out
    said = shell.ok("restored", shell.file)

    assert (said.out, said.err) == ("claim numbers and ids go on above all that were used before\n", "")
    assert shell.ok("restored", "--json").record == {"restored": True}
    assert "last used" not in shell.ok("doctor").out
    assert shell.ok("show", job_id, "--json").record["claim"] > last
    assert "not that of a server" in shell.refused("restored", "grpc://127.0.0.1:1", code=2)
    assert "no store" in shell.refused("restored", "other.db", code=5)


def test_a_task_that_no_live_worker_runs_is_noted(shell):
    """A mistyped name is seen, once a worker is alive that would run the right one."""
    for task in ("resize", "resise", "resise", "mail"):
        shell.add(task)
    shell.ok("handler", "set", "mail", "--lang", "shell", "--body", "true")
    with shell.queue() as queue:
        assert "no worker runs" not in shell.ok("doctor").out

        queue.connection.appear("w")
        serves = (Served(tasks=("resize",), handlers=True),)
        worker = Worker(name="w", host="h", pid=1, started_at=1, serves=serves)
        queue.connection.ask(Enlist(worker=worker))
        notes = shell.ok("doctor", "--json").record["notes"]
        assert "1 worker is alive here: stop all processes" in shell.ok("restored").err

    assert notes == [
        "2 jobs of task resise wait, and no worker runs that task: is the name right? See holdfast workers"
    ]


def test_a_wrong_count_is_found(shell):
    """What is kept is compared with what there is; what is worth knowing is noted all the same."""
    shell.add("a")
    with shell.queue() as queue:
        queue.pause("b")
        store = queue.connection.engine.store
        key = next(iter(store.read(lambda txn: txn.counts())))
        store.run(lambda txn: (Changes(counts={key: 41}), None))

    said = shell.run("doctor")

    assert said.code == 1
    assert "✗ the count of a QUEUED is 42, but 1 were found" in said.out
    assert "· paused: task b" in said.out
    assert shell.run("doctor", "--json").record["ok"] is False


def delete_by_hand(url, job_id):
    """Delete the record of a job behind the store's back."""
    if url.startswith("postgresql"):
        with closing(PostgresStore(url)) as store:
            sql = f'DELETE FROM "{store.address.schema}".jobs WHERE id = {job_id}'
            store.run(lambda txn: (Changes(), cast(Any, txn).connection.change(sql)))
    elif url.startswith("redis"):
        address = parse(url)
        keys = Keys(address.prefix)
        with closing(server_of(address, keys.base)) as server:
            assert server.call(b"HDEL", keys.jobs, member(job_id)) == 1
    else:
        for file in Path().rglob("*.db"):
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute("DELETE FROM holdfast_jobs WHERE id = ?", (job_id,))


@pytest.fixture(params=["sqlite:///jobs.db", "sqlite:///jobs?shards=2", "postgres_url", "redis_server"])
def url(request):
    """The address of an empty store."""
    if "sqlite" in request.param:
        return request.param
    server = request.getfixturevalue(request.param)
    return server if isinstance(server, str) else server.url()


def test_jobs_deleted_by_hand_are_found_and_the_counts_are_repaired(url, shell):
    """With counts that are too high `holdfast worker --until-empty` would wait for ever."""
    with connect(url) as queue:
        added = {queue.add("a", n).id for n in range(9)}
        running = queue.claim(renew=False)[0].id
    for job_id in [running, *sorted(added - {running})[1:]]:
        delete_by_hand(url, job_id)

    said = shell.run("doctor", "--store", url)
    assert said.code == 1
    assert "the count of a QUEUED is 8, but 1 were found; if jobs were deleted by hand" in said.out
    assert "the count of a RUNNING is 1, but 0 were found" in said.out
    said = shell.run("doctor", "--repair", "--store", url)

    assert "the count of" not in said.out
    with connect(url) as queue:
        assert queue.counts() == {"a": {"QUEUED": 1}}
        queue.claim(renew=False)[0].done()
        assert not queue.connection.ask(HasUnfinished())


def test_counts_are_not_repaired_through_a_server(shell):
    """It has no command for that."""
    assert "the store itself" in shell.refused("doctor", "--repair", "--store", "grpc://127.0.0.1:1", code=2)


def test_a_job_in_a_place_that_there_is_not_is_listed_as_damaged(shell):
    """When it ended is not known."""
    shell.add("a")
    with closing(sqlite3.connect(shell.file)) as connection, connection:
        connection.execute("UPDATE holdfast_jobs SET place = 77")

    row = shell.ok("jobs").lines[1]

    assert row.split()[2:5] == ["FAILED", "ended", "500"]
    assert "damaged: its record cannot be read any more" in row
    assert "the count of a FAILED is 0, but 1 were found" in shell.run("doctor").out
    assert shell.ok("doctor", "--repair").lines[-1] == "✓ nothing is wrong"


def test_large_stores_say_that_their_counts_were_not_checked(shell, monkeypatch):
    """Unless that is asked for."""
    monkeypatch.setattr(doctor, "COUNTED", 0)
    shell.add("a")

    assert "the counts were not checked" in shell.ok("doctor").out
    assert "the counts were not checked" not in shell.ok("doctor", "--full").out


def test_a_clock_that_was_set_back_is_found(shell):
    """By jobs from the future."""
    with shell.queue(clock=lambda: system_clock() + 7_200_000) as later:
        later.add("a")

    said = shell.run("doctor")

    assert said.code == 1
    assert "in the future: this machine's clock" in said.out


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_shell_learns_our_words(shell, name):
    """From a script that asks us."""
    assert "_HOLDFAST_COMPLETE" in shell.ok("completion", name).out


def test_a_shell_that_we_do_not_know_is_refused(shell):
    """And none at all."""
    shell.refused("completion", "csh", code=2)
    shell.refused("completion", code=2)


def completions(*words: str) -> list[str]:
    """What a shell would offer for the last of these words."""
    *args, incomplete = words
    return [
        item.value
        for item in ShellComplete(app, {}, "holdfast", "_HOLDFAST_COMPLETE").get_completions(args, incomplete)
    ]


def test_commands_options_tasks_and_schedules_are_completed(shell):
    """The latter two from the store, if there is one."""
    assert completions("re") == ["requeue", "retention", "resume", "restored"]
    assert completions("jobs", "--st") == ["--state", "--stuck", "--store"]
    assert [word.upper() for word in completions("jobs", "--state", "FA")] == ["FAILED"]
    assert completions("jobs", "--task", "") == []
    assert not shell.file.exists()

    shell.add("resize")
    shell.ok("schedule", "nightly", "report", "--cron", "@daily")

    assert completions("jobs", "--task", "re") == ["resize"]
    assert completions("add", "") == ["resize"]
    assert completions("schedule", "") == ["nightly"]
    assert completions("--store", "none.db", "jobs", "--task", "") == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_does(shell, command):
    """In its own help, and in a line of the whole."""
    said = shell.ok(command, "--help")

    assert said.out.startswith(f"Usage: holdfast {command} ")
    assert f"\n  {command} " in shell.ok("--help").out
    assert shell.ok(command, "-h").out == shell.ok("help", command).out == said.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_does(command):
    """No option is left without words."""
    context = click.Context(app)
    found = app.get_command(context, command)

    assert found is not None
    silent = [p.name for p in found.params if isinstance(p, click.Option) and not p.help]
    assert silent == []


def test_the_help_tells_the_exit_codes(shell):
    """All that are promised."""
    out = shell.ok("--help").out

    assert all(f"{code:>5}  {text}" in out for code, text in MEANINGS.items())


def test_no_command_at_all_shows_the_help_and_is_wrong_usage(shell):
    """On stderr, since nothing was answered."""
    said = shell.run()

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("Usage: holdfast")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("job", "did you mean jobs"),
        ("logs", "did you mean show"),
        ("cancle", "did you mean cancel"),
        ("ls", "did you mean jobs"),
        ("retry", "did you mean requeue"),
        ("unschedule", "did you mean schedule NAME --delete"),
        ("frobnicate", ""),
        ("x" * 500, ""),
    ],
)
def test_an_unknown_command_brings_up_its_neighbours(shell, word, hint):
    """And is cut where it is long."""
    err = shell.refused(word, code=2)

    assert hint in err
    assert len(err) < 200


def test_errors_are_objects_for_programs(shell):
    """Ours and those of usage; whatever the word stands before."""
    shell.add("a")
    wrong = {("show", "12"): ("NOT_FOUND", 3), ("show",): ("USAGE", 2), ("add", ""): ("BAD_INPUT", 2)}

    for words, (code, exit_code) in wrong.items():
        error = json.loads(shell.refused(*words, "--json", code=exit_code))["error"]
        assert (error["code"], error["exit"]) == (code, exit_code)
        assert error["message"]


def test_the_store_may_be_said_before_or_behind_the_command(shell):
    """Or in the environment; what is said last wins, and words win over the environment."""
    shell.ok("add", "a", "--store", "one.db")
    shell.ok("--store", "sqlite:///two.db", "add", "b")

    def task(*words: str, **environment: str) -> str:
        return str(shell.run(*words, "--json", **environment).record["task"])

    assert task("--store", "one.db", "jobs") == task("jobs", "--store", "one.db") == "a"
    assert task("--store", "one.db", "jobs", "--store", "two.db") == "b"
    assert task("jobs", HOLDFAST_STORE="two.db") == "b"
    assert task("jobs", "--store", "one.db", HOLDFAST_STORE="two.db") == "a"
    assert task("--store", "one.db", "jobs", HOLDFAST_STORE="two.db") == "a"
    assert not shell.file.exists()


def test_the_retention_is_shown_and_changed(shell):
    """A day, unless it is set."""
    shell.ok("add", "work")

    assert shell.ok("retention").out == "1d\n"
    assert shell.ok("retention", "7d").out == "7d\n"
    assert shell.ok("retention", "--json").record == {"retention_ms": 604_800_000}
    assert "retention is" in shell.refused("retention", "soon", code=2)
