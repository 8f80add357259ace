"""Each verb of the table has a path, a command and a description, and a new one has them at once."""

import click
import pytest
from click.testing import CliRunner

from holdfast.cli.app import FILES, app
from holdfast.cli.verb_commands import command_of
from holdfast.cli.verbs import VERB_COMMANDS, build, names_of
from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.verbs import VERBS, VerbRow
from holdfast.indexed import Progress
from holdfast.serve.http.api import PLANS, SPECIAL
from holdfast.serve.http.openapi import document
from holdfast.serve.http.routes import plan_of

# What only programs ask: workers about their claims, and clients of logs.
OF_PROGRAMS = {
    *(c.Claim, c.Answer, c.Release, c.Extend, c.Report, c.Step, c.WriteLog, c.ReserveIds),
    *(c.Append, q.ReadLog, q.GetTime),
}


def found(command: str) -> click.Command | None:
    """The command of a verb, which may be an option of one."""
    words, _, flag = command.partition(" --")
    at: click.Command | None = app
    for word in words.split():
        at = at.get_command(click.Context(at), word) if isinstance(at, click.Group) else None
    if at is None or not flag or any(f"--{flag}" in param.opts for param in at.params):
        return at
    return None


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: f"{verb.method} {verb.path}")
def test_every_verb_has_a_path_a_command_and_a_description(verb):
    """Only what programs alone ask has no command."""
    operation = document()["paths"][verb.path.replace(":path}", "}")][verb.method.lower()]
    served = {(plan.route.method, plan.route.path) for plan in PLANS} | {one[:2] for one in SPECIAL}

    assert (verb.method, verb.path) in served
    assert operation["description"]
    assert verb.kind in OF_PROGRAMS if not verb.command else found(verb.command) is not None


def test_every_command_has_help_and_so_have_its_options():
    """Those that are made of the table; and no function is left without a verb."""
    made = [command_of(name) for name in names_of() if name not in FILES]
    for command in made:
        assert command is not None
        below = list(command.commands.values()) if isinstance(command, click.Group) else []
        for one in (command, *below):
            lacking = [p.name for p in one.params if isinstance(p, click.Option) and not p.help]
            assert (one.help or "").strip(), one.name
            assert lacking == [], one.name

    assert VERB_COMMANDS.keys() <= {verb.command for verb in VERBS}


@pytest.fixture
def consumer(shell):
    """A consumer that has processed seven."""
    with shell.queue() as queue:
        Progress(queue, "verify", start=7).initialize()
    return "verify"


def test_a_new_verb_has_a_command_and_a_path_at_once(shell, consumer):
    """Of its record's fields; the reply is shown as HTTP sends it."""
    get = VerbRow("GET", "/v1/marks/{name}", q.GetProgress, "mark")
    move = VerbRow("POST", "/v1/marks/{name}/move", c.MoveProgress, "move")

    commands = [build(verb.command, [get, move]) for verb in (get, move)]
    words = [[consumer], [consumer, "--to", "9"], [consumer]]
    said = []
    for command, more in zip((commands[0], commands[1], commands[0]), words, strict=True):
        assert command is not None
        said.append(CliRunner().invoke(command, [*more, "--store", str(shell.file)]))

    assert [part.name for part in plan_of(move).parts] == ["tenant", "to", "resets", "seen"]
    assert [done.exit_code for done in said] == [0, 0, 0]
    assert '"processed": 7' in said[0].output
    assert '"processed": 9' in said[2].output


def test_a_job_is_changed(shell):
    """Only by what was given."""
    job_id = shell.add("a", "--priority", 7)

    assert shell.ok("update", job_id, "--data", '{"width": 3}').out == f"job {job_id}: QUEUED\n"
    record = shell.ok("update", job_id, "--run-at", "2040-01-01T00:00:00Z", "--json").record

    assert (record["priority"], record["run_at"]) == (7, "2040-01-01T00:00:00.000Z")
    assert shell.ok("show", job_id, "--json").record["data"] == {"width": 3}
    assert "priority is 1001" in shell.refused("update", job_id, "--priority", 1001, code=2)
    assert "--data is not JSON" in shell.refused("update", job_id, "--data", "{", code=2)
    assert "there is no job 12" in shell.refused("update", 12, "--priority", 3, code=3)


def test_an_option_of_a_verb_stands_alone(shell):
    """Zero is given too."""
    shell.ok("limit", "cdn", "--concurrency", 1)

    assert "nothing else" in shell.refused("limit", "cdn", "--off", "--concurrency", 0, code=2)
