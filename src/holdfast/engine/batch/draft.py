"""A dict whose changes can be taken back: a command that breaks a rule fails alone, and leaves no trace."""

from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
# Stands for a key that was not there.
ABSENT: Any = object()
# Changes in order: which dict, which key, and what was there before.
Undo = list[tuple[dict[Any, Any], Any, Any]]


class Draft(dict[K, V], Generic[K, V]):
    """Changes made by `[]=` are noted in `undo`; what is read into it comes by `update`, and stays."""

    undo: Undo

    def __setitem__(self, key: K, value: V) -> None:
        self.undo.append((self, key, self.get(key, ABSENT)))
        dict.__setitem__(self, key, value)


def take_back(undo: Undo) -> None:
    """Undo all changes on the list."""
    for table, key, before in reversed(undo):
        if before is ABSENT:
            dict.pop(table, key, None)
        else:
            dict.__setitem__(table, key, before)
    undo.clear()
