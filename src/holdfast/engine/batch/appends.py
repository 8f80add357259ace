"""What a transaction appends to logs, before it is written: a draft on top, as for jobs."""

from collections.abc import Iterable
from typing import Any

from ...store.contract import LogRow, Txn
from .overlay import Overlay


class Appends:
    """Items and keys that this transaction brings, by log."""

    def __init__(self, txn: Txn) -> None:
        self._txn = txn
        self._rows: Overlay[tuple[str, int], LogRow] = Overlay()
        self._keys: Overlay[tuple[str, bytes], int] = Overlay()
        self.overlays: tuple[Overlay[Any, Any], ...] = (self._rows, self._keys)

    def known(self, log: str, keys: Iterable[bytes]) -> dict[bytes, int]:
        """Where in a log these keys are, in this transaction too."""
        wanted = set(keys)
        found = {key: self._keys[log, key] for key in wanted if (log, key) in self._keys}
        missing = wanted - found.keys()
        return found | self._txn.find_in_log(log, missing) if missing else found

    def add(self, log: str, row: LogRow) -> None:
        """An item at the next place of a log."""
        self._rows[log, row.at] = row
        if row.key is not None:
            self._keys[log, row.key] = row.at

    def write(self) -> None:
        """Write what was added, in order."""
        by_log: dict[str, list[LogRow]] = {}
        for (log, _), row in self._rows.kept.items():
            by_log.setdefault(log, []).append(row)
        for log, rows in by_log.items():
            self._txn.append_log(log, rows)
        for overlay in self.overlays:
            overlay.kept.clear()
