"""Handlers in the store: the code that runs a task of a tenant, its versions, and the commands for them.

    SetHandler ──▶ version 1 ──SetHandler──▶ version 2 ──RollBackHandler──▶ version 3, a copy of version 1
                       └────────────────────────┴── DeleteHandler removes all ──┘

The newest version runs. docs/decisions/0019 describes how they are stored.
"""

import re
from typing import NamedTuple, Self

from msgspec.structs import asdict, replace

from . import bounds
from .checks import check_name, check_whole
from .commands import Command
from .errors import BadInput, TooLarge
from .job import Record
from .queries import PagedQuery, Query

_LANG = re.compile(r"[a-z][a-z0-9+._-]{0,31}")
# The language of a handler that is a URL.
HTTP = "http"
SCRIPTS = ("before", "before_each", "body", "after_each")


class RunnerOptions(Record, frozen=True, kw_only=True):
    """The settings of a handler; 0: the default of the runner."""

    # Whether an http handler gets all jobs of a batch in one request.
    batch: bool = False
    batch_size: int = 0
    # Limits of one job: elapsed time and CPU time.
    timeout_ms: int = 0
    cpu_ms: int = 0
    # Limits of a context: memory, output of one job, open files; and when it is replaced.
    memory_mb: int = 0
    output_kb: int = 0
    open_files: int = 0
    context_jobs: int = 0
    context_age_ms: int = 0


class Handler(Record, frozen=True, kw_only=True):
    """One version of the code that runs a task of a tenant. Each version has its own `id`."""

    task: str
    tenant: str = ""
    lang: str = ""
    body: str = ""
    # Handlers of a tenant with the same `eid` may share contexts; "": contexts are not shared between tasks.
    eid: str = ""
    before: str = ""
    before_each: str = ""
    after_each: str = ""
    options: RunnerOptions = RunnerOptions()
    # Set by the store.
    id: int = 0
    version: int = 0
    created_at: int = 0
    # The version that this one restored; 0: none.
    restores: int = 0

    @property
    def size(self) -> int:
        """The size of its scripts."""
        return sum(len(getattr(self, script).encode()) for script in SCRIPTS)


def without_scripts(handler: Handler) -> Handler:
    """The handler without its scripts, for lists."""
    return replace(handler, **dict.fromkeys(SCRIPTS, ""))


def is_same_code(one: Handler, other: Handler) -> bool:
    """Whether two versions run the same code with the same settings."""
    return _as_set(one) == _as_set(other)


def _as_set(handler: Handler) -> Handler:
    return replace(handler, id=0, version=0, created_at=0, restores=0)


_MOST = {
    "batch_size": bounds.CLAIM_JOBS,
    "timeout_ms": bounds.DAY_MS,
    "cpu_ms": bounds.DAY_MS,
    "memory_mb": 1_000_000,
    "output_kb": bounds.DATA_BYTES // 1024,
    "open_files": 100_000,
    "context_jobs": 1_000_000,
    "context_age_ms": bounds.DAY_MS,
}


def check_handler(handler: Handler) -> None:
    """Raise `BadInput` unless the handler can be stored. Any `lang` is accepted: only runners know theirs."""
    check_name("task", handler.task)
    check_name("tenant", handler.tenant, empty=True)
    if not handler.lang or not handler.body:
        found = "no lang" if handler.body else "no body" if handler.lang else "neither"
        raise BadInput("handler", found, needed="complete: lang and body required")
    if not _LANG.fullmatch(handler.lang):
        raise BadInput("lang", handler.lang, needed="a short name in small letters, such as python or node")
    check_name("eid", handler.eid, empty=True)
    try:
        size = handler.size
    except UnicodeEncodeError:
        raise BadInput("body", "text with lone surrogates", needed="UTF-8 text") from None
    if size > bounds.HANDLER_BYTES:
        raise TooLarge("handler", f"{size:,} bytes", needed=f"at most {bounds.HANDLER_BYTES:,} bytes")
    check_options(handler.options)


def check_options(options: RunnerOptions) -> None:
    """Raise `BadInput` unless each number is within its bounds."""
    for name, value in asdict(options).items():
        if name in _MOST:
            check_whole(name, value, 0, _MOST[name])


# Commands


class SetHandler(Command, frozen=True, kw_only=True):
    """Store a new version of a handler; replies it. If it equals the newest version, nothing changes."""

    handler: Handler


class RollBackHandler(Command, frozen=True, kw_only=True):
    """Store a copy of an earlier version as the newest one; replies it.

    `version` 0: the one before the newest, or before the one that the newest has restored.
    """

    task: str
    tenant: str = ""
    version: int = 0


class DeleteHandler(Command, frozen=True, kw_only=True):
    """Delete a handler with all its versions. Its jobs wait for a new handler, or until they expire."""

    task: str
    tenant: str = ""


# Queries


class GetHandler(Query, frozen=True, kw_only=True):
    """Replies a version of a handler, with `version` 0 the newest; raises `NotFound`."""

    task: str
    tenant: str = ""
    version: int = 0


class KnownHandler(NamedTuple):
    """A handler, and the id of the version that the caller already has; 0: none."""

    tenant: str
    task: str
    id: int = 0


class FindHandlers(Query, frozen=True, kw_only=True):
    """Replies the newest version of each of these handlers that exists, at most `HANDLERS_FOUND`.

    A version that the caller already has is replied without its scripts.
    """

    pairs: tuple[KnownHandler, ...]


class ListHandlers(PagedQuery, frozen=True, kw_only=True):
    """Replies the handlers of a tenant without their scripts, in a fixed order, after `after_task`."""

    tenant: str = ""
    after_task: str = ""

    def _after(self, last: "Handler") -> Self:
        return replace(self, after_task=last.task)


class ListHandlerVersions(Query, frozen=True, kw_only=True):
    """Replies the versions of a handler without their scripts, newest first; raises `NotFound`.

    Starts below `before`; 0: starts with the newest.
    """

    task: str
    tenant: str = ""
    before: int = 0
    limit: int = bounds.HANDLER_PAGE
