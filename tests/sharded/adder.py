"""Adds, works and ends unique jobs on shards until it is killed: `python -m tests.sharded.adder URL`."""

import itertools
import sys

import holdfast
from holdfast.core.errors import HoldfastError


def main(url: str) -> None:
    """Go on for ever; who starts it kills it."""
    queue = holdfast.connect(url)
    queue.counts()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for n in itertools.count():
        then = queue.call("next", {}, unique="k", domain=f"d{n % 7}") if n % 3 == 0 else None
        try:
            queue.add("work", n, unique=f"k{n % 20}", domain=f"d{n % 7}", then=then)
            queue.add("work", n, unique=f"k{n % 20}", on_conflict="replace")
            for job in queue.claim(limit=2, renew=False):
                job.done(n)
        except HoldfastError:
            # Busy files.
            continue


if __name__ == "__main__":
    main(sys.argv[1])
