"""Migrates a store that others use, and writes what they do not know: run with the next version.

`python -m tests.upgrades.upgrade URL` prints the ids of jobs that have the new field; the last is not due.
"""

import sys

import holdfast
from holdfast.queue.connect import migrate
from tests.upgrades.load import say


def main(url: str) -> None:
    """Migrate, add jobs, set a limit; both with the new field."""
    if url.startswith("postgresql"):
        migrate(url)
    with holdfast.connect(url) as queue:
        queue.limit("host", rate=5)
        ids = [queue.add("work", {"n": 2}).id for _ in range(5)]
        say("added", *ids, queue.add("later", delay=3600).id)


if __name__ == "__main__":
    main(sys.argv[1])
