"""The command line: `holdfast`, and `python -m holdfast`.

    app        the table of commands; each is imported when it is called
    session    the options that all commands have: store, tenant, form of output
    exits      errors, as text on stderr and as exit codes
    output     tables for people, JSON lines for programs, progress

One file for each command, in `commands/`. A command parses its arguments, calls the queue and prints the
reply; other logic belongs in the rules. Modules that are slow to import are imported inside functions.
"""

import sys


def main() -> None:
    """Run the command line of this process, and exit."""
    try:
        if sys.argv[1:2] == ["worker"] and not {"-h", "--help"} & {*sys.argv}:
            from ..work.supervisor.executor_process import start_early

            start_early()
        from .app import app
    except KeyboardInterrupt:
        sys.exit(130)  # Exit.INTERRUPTED, which is not imported yet
    app.main()
