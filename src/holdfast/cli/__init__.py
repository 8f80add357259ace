"""The command line: `holdfast`, and `python -m holdfast`.

    app        the table of commands; each is imported when it is called
    session    which store, which tenant, which form of output: the options that all commands have
    exits      what went wrong, in words on stderr and as an exit code
    output     tables for people, JSON lines for programs, progress for the impatient

One file for each command, in `commands/`. A command reads its words, asks the queue and shows the answer;
anything cleverer belongs in the rules. What is slow to import is imported inside it.
"""

from .app import app


def main() -> None:
    """Run the command line of this process, and exit."""
    app.main()
