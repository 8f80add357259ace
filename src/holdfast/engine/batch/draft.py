"""A dict whose changes can be undone, so that a command that breaks a rule fails alone."""

from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
# Marks a key that was absent before.
ABSENT: Any = object()
# Changes in order: the dict, the key, and the value before.
Undo = list[tuple[dict[Any, Any], Any, Any]]


class Draft(dict[K, V], Generic[K, V]):
    """Records changes made by `[]=` in `undo`. Values that were read from the store are set by `update`."""

    __slots__ = ("undo",)
    undo: Undo

    def __setitem__(self, key: K, value: V) -> None:
        self.undo.append((self, key, self.get(key, ABSENT)))
        dict.__setitem__(self, key, value)


def undo_changes(undo: Undo) -> None:
    """Undo all changes of the list."""
    for table, key, before in reversed(undo):
        if before is ABSENT:
            dict.pop(table, key, None)
        else:
            dict.__setitem__(table, key, before)
    undo.clear()
