"""How a failed command ends: a text on stderr, and an exit code by the kind of error."""

import json
import os
import sys
import traceback
from enum import IntEnum
from pathlib import Path

import click

from ..core.errors import (
    AppError,
    BadInput,
    Forbidden,
    HoldfastError,
    JobFailed,
    NotFound,
    Refused,
    StoreError,
    StoreMissing,
    Timeout,
    Unauthenticated,
)


class Exit(IntEnum):
    """The exit codes. They are promised in docs/command-line.md: never change one."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    STORE = 5
    TIMEOUT = 6
    JOB_FAILED = 7
    INTERRUPTED = 128 + 2  # as shells report SIGINT
    BROKEN_PIPE = 128 + 13  # and of SIGPIPE


MEANINGS = {
    Exit.OK: "success",
    Exit.ERROR: "any other error, doctor found a problem, or you answered no",
    Exit.USAGE: "wrong usage or bad input; nothing was changed",
    Exit.NOT_FOUND: "there is no such job, schedule, limit, pause, consumer, token or stored handler",
    Exit.REFUSED: "the job's state, or the token, does not allow it",
    Exit.STORE: "the store is missing, damaged, full, too new or not reachable",
    Exit.TIMEOUT: "add --wait: the job did not end in time",
    Exit.JOB_FAILED: "add --wait: the job ended without a result; handler run: it did not end well",
    Exit.INTERRUPTED: "interrupted by Ctrl-C",
}

# What to check if there is no store, for commands that find it in another way than most.
_STORE_OF = {
    "worker": "--store, or the address in your module",
    "move": "FROM",
    "restored": "URL",
}
# Options of such servers in other programs.
_LISTEN_OPTIONS = ("--port", "-p", "--host", "--bind", "--listen", "--address")

# The first match counts.
_CODES: tuple[tuple[type[Exception], Exit], ...] = (
    (BadInput, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (Refused, Exit.REFUSED),
    (Forbidden, Exit.REFUSED),
    (Unauthenticated, Exit.REFUSED),
    (StoreError, Exit.STORE),
    (Timeout, Exit.TIMEOUT),
    (JobFailed, Exit.JOB_FAILED),
)


def code_of(error: Exception) -> Exit:
    """The exit code of an error."""
    if isinstance(error, click.UsageError):
        return Exit.USAGE
    if isinstance(error, OSError) and error.filename and not isinstance(error, HoldfastError):
        # Files are named by --store and --file; errors of the latter are usage errors.
        return Exit.STORE
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.ERROR)


def missing_hint(command: click.Command | None) -> str:
    """What to check, and what creates a store, for a command that found none."""
    name = "" if command is None else command.name or ""
    checked = _STORE_OF.get(name, "--store and HOLDFAST_STORE")
    creating = [] if name in _STORE_OF else ["`holdfast add`"]
    if command is not None and any(one.name == "create" for one in command.params):
        creating.append("--create")
    if not creating:
        return f"; check {checked}"
    verb = "makes" if len(creating) == 1 else "make"
    return f"; check {checked}; {' and '.join(creating)} {verb} a new store"


def tell(error: Exception, *, as_json: bool, command: click.Command | None = None) -> Exit:
    """Print an error of a command on stderr, and return the exit code."""
    code, name, text, hint = code_of(error), "ERROR", "", ""
    if isinstance(error, HoldfastError):
        name, text = error.code, str(error)
        if isinstance(error, StoreMissing):
            text += missing_hint(command)
        if isinstance(error, AppError) and error.trace and not as_json:
            complain(error.trace.rstrip())
    elif isinstance(error, click.UsageError):
        name, text = "USAGE", " ".join(_usage_text(error).split())
        if error.ctx is not None:
            hint = f"Try '{error.ctx.command_path} --help'."
    elif isinstance(error, click.ClickException):
        text = error.format_message()
    elif isinstance(error, OSError):
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    else:
        name, text = "UNEXPECTED", _unexpected(error)
    if as_json:
        # The traceback and the hint are for people.
        words = json.dumps({"error": {"code": name, "message": text, "exit": int(code)}})
    else:
        words = f"holdfast: {text}" + (f"\n{hint}" if hint else "")
    complain(words)
    return code


def _usage_text(error: click.UsageError) -> str:
    """The text of click, but for an option that other servers have it names the one of Holdfast."""
    known = [] if error.ctx is None else [name for one in error.ctx.command.params for name in one.opts]
    if isinstance(error, click.NoSuchOption) and error.option_name in _LISTEN_OPTIONS and "--http" in known:
        return f"{error.message} Did you mean '--http HOST:PORT'?"
    return error.format_message()


def complain(words: str) -> None:
    """Write to stderr; ignored if it is closed."""
    try:
        click.echo(words, err=True)
    except OSError:
        pass


def _unexpected(error: Exception) -> str:
    """Where the error occurred, without its text: that could contain data of a job."""
    if os.environ.get("HOLDFAST_DEBUG"):
        traceback.print_exception(error)
    where = ""
    if frames := traceback.extract_tb(error.__traceback__):
        where = f" in {frames[-1].name}, line {frames[-1].lineno} of {Path(frames[-1].filename).name}"
    return (
        f"unexpected {type(error).__name__}{where}; this is a bug in Holdfast, "
        "please report it (HOLDFAST_DEBUG=1 shows more)"
    )


def hush() -> None:
    """The reader of stdout has closed it: avoid a second error when Python flushes it at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        # A replacement without a file descriptor.
        pass
