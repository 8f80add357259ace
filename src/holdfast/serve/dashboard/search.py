"""The words of a search: `task:resize state:failed data.user.id:42`, as a filter of jobs and back.

A value with blanks is quoted. A word without a qualifier is an id if it is a number, and else a task.
"""

import re
from typing import Any

import msgspec

from ...core.errors import BadInput
from ...core.job import Place, State
from ...core.queries import JobFilter
from ...core.searching import DataMatch
from .parts import qualifier
from .view import read_job_id

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
WORDS = ("task", "state", "tenant", "domain", "id", "schedule", "parent")
NEEDED = "task: state: tenant: domain: id: schedule: parent: or data.NAME: and a value"
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

    @property
    def job_id(self) -> int | None:
        """The one job that was asked for by its id."""
        return read_job_id(self.words["id"]) if "id" in self.words else None


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
