"""The table of commands, and the handling of all their errors."""

import difflib
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from .exits import MEANINGS, Exit, complain, hush, tell
from .session import COMPLETE, settings

# The commands that are not made of the table of verbs (`core.verbs`), and their files.
_TOOLS = ("sync", "migrate", "restored", "completion", "version")
_OWN = (
    "add",
    "show",
    "handler",
    "worker",
    "top",
    "stats",
    "serve",
    "journal",
    "doctor",
    "move",
    "bench",
)
FILES = (
    {name: name for name in _OWN}
    | {"import": "importing"}
    | dict.fromkeys(_TOOLS, "tools")
    | {"dashboard": "serve"}
)
# All of them in the order of the help text; others of that table come last.
COMMANDS = (
    *(
        "add",
        "jobs",
        "show",
        "why",
        "counts",
        "update",
        "cancel",
        "requeue",
        "signal",
        "delete",
        "purge",
        "retention",
    ),
    *("pause", "resume", "limit", "limits", "schedule", "schedules", "consumers", "handler", "worker"),
    *(
        "sync",
        "import",
        "workers",
        "top",
        "stats",
        "serve",
        "dashboard",
        "journal",
        "token",
        "doctor",
        "migrate",
        "move",
    ),
    *("restored", "bench", "completion", "version"),
)

# Names of such commands in other programs.
SYNONYMS = {
    **dict.fromkeys(("list", "ls", "ps", "queue"), "jobs"),
    **dict.fromkeys(("status", "count", "info"), "counts"),
    **dict.fromkeys(("get", "inspect", "log", "logs", "result", "describe"), "show"),
    **dict.fromkeys(("enqueue", "push", "put", "submit", "send", "new", "create"), "add"),
    **dict.fromkeys(("retry", "rerun", "restart"), "requeue"),
    **dict.fromkeys(("edit", "change", "modify", "patch"), "update"),
    **dict.fromkeys(("rm", "remove", "del"), "delete"),
    **dict.fromkeys(("kill", "stop", "abort"), "cancel"),
    **dict.fromkeys(("clean", "prune", "vacuum", "gc"), "purge"),
    **dict.fromkeys(("check", "health", "verify"), "doctor"),
    **dict.fromkeys(("cron", "every", "at"), "schedule"),
    "unschedule": "schedule NAME --delete",
    "unlimit": "limit DOMAIN --off",
    "unpause": "resume",
    "restore": "restored",
    **dict.fromkeys(("watch", "monitor"), "top"),
    **dict.fromkeys(("handlers", "function", "deploy"), "handler"),
    **dict.fromkeys(("web", "ui", "gui"), "dashboard"),
}


class App(click.Group):
    """`holdfast`: its commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the table."""
        from .verbs import names_of

        return list(dict.fromkeys([*COMMANDS, *names_of()]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in FILES:
            from .verb_commands import command_of

            return command_of(cmd_name)
        module = importlib.import_module(f"{__package__}.commands.{FILES[cmd_name]}")
        command: click.Command = getattr(module, "import_" if cmd_name == "import" else cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click, but for an unknown command the error suggests similar ones."""
        name = args[0]
        is_known = name in COMMANDS or name.startswith("-") or ctx.resilient_parsing
        if not is_known and self.get_command(ctx, name) is None:
            raise click.UsageError(f"there is no command {_cut(name)!r}{_nearest(name)}", ctx)
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command line and exit with its code; it never prints a traceback of its own."""
        words = list(sys.argv[1:] if args is None else args)
        if words[:1] == ["help"]:
            words = [*words[1:], "--help"]
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                # Closed by the program that started this one; a file of ours must not get its number.
                setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
        for stream in (sys.stdout, sys.stderr):
            if reconfigure := getattr(stream, "reconfigure", None):
                # Characters that the terminal cannot show are escaped instead of an error.
                reconfigure(errors="backslashreplace")
        sys.exit(self._run(words, **extra))

    def _run(self, words: list[str], **extra: Any) -> int:
        as_json = "--json" in words[: words.index("--")] if "--" in words else "--json" in words
        ctx: click.Context | None = None
        try:
            if instruction := os.environ.get(COMPLETE):
                return _complete(self, instruction)
            with self.make_context("holdfast", words, **extra) as ctx:
                self.invoke(ctx)
            sys.stdout.flush()
            return Exit.OK
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.ctx.get_help(), err=True)
            return Exit.USAGE
        except click.exceptions.Exit as end:
            return _flushed(end.exit_code, as_json=as_json)
        except (KeyboardInterrupt, click.Abort):
            if sys.stderr.isatty():
                complain("")  # the terminal has shown ^C
            return Exit.INTERRUPTED
        except BrokenPipeError:
            hush()
            return Exit.BROKEN_PIPE
        except Exception as error:
            name = ctx.invoked_subcommand if ctx else None
            command = self.get_command(ctx, name) if ctx and name else None
            return _flushed(tell(error, as_json=as_json, command=command), as_json=as_json)


def _complete(command: click.Command, instruction: str) -> int:
    """Answer the completion request of a shell; see `holdfast completion`."""
    from click.shell_completion import shell_complete

    return shell_complete(command, {}, "holdfast", COMPLETE, instruction)


def _flushed(code: int, *, as_json: bool) -> int:
    """The exit code, after stdout was flushed."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        hush()
    except OSError as error:
        hush()
        return code or tell(error, as_json=as_json)
    return code


def _cut(name: str) -> str:
    return name if len(name) <= 40 else name[:40] + "…"


def _nearest(name: str) -> str:
    """Similar names."""
    known = dict(zip(COMMANDS, COMMANDS, strict=True)) | SYNONYMS
    words = [name] if name in known else difflib.get_close_matches(name, known, n=2)
    near = list(dict.fromkeys(known[word] for word in words))
    near = near or [command for command in COMMANDS if command.startswith(name[:3])]
    return f"; did you mean {' or '.join(near[:2])}?" if near else ""


def _epilog(meanings: Iterable[tuple[Exit, str]]) -> str:
    lines = [f"{code:>5}  {text}" for code, text in meanings]
    # The mark keeps click from rewrapping the lines.
    return "\b\nExit codes:\n" + "\n".join(lines)


@click.group(
    cls=App,
    epilog=_epilog(MEANINGS.items()),
    invoke_without_command=True,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@settings(env=True)
@click.option("--version", is_flag=True, help="Show the version and exit.")
@click.pass_context
def app(ctx: click.Context, *, version: bool) -> None:
    """Holdfast, a durable job queue: add, list, run and manage jobs.

    Jobs are kept in a store: the file jobs.db in the current folder, unless --store or HOLDFAST_STORE
    names another. `holdfast COMMAND --help` describes a command, docs/command-line.md all of them.
    """
    if version:
        command = app.get_command(ctx, "version")
        assert command is not None
        ctx.invoke(command)
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)
