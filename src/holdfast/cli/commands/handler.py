"""`holdfast handler`: sets, reads, lists, runs, rolls back and deletes stored handlers."""

import json
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from ..exits import Exit
from ..output import Listing, answer, emit, note, say, show_list, since
from ..session import Session, now_ms, settings
from ..words import open_input, stdin

if TYPE_CHECKING:
    from ...core.handler import Handler
    from ...work.runners.records import RunResult


@click.group()
def handler() -> None:
    """Set, read, list, run, roll back or delete stored handlers.

    A stored handler is code that the store keeps. `holdfast worker --handlers` and `holdfast serve` run it.
    """


@handler.command("set")
@click.argument("task")
@click.argument("file", required=False)
@click.option("--lang", required=True, help="python, node, shell, http, or another that the worker knows.")
@click.option("--body", help="The code itself, or the URL of an http handler.  [FILE, or standard input]")
@click.option("--eid", help="Handlers with the same one may share a context.")
@click.option("--before", metavar="CODE", help="Run once in each context.")
@click.option("--before-each", metavar="CODE", help="Run before each batch.")
@click.option("--after-each", metavar="CODE", help="Run after each batch.")
@click.option("--batch", is_flag=True, default=None, help="http: one request for a batch of jobs.")
@click.option("--batch-size", type=int, metavar="N", help="Jobs of a batch.")
@click.option("--timeout", metavar="TIME", help="How long a job may take.")
@click.option("--cpu", metavar="TIME", help="How much CPU time a job may use.")
@click.option("--memory-mb", type=int, metavar="N", help="How much memory a context may use.")
@click.option("--output-kb", type=int, metavar="N", help="How much output a job may write.")
@click.option("--open-files", type=int, metavar="N", help="How many files a context may open.")
@click.option("--context-jobs", type=int, metavar="N", help="Replace a context after N jobs.")
@click.option("--context-age", metavar="TIME", help="Replace a context after this time.")
@settings()
@click.pass_obj
def set_handler(session: Session, /, *, task: str, file: str | None, lang: str, **said: Any) -> None:
    """Make a new version of a task's stored handler."""
    body = said.pop("body")
    if body is not None and file is not None:
        raise click.UsageError("give FILE or --body, not both")
    if body is None:
        body = _text(file)
    options = {name: value for name, value in said.items() if value is not None}
    with session.open() as queue:
        kept = queue.handlers.set(task, body, lang=lang, **options)
    answer(_record(kept), f"{task} version {kept.version}", as_json=session.as_json)


def _text(file: str | None) -> str:
    from ...core.errors import BadInput

    with nullcontext(stdin()) if file in (None, "-") else open_input(str(file)) as source:
        raw = source.read()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise BadInput("body", file or "standard input", needed="UTF-8 text") from None


@handler.command("get")
@click.argument("task")
@click.option("--version", type=click.IntRange(1), help="This version.  [the newest]")
@settings()
@click.pass_obj
def get_handler(session: Session, /, *, task: str, version: int | None) -> None:
    """Print the body of a stored handler; with --json all of it."""
    with session.existing() as queue:
        found = queue.handlers.get(task, version)
    if session.as_json:
        emit(_record(found))
    else:
        click.echo(found.body, nl=not found.body.endswith("\n"))


def _row(one: "Handler", now: int) -> tuple[str, ...]:
    return one.task, one.lang, str(one.version), one.eid, since(one.created_at, now)


def _version_row(one: "Handler", now: int) -> tuple[str, ...]:
    return str(one.version), one.lang, str(one.restores or ""), since(one.created_at, now)


HANDLERS = Listing(
    "no handlers",
    ("TASK", "LANG", "VERSION", "EID", "SET"),
    _row,
    lambda one, _now: _record(one),
    right=("VERSION",),
)
VERSIONS = HANDLERS._replace(
    columns=("VERSION", "LANG", "RESTORES", "SET"), row=_version_row, right=("VERSION", "RESTORES")
)


@handler.command("list")
@click.option("--versions", "task", metavar="TASK", help="List the versions of one handler.")
@settings(create=True)
@click.pass_obj
def list_handlers(session: Session, /, *, task: str | None) -> None:
    """List handlers, or the versions of one."""
    with session.existing() as queue:
        found = list(queue.handlers) if task is None else _all_versions(queue, task)
        now = now_ms(queue)
    show_list(HANDLERS if task is None else VERSIONS, found, now, as_json=session.as_json)


def _all_versions(queue: Any, task: str) -> "list[Handler]":
    found: list[Handler] = queue.handlers.versions(task)
    while found[-1].version > 1 and (page := queue.handlers.versions(task, before=found[-1].version)):
        found += page
    return found


@handler.command("delete")
@click.argument("task")
@settings()
@click.pass_obj
def delete_handler(session: Session, /, *, task: str) -> None:
    """Delete a handler with all its versions; its jobs wait for another one."""
    with session.existing() as queue:
        queue.handlers.delete(task)
    answer({"deleted": task}, f"deleted {task}", as_json=session.as_json)


@handler.command("rollback")
@click.argument("task")
@click.option("--version", type=click.IntRange(1), help="As this version was.  [the one before]")
@settings()
@click.pass_obj
def roll_back_handler(session: Session, /, *, task: str, version: int | None) -> None:
    """Make a new version that is as an earlier one was."""
    with session.existing() as queue:
        kept = queue.handlers.roll_back(task, version)
    text = f"{task} version {kept.version}, as version {kept.restores}"
    answer(_record(kept), text, as_json=session.as_json)


@handler.command("run")
@click.argument("task")
@click.argument("payload", required=False)
@click.option("--version", type=click.IntRange(1), help="This version.  [the newest]")
@click.option("--runners", metavar="FILE", help="Settings of runners, as of `holdfast worker`.")
@settings()
@click.pass_obj
def run_handler(
    session: Session, /, *, task: str, payload: str | None, version: int | None, runners: str | None
) -> None:
    """Run a handler once, here and now, without a job.

    PAYLOAD is what it gets, {} if there is none; - reads it from standard input. Its log goes to stderr, its
    result to stdout. The exit code is 7 if it does not end with 2xx.
    """
    raw = os.fsencode(payload or "{}") if payload != "-" else stdin().read()
    with session.existing() as queue:
        found = queue.handlers.get(task, version)
    result = _run_here(found, raw.removesuffix(b"\n"), runners)
    if session.as_json:
        emit(_result_record(result))
    else:
        for line in result.lines:
            note(line)
        for to, data in result.new_jobs:
            note(f"J: {to}|{data.decode(errors='replace')}")
        if result.body is not None:
            say(result.body if isinstance(result.body, str) else result.body.decode(errors="replace"))
        if result.error:
            note(result.error)
    if result.exit_code // 100 != 2:
        raise click.exceptions.Exit(Exit.JOB_FAILED)


def _run_here(found: "Handler", payload: bytes, runners: str | None) -> "RunResult":
    from ...work.runners.isolation import find_isolation
    from ...work.runners.runner import run_once
    from ...work.runners.settings import read_settings

    return run_once(found, payload, find_isolation(read_settings(runners or "", private_hosts=True)))


def _result_record(result: "RunResult") -> dict[str, Any]:
    from ...core.creating import body_of_line
    from ..records import plain

    def value(body: str | bytes | None) -> Any:
        return json.loads(body) if isinstance(body, str) else plain(body)

    return {
        "code": str(result.code),
        "exit_code": result.exit_code,
        "result": value(result.body),
        "error": result.error or None,
        "log": list(result.lines),
        "new_jobs": [{"task": to, "data": value(body_of_line(data))} for to, data in result.new_jobs],
        "cpu_ms": round(result.cpu_ms, 1),
        "wall_ms": round(result.wall_ms, 1),
    }


def _record(one: "Handler") -> dict[str, Any]:
    from msgspec import to_builtins

    from ..records import moment, number

    return {
        "task": one.task,
        "tenant": one.tenant,
        "version": one.version,
        "id": number(one.id),
        "lang": one.lang,
        "eid": one.eid or None,
        "before": one.before or None,
        "before_each": one.before_each or None,
        "body": one.body or None,
        "after_each": one.after_each or None,
        "options": to_builtins(one.options),
        "created_at": moment(one.created_at),
        "restores": one.restores or None,
    }
