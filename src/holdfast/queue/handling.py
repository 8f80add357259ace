"""How a task's function is called: what the decorator says of it, and no job knows."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypedDict

from ..core.bounds import CLAIM_JOBS
from ..core.checks import check_whole
from ..core.durations import duration_ms
from ..core.errors import BadInput
from .options import Duration, JobOptions


class HandlingOptions(TypedDict, total=False):
    """What can be said of a task besides the options of its jobs."""

    soft_timeout: Duration | None
    cancel: Literal["tell", "raise"]


class Handling(NamedTuple):
    """How a task's function is called."""

    # How many jobs one call takes; 0: one job, as arguments.
    batch: int = 0
    soft_ms: int = 0
    # A coroutine whose job is cancelled is cancelled too.
    raises: bool = False
    is_coroutine: bool = False


def handling(function: Callable[..., Any], name: str, said: dict[str, Any], options: JobOptions) -> Handling:
    """What was said, checked."""
    batch, soft, cancel = (said.get(word) for word in ("batch", "soft_timeout", "cancel"))
    if batch is not None:
        check_whole("batch", batch, 1, CLAIM_JOBS)
    is_coroutine = inspect.iscoroutinefunction(function)
    if cancel not in (None, "tell", "raise"):
        raise BadInput("cancel", cancel, needed="tell or raise")
    if cancel == "raise" and not is_coroutine:
        raise BadInput("cancel", cancel, needed=f"tell: task {name} is no coroutine function")
    return Handling(
        batch=batch or 0,
        soft_ms=0 if soft is None else _soft_ms(soft, options),
        raises=cancel == "raise",
        is_coroutine=is_coroutine,
    )


def _soft_ms(soft: Duration, options: JobOptions) -> int:
    soft_ms = duration_ms(soft, name="soft_timeout")
    hard = options.get("timeout")
    if not soft_ms or (hard is not None and soft_ms >= duration_ms(hard, name="timeout")):
        below = "" if hard is None else f" and below the timeout of {hard}"
        raise BadInput("soft_timeout", soft, needed=f"above 0{below}")
    return soft_ms
