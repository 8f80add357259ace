"""Lanes: tasks that share a measure of room. Each has claims of its own, so that none takes another's room.

functions      as many at once as an executor has threads
coroutines     as many at once as `concurrency` says; they need no thread
a batch task   as many as its batches take, for each thread
"""

from collections.abc import Iterable
from typing import NamedTuple

from .messages import Hello


class Lane(NamedTuple):
    """Tasks that are claimed together, and how many of their jobs run at once in an executor."""

    tasks: frozenset[str]
    at_once: int


def lanes_of(hello: Hello, chosen: Iterable[str], *, threads: int, concurrency: int) -> list[Lane]:
    """The lanes of a worker, by what its executors know of its tasks; none is empty."""
    batches = {task: size for task, size in hello.batches.items() if task in chosen}
    coroutines = frozenset(chosen) & frozenset(hello.coroutines)
    functions = frozenset(chosen) - coroutines - frozenset(batches)
    lanes = [Lane(functions, threads), Lane(coroutines, concurrency)]
    lanes += [Lane(frozenset({task}), size * threads) for task, size in sorted(batches.items())]
    return [lane for lane in lanes if lane.tasks]
