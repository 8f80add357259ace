"""The options of a job, and the record that they become."""

from collections.abc import Callable, Container, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypedDict, TypeVar, cast

from msgspec.structs import replace

from ..core.bounds import MAX_ATTEMPTS, MAX_RATE_PER_S
from ..core.checks import check_name, check_whole
from ..core.commands import NewJob, OnConflict
from ..core.creating import create
from ..core.defaults import FOLLOWED, Defaults
from ..core.errors import BadInput, Unquoted
from ..core.job import Backoff, Body
from ..core.units import duration_ms, moment_ms
from .encoding import encode_data

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
# The digits of 2**63 - 1.
ID_DIGITS = 19
# What other job queues call an option.
_CALLED_ELSEWHERE = {
    **dict.fromkeys(("max_retries", "max_tries", "retries", "retry"), "attempts"),
    **dict.fromkeys(("default_retry_delay", "min_backoff", "retry_backoff", "retry_delay"), "backoff"),
    **dict.fromkeys(("crontab", "periodic"), "cron"),
    **dict.fromkeys(("_defer_by", "countdown", "schedule_in"), "delay"),
    **dict.fromkeys(("lock", "queue", "queue_name", "rate_limit"), "domain"),
    **dict.fromkeys(("_expires", "expire", "max_age", "ttl"), "expires"),
    **dict.fromkeys(("actor_name", "task_name"), "name"),
    **dict.fromkeys(("_defer_until", "eta", "schedule_at"), "run_at"),
    "link_error": "on_failure",
    "soft_time_limit": "soft_timeout",
    **dict.fromkeys(("job_timeout", "time_limit"), "timeout"),
    "timezone": "tz",
    **dict.fromkeys(("_job_id", "job_id", "queueing_lock", "task_id"), "unique"),
}
# Not an option, because a prepared call may be added later, without the transaction.
NO_CONNECTION = "absent: task.using(connection=…).add(…), queue.add and queue.add_many take a connection"
_CONTEXT = "absent: a function gets its job in a parameter annotated with Context, such as `ctx: Context`"
_NEEDED = {"connection": NO_CONNECTION, **dict.fromkeys(("bind", "pass_context", "context"), _CONTEXT)}
# What other job queues call a method of a task.
METHODS = {
    **dict.fromkeys(("delay", "send", "enqueue", "defer", "kiq"), "add(…)"),
    **dict.fromkeys(("apply_async", "send_with_options", "schedule", "configure"), "using(…).add(…)"),
    **dict.fromkeys(("s", "si", "signature", "message"), "call(…)"),
    **dict.fromkeys(("map", "starmap", "batch_defer"), "add_many(…)"),
    "AsyncResult": "handle(id)",
}
# Options of the function or its schedule, and what takes them.
_DECORATOR, _SCHEDULE = (
    "the decorator of the task",
    "queue.schedule, and the decorator of the task",
)
_TAKEN_BY = {
    **dict.fromkeys(("batch", "cancel", "fail_on", "name", "retry_on", "soft_timeout"), _DECORATOR),
    **dict.fromkeys(("cron", "every", "tz"), _SCHEDULE),
}
# What `at_most_once=True` sets to 1.
_AT_MOST_ONCE = ("attempts", "losses")

Duration = float | int | timedelta | str
Moment = datetime | float | int | str
Key = str | bytes


class HasId(Protocol):
    """A handle, a record or a claimed job."""

    @property
    def id(self) -> int:
        """The id of the job."""


class HasName(Protocol):
    """A task."""

    @property
    def name(self) -> str:
        """The name of the task."""


if TYPE_CHECKING:

    class PreparedCall(NewJob, Generic[R_co], frozen=True, kw_only=True):
        """A job to add, whose task returns this type."""

else:
    PreparedCall = NewJob


class HasCall(Protocol[P, R_co]):
    """A task, or a task with options."""

    def call(self, *args: P.args, **kwargs: P.kwargs) -> "PreparedCall[R_co]":
        """A prepared call."""


JobRef = int | str | HasId
TaskRef = str | HasName
Follower = TaskRef | tuple[TaskRef, Any] | NewJob


class FiringOptions(TypedDict, total=False):
    """Options of a job that a schedule adds."""

    priority: int | None
    delay: Duration | None
    run_at: Moment | None
    expires: Duration | datetime | None
    attempts: int | None
    losses: int | None
    at_most_once: bool | None
    backoff: (
        Duration
        | tuple[Duration, Duration]
        | Backoff
        | Callable[[int, BaseException], Duration | None]
        | None
    )
    timeout: Duration | None
    retry_after: Duration | None
    unique: Key | None
    unique_for: Duration | None
    on_conflict: OnConflict | None
    domain: Key | Callable[..., Key | None] | None
    parent: JobRef | None
    when_child_fails: Literal["resume", "wait"] | None
    then: Follower | None
    into: str | None
    on_failure: Follower | None
    mock: bool | None
    tenant: str | None


class JobOptions(FiringOptions, total=False):
    """All options of a job."""

    repeat: str | None


def check_options(names: Iterable[str], *, known: Iterable[str]) -> None:
    """Raise on an unknown option; the error lists all options."""
    valid = set(known)
    for name in names:
        if name not in valid and name in _NEEDED:
            raise BadInput("option", name, needed=_NEEDED[name])
        if name not in valid and name in _TAKEN_BY:
            raise BadInput("option", name, needed=f"absent here: only {_TAKEN_BY[name]} can take it")
        if name not in valid:
            needed = f"{_hint(name, valid)}one of {', '.join(sorted(valid))}"
            raise BadInput("option", name, needed=needed)


def check_by_name(task: str, names: Iterable[str], parameters: Container[str] = ()) -> None:
    """Raise on an option of an add by name that is meant as an argument."""
    for name in names:
        known = JobOptions.__annotations__
        if name in known or name in _NEEDED or name in _TAKEN_BY:
            continue
        needed = f'in the data, a dict: "{task}", {{"{name}": …}}'
        if name not in parameters:
            needed = f"{_hint(name, set(known))}one of {', '.join(sorted(known))}; an argument is {needed}"
        raise BadInput("option", name, needed=needed)


def _hint(name: str, valid: set[str]) -> str:
    """The option that an unknown one may mean."""
    meant = _CALLED_ELSEWHERE.get(name, "")
    if meant in valid:
        return f"{meant}, as it is called here, or "
    from difflib import get_close_matches

    return "".join(f"{near}, if you mistyped it, or " for near in get_close_matches(name, valid, 1, 0.65))


def merge(base: JobOptions, more: JobOptions) -> JobOptions:
    """Merge options over others; raises on unknown ones. An option that is None counts as not given.

    `at_most_once` sets `attempts` and `losses`: the later of these options wins, and both in one call are
    refused. `into` names a parameter of the `then` in the same call.
    """
    check_options(more, known=JobOptions.__annotations__)
    more = cast(JobOptions, {name: value for name, value in more.items() if value is not None})
    limits = [name for name in _AT_MOST_ONCE if name in more]
    if more.get("at_most_once") and limits:
        raise BadInput(limits[0], more.get(limits[0]), needed="absent: at_most_once=True sets it to 1")
    if more.get("at_most_once"):
        base = _without(base, *_AT_MOST_ONCE)
    elif limits:
        base = _without(base, "at_most_once")
    if "then" in more:
        base = _without(base, "into")
    return JobOptions(**{**base, **more})


def _without(options: JobOptions, *names: str) -> JobOptions:
    return cast(JobOptions, {name: value for name, value in options.items() if name not in names})


def new_job(
    task: str, data: Body, options: JobOptions, *, tenant: str, given: JobOptions | None = None
) -> NewJob:
    """The record of a job with these options. Each is checked.

    `given` are the options that the call itself named; None: all of them.
    """
    if not options:
        return NewJob(task=task, data=data, tenant=tenant)
    fields = read_options(options)
    named = given_names(options if given is None else given)
    return NewJob(**{"task": task, "data": data, "tenant": tenant, "given": named} | fields)


def defaults_of(new: NewJob) -> Defaults:
    """The defaults of a task, from a job without arguments that has its options."""
    job = create(new, job_id=0, now_ms=0)
    said = {name: field for name, field in FOLLOWED.items() if name in new.given and name != "expires"}
    fields: dict[str, Any] = {field: getattr(job, field) for field in said.values()}
    return Defaults(**fields, into=new.into, expires_in_ms=new.expires_in_ms or None)


def with_options(new: NewJob, options: JobOptions) -> NewJob:
    """A prepared call with further options, for those that the call did not name itself."""
    rest: Any = {name: value for name, value in options.items() if name not in new.given}
    if "at_most_once" in rest and not {*_AT_MOST_ONCE}.isdisjoint(new.given):
        del rest["at_most_once"]
    if "then" in new.given:
        rest.pop("into", None)
    if "parent" in rest and new.parent_id:
        del rest["parent"]
    fields = read_options(rest)
    return replace(new, **fields, given=tuple(sorted({*new.given, *given_names(rest)})))


def read_options(options: JobOptions) -> dict[str, Any]:
    """The fields of a `NewJob` for these options."""
    options = merge({}, options)
    fields: dict[str, Any] = {}
    for name, value in options.items():
        fields |= _READERS[name](value)
    return fields


def given_names(options: JobOptions) -> tuple[str, ...]:
    """The names of the given options, sorted; `at_most_once` as the options that it decides about."""
    names = {name for name, value in options.items() if value is not None}
    if "at_most_once" in names:
        names = names - {"at_most_once"} | {*_AT_MOST_ONCE}
    return tuple(sorted(names))


def given_over(base: JobOptions, more: JobOptions, merged: JobOptions) -> JobOptions:
    """The options that a call gives; one that overrides `at_most_once` decides about all that it has set."""
    is_overridden = base.get("at_most_once") and not merged.get("at_most_once")
    return JobOptions(**{**more, "at_most_once": False}) if is_overridden else more


def key_bytes(what: str, value: Key) -> bytes:
    """A domain or unique key: text is written as UTF-8."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise BadInput(what, value, needed="text or bytes")
    return value.encode("utf-8", "surrogatepass")


def _key(name: str, value: Key) -> bytes:
    if not (key := key_bytes(name, value)):
        raise BadInput(name, Unquoted("empty"), needed="at least one byte long; None means none")
    return key


def task_name(value: Any) -> str:
    """The name of a task, from the task itself or its name."""
    name = value if isinstance(value, str) else _name_of(value)
    check_name("task", name)
    # Not `str(name)`: that of a member of an enum of texts is "Tasks.RESIZE".
    return str.__str__(name)


def _name_of(task: Any) -> str:
    name = getattr(task, "name", None)
    if isinstance(task, NewJob):
        raise BadInput("task", "a prepared call", needed="a task, or its name: add_many takes prepared calls")
    _check_bare("task", task)
    if not isinstance(name, str):
        raise BadInput("task", task, needed="a task (a function under @queue.task), or the name of one")
    return name


def _check_bare(what: str, task: Any) -> None:
    """Refuse what `using` returns: its options and its connection would be passed over in silence."""
    if hasattr(task, "call_by_name") and not hasattr(task, "using"):
        needed = "a task, or its name: what using(…) returns has an add and a call of its own"
        raise BadInput(what, f"{task.name} with options", needed=needed)


def job_id(value: Any, what: str = "job id") -> int:
    """The id of a job, from a number, its text, or any object with an `id`."""
    found = getattr(value, "id", value)
    if found == 0 and found is not value:
        # What `call` returns.
        raise BadInput(
            what, "a job that was not added", needed="the id of a job, or a handle or job that has one"
        )
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) <= ID_DIGITS:
        found = int(found)
    check_whole(what, found, 0, (1 << 63) - 1)
    return int(found)


def _parent(value: Any) -> dict[str, Any]:
    found = job_id(value, "parent")
    if not found:
        # The `parent_id` of a job without one, which would add children where siblings are meant.
        raise BadInput("parent", 0, needed="the id of a job; one without a parent has no siblings")
    return {"parent_id": found}


def rate_per_s(value: float | str | None) -> float | None:
    """A rate: starts a second, or text such as "10/s", "100/m", "5/h"."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return None if value is None else float(value)
    number, slash, unit = str(value).partition("/")
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(unit.strip()[:1] if unit.strip() in _UNITS else "")
    try:
        if not slash or seconds is None:
            raise ValueError
        return float(number) / seconds
    except ValueError:
        needed = f"starts a second (up to {MAX_RATE_PER_S:,.0f}), or text such as '10/s', '100/m', '5/h'"
        raise BadInput("rate", value, needed=needed) from None


_UNITS = {"s", "sec", "second", "m", "min", "minute", "h", "hour", "d", "day"}


def _expires(value: Any) -> dict[str, Any]:
    if isinstance(value, datetime):
        return {"expires_at": moment_ms(value, name="expires"), "expires_in_ms": 0}
    return {"expires_in_ms": duration_ms(value, name="expires"), "expires_at": 0}


def _backoff(value: Any) -> dict[str, Any]:
    if isinstance(value, Backoff):
        return {"backoff": value}
    if callable(value):
        needed = "a duration, or two; a function only in the decorator of the task"
        raise BadInput("backoff", value, needed=needed)
    first, most = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    first_ms = duration_ms(first, name="backoff")
    most_ms = max(Backoff().most_ms, first_ms) if most is None else duration_ms(most, name="backoff")
    return {"backoff": Backoff(first_ms=first_ms, most_ms=most_ms)}


def _retry_after(value: Any) -> dict[str, Any]:
    if isinstance(value, str) and value.strip()[:1] in ("+", "-", "S", "W", "s", "w"):
        return {"retry_after": value}
    return {"retry_after": duration_ms(value, name="retry_after")}


def _when_child_fails(value: Any) -> dict[str, Any]:
    if value not in ("resume", "wait"):
        raise BadInput("when_child_fails", value, needed="resume or wait")
    return {"wait_for_failed": value == "wait"}


def _follower(option: str, value: Any) -> dict[str, Any]:
    if isinstance(value, NewJob):
        return {option: value}
    task, data = value if isinstance(value, tuple | list) and len(value) == 2 else (value, None)
    _check_bare(option, task)
    name = task if isinstance(task, str) else getattr(task, "name", None)
    if not isinstance(name, str):
        raise BadInput(option, value, needed="a task, its name, (task, data), or a prepared call")
    check_name(option, name)
    new = NewJob(task=name)
    return {option: new if data is None else replace(new, data=encode_data(f"data of {option}", data))}


def _into(value: Any) -> dict[str, Any]:
    check_name("into", value)
    return {"into": value}


def _attempts(value: Any) -> dict[str, Any]:
    check_whole("attempts", value, 0, MAX_ATTEMPTS)
    return {"max_attempts": value}


def _losses(value: Any) -> dict[str, Any]:
    if value == 0 and not isinstance(value, bool):
        needed = (
            f"1 to {MAX_ATTEMPTS:,}: at_most_once=True for a job that never runs twice, "
            f"{MAX_ATTEMPTS:,} for one that is never given up"
        )
        raise BadInput("losses", value, needed=needed)
    check_whole("losses", value, 1, MAX_ATTEMPTS)
    return {"max_losses": value}


def _mock(value: Any) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise BadInput("mock", value, needed="True or False")
    return {"mock": value}


def _at_most_once(value: Any) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise BadInput("at_most_once", value, needed="True or False")
    return {"max_attempts": 1, "max_losses": 1} if value else {}


def _domain(value: Any) -> dict[str, Any]:
    if callable(value):
        raise BadInput("domain", value, needed="text or bytes; a function of the arguments only with a task")
    return {"domain": _key("domain", value)}


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "priority": lambda v: {"priority": v},
    "delay": lambda v: {"delay_ms": duration_ms(v, name="delay")},
    "run_at": lambda v: {"run_at": moment_ms(v, name="run_at")},
    "expires": _expires,
    "attempts": _attempts,
    "losses": _losses,
    "at_most_once": _at_most_once,
    "backoff": _backoff,
    "timeout": lambda v: {"timeout_ms": duration_ms(v, name="timeout")},
    "retry_after": _retry_after,
    "repeat": lambda v: {"repeat": v},
    "unique": lambda v: {"unique": _key("unique", v)},
    "unique_for": lambda v: {"unique_for_ms": duration_ms(v, name="unique_for")},
    "on_conflict": lambda v: {"on_conflict": v},
    "domain": _domain,
    "parent": _parent,
    "when_child_fails": _when_child_fails,
    "then": lambda v: _follower("then", v),
    "on_failure": lambda v: _follower("on_failure", v),
    "into": _into,
    "mock": _mock,
    "tenant": lambda v: {"tenant": v},
}
