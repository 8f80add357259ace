"""Lanes: tasks that share a measure of room. Each has claims of its own, so that none takes another's room.

functions      as many at once as an executor has threads
coroutines     as many at once as `concurrency` says; they need no thread
a batch task   as many as its batches take, for each thread
"""

from collections.abc import Collection
from typing import NamedTuple

from ..messages import Found


class Lane(NamedTuple):
    """What is claimed together, and how many such jobs run at once in an executor."""

    name: str
    at_once: int


def lanes_of(
    at: int, found: Found, chosen: Collection[str], *, threads: int, concurrency: int
) -> dict[str, Lane]:
    """The lane of each task that is chosen, by what the executors know of the tasks of a queue."""
    functions, coroutines = Lane("functions", threads), Lane("coroutines", concurrency)
    lanes = {}
    for task in chosen:
        if size := found.batches.get(task):
            lanes[task] = Lane(f"batches of {at} {task}", size * threads)
        else:
            lanes[task] = coroutines if task in found.coroutines else functions
    return lanes
