"""`manage.py holdfast`: the command line of Holdfast, over the queue of the project."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from .....cli.app import app
from ...project import queue_of_project

# Commands that take the name of a queue instead of the address of a store; others are given that.
OF_QUEUES = {"worker": ["--create"], "sync": []}
QUEUE = "holdfast.contrib.django.worker:queue"
# Options of Django's that `manage.py` has read; the rest is for `holdfast`.
_DJANGO = ("--settings", "--pythonpath")


class ManageCommand(BaseCommand):
    """Runs `holdfast` with the store of the project."""

    help = "Run a command of Holdfast on the queue of this project: worker, counts, show, …"
    requires_system_checks: Sequence[str] = []

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command line of a process, and exit with its code."""
        words, rest = [], iter(argv[2:])
        for word in rest:
            if word in _DJANGO:
                next(rest, None)
            elif not word.startswith(tuple(f"{option}=" for option in _DJANGO)):
                words.append(word)
        _run(words)

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """What `manage.py help holdfast` shows."""
        _run(["--help"])

    def add_arguments(self, parser: Any) -> None:
        """For `call_command("holdfast", "counts")`."""
        parser.add_argument("words", nargs="*")

    def handle(self, *, words: Sequence[str], **_: Any) -> None:
        """Run a command by `call_command`."""
        try:
            _run(list(words))
        except SystemExit as end:
            if end.code:
                raise CommandError(f"holdfast {words[0]} failed", returncode=end.code) from None


# The name that Django looks for.
Command = ManageCommand


def _run(words: list[str]) -> None:
    queue = queue_of_project()
    at = next((at for at, word in enumerate(words) if not word.startswith("-")), 0)
    if words and words[at] in OF_QUEUES:
        words[at + 1 : at + 1] = [QUEUE, *OF_QUEUES[words[at]]]
        # Executors import the project too: from the folder of `manage.py`, or from that of --pythonpath.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    else:
        words = ["--store", queue.url, *(["--tenant", queue.tenant] if queue.tenant else []), *words]
    app.main(words)
