"""Stages of a pipeline: what each does, where it finds its jobs, and what becomes of what it returns.

source ──▶ stage ──▶ stage            the next one sees what the one before has finished
source ──▶ stage ──▶ log ──▶ stage    or what it has put into a log
source ──▶ stage (via=queue)          its jobs are jobs of an ordinary queue, for workers anywhere
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from ..core.bounds import MAX_INDEX, MAX_PROCESSING
from ..core.checks import check_name, check_whole
from ..core.errors import BadInput
from ..queue.base import BaseQueue
from ..queue.encoding import as_json_type
from ..queue.options import JobOptions
from ..queue.task import Task
from .base import OnAdvance
from .group import Restart
from .log import BaseLog
from .source import IndexedJob, Items

# After how many indexes of its reader the log between two stages is trimmed.
TRIM_EVERY = 1_000
# How long a stage waits for a job of a queue before it looks whether it is to stop.
PATIENCE_S = 1


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage; made by `stage`."""

    run: Any
    name: str
    max_processing: int
    max_ahead: int
    start: int
    into: Any
    via: Any
    on_advance: OnAdvance | None
    restart: Restart | None


def stage(
    run: Any,
    *,
    name: str | None = None,
    max_processing: int = 1,
    max_ahead: int = 0,
    start: int = 0,
    into: Any = None,
    via: Any = None,
    on_advance: OnAdvance | None = None,
    restart: Restart | None = None,
) -> Stage:
    """A stage of a pipeline: a function of a job, and how many of them run at once.

    `into` is a log that takes the items which the function returns; the next stage reads that log. `via` is a
    queue whose workers do the work: `run` is then a task of it, or a task's name, and gets the item.
    """
    if via is None and not callable(run):
        raise BadInput(f"stage {name or ''}".rstrip(), type(run).__name__, needed="a function of a job")
    named = name or _name_of(run)
    check_name("stage", named)
    check_whole("max_processing", max_processing, 0, MAX_PROCESSING)
    check_whole("max_ahead", max_ahead, 0, MAX_INDEX)
    check_whole("start", start, 0, MAX_INDEX)
    if via is not None and not isinstance(via, BaseQueue):
        raise BadInput("via", type(via).__name__, needed="a queue")
    if via is not None and not isinstance(run, str | Task):
        raise BadInput(f"stage {named}", type(run).__name__, needed="a task of the queue, or a task's name")
    if into is not None and not isinstance(into, BaseLog):
        raise BadInput("into", type(into).__name__, needed="a Log")
    return Stage(
        run=run,
        name=named,
        max_processing=max_processing,
        max_ahead=max_ahead,
        start=start,
        into=into,
        via=via,
        on_advance=on_advance,
        restart=restart,
    )


def _name_of(run: Any) -> str:
    return run if isinstance(run, str) else str(getattr(run, "name", None) or getattr(run, "__name__", ""))


def as_stages(given: tuple[Any, ...]) -> list[Stage]:
    """Functions as stages; each needs a name of its own, because its progress is kept by it."""
    stages = [one if isinstance(one, Stage) else stage(one) for one in given]
    names = [one.name for one in stages]
    if not stages:
        raise BadInput("pipeline", "no stages", needed="a source and at least one stage")
    for name in names:
        if names.count(name) > 1:
            raise BadInput("stage", name, needed="a name that no other stage of the pipeline has")
    return stages


def consumer_name(pipeline: str, one: Stage) -> str:
    """The consumer name of a stage; also part of the keys of the items that it appends."""
    return f"{pipeline}.{one.name}"


def keys_for(one: Stage, pipeline: str, job: IndexedJob[Any], count: int) -> list[str] | None:
    """Keys for what a stage made of a job, the same each time that it works on it; None: the log's own."""
    if one.into.finds_keys:
        return None
    return [f"{consumer_name(pipeline, one)}/{job.index}/{n}" for n in range(count)]


def items_of(one: Stage, result: Any) -> list[Any]:
    """What a stage returned for its log; the result of a queue's job is read along the log's type."""
    if result is None:
        return []
    if one.via is None:
        return list(result)
    items: Items[Any] = one.into.items
    plain = msgspec.to_builtins(result, enc_hook=as_json_type)
    return [msgspec.convert(item, type=items.type) for item in plain]


def call_of(one: Stage, pipeline: str, job: IndexedJob[Any]) -> Any:
    """The job of a queue that a stage's work on an index is; while it has not ended there is only one."""
    options: JobOptions = {"unique": f"{consumer_name(pipeline, one)}/{job.index}"}
    task = one.run if isinstance(one.run, Task) else one.via.tasks.get(one.run)
    if task is not None:
        return task.using(**options).call(job.item)
    return one.via.call(one.run, job.item, **options)


def is_time_to_trim(old: int, new: int) -> bool:
    """Whether the log between two stages is trimmed after this advance of its reader."""
    return old // TRIM_EVERY != new // TRIM_EVERY
