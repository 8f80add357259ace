"""Adds, claims and finishes jobs until a file appears: `python -m tests.upgrades.load URL FILE`.

Prints what was acknowledged. Exits with 3, and the reason, if it may not use the store any more.
"""

import os
import sys

import holdfast


def main(url: str, until: str) -> None:
    """Work until the file appears, then set a limit."""
    with holdfast.connect(url) as queue:
        while not os.path.exists(until):  # noqa: PTH110
            say("added", queue.add("work", {"n": 1}).id, queue.add("later", delay=3600).id)
            for job in queue.claim(limit=2, renew=False):
                job.done("ok")
                say("done", job.id)
        queue.limit("host", rate=7)


def say(*words: object) -> None:
    """Print a line at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except holdfast.SchemaMismatch as error:
        say("refused", error)
        sys.exit(3)
