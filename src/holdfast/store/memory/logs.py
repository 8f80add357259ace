"""The logs of the memory store: one dict of items, one of keys."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ...core.errors import Conflict
from ..contract import LogRow


class LogData:
    """The items of all logs by (log, index), and where each (log, key) is."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, int], LogRow] = {}
        self.keys: dict[tuple[str, bytes], int] = {}

    def read(self, log: str, *, after: int, limit: int) -> list[LogRow]:
        """See `ReadTxn.read_log`."""
        rows: list[LogRow] = []
        index = after + 1
        if (log, index) not in self.items:
            # Above the trimmed part, which is a gap only at the beginning.
            index = min((at for name, at in self.items if name == log and at > after), default=0)
        while len(rows) < limit and (row := self.items.get((log, index))) is not None:
            rows.append(row)
            index += 1
        return rows

    def find(self, log: str, keys: Collection[bytes]) -> dict[bytes, int]:
        """See `ReadTxn.find_in_log`."""
        return {key: self.keys[log, key] for key in keys if (log, key) in self.keys}

    def appended(self, log: str, rows: Sequence[LogRow]) -> Iterator[tuple[dict[Any, Any], Any, Any]]:
        """What `Txn.append_log` sets: dict, key, value."""
        for row in rows:
            if (log, row.at) in self.items:
                raise Conflict(f"index {row.at} of the log {log} is taken")
            yield self.items, (log, row.at), row
            if row.key is not None:
                yield self.keys, (log, row.key), row.at

    def trimmed(self, log: str, after: int, up_to: int, keys_up_to: int) -> list[tuple[dict[Any, Any], Any]]:
        """What `Txn.trim_log` removes: dict, key."""
        gone: list[tuple[dict[Any, Any], Any]] = [
            (self.items, (log, index)) for index in range(after + 1, up_to + 1)
        ]
        if keys_up_to > 0:
            old = [key for key, index in self.keys.items() if key[0] == log and index <= keys_up_to]
            gone += [(self.keys, key) for key in old]
        return gone
