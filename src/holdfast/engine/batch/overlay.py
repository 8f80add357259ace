"""A dict with a draft on top: a command that breaks a rule fails alone, and leaves no trace."""

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Overlay(Generic[K, V]):
    """What was decided so far (`kept`), and what the command at hand decides (`draft`)."""

    def __init__(self) -> None:
        self.kept: dict[K, V] = {}
        self.draft: dict[K, V] = {}

    def __contains__(self, key: K) -> bool:
        return key in self.draft or key in self.kept

    def __getitem__(self, key: K) -> V:
        return self.draft[key] if key in self.draft else self.kept[key]

    def __setitem__(self, key: K, value: V) -> None:
        self.draft[key] = value

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        return self.draft[key] if key in self.draft else self.kept.get(key)

    def values(self) -> Iterator[V]:
        """All values, those of the draft in place of those below them."""
        return iter((self.kept | self.draft).values()) if self.draft else iter(self.kept.values())

    def keep(self) -> None:
        """The command stands."""
        self.kept.update(self.draft)
        self.draft.clear()

    def drop(self) -> None:
        """The command failed."""
        self.draft.clear()
