"""The words of a search: `task:resize state:failed data.user.id:42`, as a filter of jobs and back.

A value with blanks is quoted. A word without a qualifier is an id if it is a number, and else a task.
"""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from ...core.bounds import MAX_PRIORITY
from ...core.errors import BadInput
from ...core.ids import SYSIDS
from ...core.job import Place, State
from ...core.queries import DataMatch, JobFilter, ListWorkers, SearchJobs
from ...core.units import duration_ms
from ...core.worker import Worker
from .parts import qualifier
from .view import View, read_job_id

# The tabs of the list of jobs: how each is called, and what of a filter it stands for.
TABS: dict[str, dict[str, Any]] = {
    "": {},
    "ready": {"place": Place.READY},
    "held": {"place": Place.HELD},
    "scheduled": {"place": Place.SCHEDULED},
    "running": {"place": Place.RUNNING},
    "paused": {"place": Place.PAUSED},
    "failed": {"state": State.FAILED},
    "finished": {"state": State.FINISHED, "archived": True},
    "cancelled": {"state": State.CANCELLED, "archived": True},
}
WORDS = (
    *("task", "state", "tenant", "domain", "id", "schedule", "parent"),
    *("error", "worker", "priority", "since", "until"),
)
NEEDED = (
    "task: state: tenant: domain: id: schedule: parent: error: worker: priority: since: until: or data.NAME: "
    "and a value"
)
# One group for all names after the first dot: a group for each would try every way to part them.
_WORD = re.compile(r'\s*(?:([a-z]+(?:\.[^\s:"]+)?):)?(?:"((?:[^"\\]|\\.)*)"|(\S+))')
SEARCH_CHARS = 10_000


class JobSearch(msgspec.Struct, frozen=True, kw_only=True):
    """A search as it was typed: the fields of the filter, and what the data must contain."""

    words: dict[str, str] = {}
    # Paths into the data with the values that are looked for.
    data: tuple[DataMatch, ...] = ()

    @property
    def tab(self) -> str:
        """The tab that is open."""
        return self.words.get("state", "")

    def with_tab(self, tab: str) -> "JobSearch":
        """The same in another tab."""
        words = {name: value for name, value in self.words.items() if name != "state"}
        return JobSearch(words=words | ({"state": tab} if tab else {}), data=self.data)

    @property
    def text(self) -> str:
        """The search as it is typed."""
        parts = [qualifier(name, value) for name, value in self.words.items()]
        parts += [qualifier(f"data.{path}", value) for path, value in self.data]
        return " ".join(parts)

    def filter(self, tenant: str | None) -> JobFilter:
        """The filter that it stands for."""
        words = self.words
        return JobFilter(
            tenant=words.get("tenant", tenant),
            task=words.get("task"),
            domain=words["domain"].encode(errors="replace") if "domain" in words else None,
            parent_id=read_job_id(words["parent"]) if "parent" in words else None,
            schedule=words.get("schedule"),
            **TABS[self.tab],
        )

    async def query(self, view: View, **paging: Any) -> SearchJobs:
        """The query for a page of what matches."""
        words, now_ms = self.words, view.now_ms
        return SearchJobs(
            filter=self.filter(view.tenant),
            data=self.data,
            error_text=words.get("error", ""),
            owner=await _find_owner(view, words["worker"]) if "worker" in words else 0,
            priority=_read_number("priority", words["priority"], MAX_PRIORITY)
            if "priority" in words
            else None,
            since_ms=_read_moment("since", words.get("since"), now_ms),
            until_ms=_read_moment("until", words.get("until"), now_ms),
            **paging,
        )

    @property
    def job_id(self) -> int | None:
        """The one job that was asked for by its id."""
        return read_job_id(self.words["id"]) if "id" in self.words else None


async def _find_owner(view: View, text: str) -> int:
    """The process that claims for a worker, by its number or by the worker's name."""
    if text.isdigit():
        return _read_number("worker", text, SYSIDS - 1)
    workers: list[Worker] = await view.ask(ListWorkers(tenant=view.tenant, name=text))
    if not workers or not workers[0].owner:
        raise BadInput("worker", text, needed="the name of a worker that is registered, or a process number")
    return workers[0].owner


def _read_number(name: str, text: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > most:
        raise BadInput(name, text, needed=f"a number from 0 to {most:,}")
    return int(text)


def _read_moment(name: str, text: str | None, now_ms: int) -> int:
    """A moment: a date, a date and a time, or how long ago it was; 0: none is given."""
    if not text:
        return 0
    try:
        if "-" in text:
            at = datetime.fromisoformat(text)
            return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
        return max(now_ms - duration_ms(text, name=name), 1)
    except (ValueError, OverflowError):
        raise BadInput(
            name, text, needed="2026-01-31, 2026-01-31T12:00 (UTC), or 2h for two hours ago"
        ) from None


def read_search(text: str) -> JobSearch:
    """A search as people type it; `BadInput` names the word that means nothing."""
    text = text.rstrip()
    if len(text) > SEARCH_CHARS:
        raise BadInput("search", f"{len(text):,} characters", needed=f"at most {SEARCH_CHARS:,}")
    words: dict[str, str] = {}
    data: list[DataMatch] = []
    at = 0
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            raise BadInput("search", text[at : at + 40], needed=NEEDED)
        at = match.end()
        name, quoted, plain = match.groups()
        value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
        name = name or ("id" if value.isdigit() else "task")
        if name.startswith("data."):
            data.append(DataMatch(name.removeprefix("data."), value))
        elif name in WORDS:
            words[name] = value.lower() if name == "state" else value
        else:
            raise BadInput("search", f"{name}:", needed=NEEDED)
    if words.get("state", "") not in TABS:
        raise BadInput("state", words["state"], needed=f"one of {', '.join(t for t in TABS if t)}")
    return JobSearch(words=words, data=tuple(data))
