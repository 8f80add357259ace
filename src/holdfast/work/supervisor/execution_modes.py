"""Execution modes: tasks that share the same slots of an executor. Each mode has its own claim loop.

functions      one slot for each thread
coroutines     as many slots as the option `concurrency` says; they need no thread
a batch task   its batch size for each thread
handlers       as many slots as the option `handler_slots` says, for all tasks with a handler in the store;
               the jobs of one request of an http handler have one slot together
"""

from collections.abc import Collection
from typing import NamedTuple

from ..messages import QueueInfo


class ExecutionMode(NamedTuple):
    """Tasks that are claimed together, and how many of their jobs run at once in an executor."""

    name: str
    slots: int
    is_handlers: bool = False


def handlers_mode(queue_index: int, slots: int) -> ExecutionMode:
    """The execution mode of the handlers in a store."""
    return ExecutionMode(f"handlers of {queue_index}", slots, is_handlers=True)


def choose_modes(
    queue_index: int, found: QueueInfo, chosen: Collection[str], *, threads: int, concurrency: int
) -> dict[str, ExecutionMode]:
    """The execution mode of each chosen task of a queue."""
    functions, coroutines = ExecutionMode("functions", threads), ExecutionMode("coroutines", concurrency)
    modes = {}
    for task in chosen:
        if size := found.batches.get(task):
            modes[task] = ExecutionMode(f"batches of {queue_index} {task}", size * threads)
        else:
            modes[task] = coroutines if task in found.coroutines else functions
    return modes
