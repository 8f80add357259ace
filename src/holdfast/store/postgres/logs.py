"""What a batch on the PostgreSQL store writes to logs."""

from collections.abc import Sequence
from typing import Any

from ...core.errors import Conflict
from ..contract import LogRow
from .rows import bodies as as_arrays
from .statements import numbers, raws


class PostgresLogs:
    """See `Txn` for what each verb promises."""

    def _write(self, name: str, values: Any) -> int:
        """Run a statement; how many rows it changed."""
        raise NotImplementedError

    def append_log(self, log: str, rows: Sequence[LogRow]) -> None:
        """Write items of a log and their keys."""
        if not rows:
            return
        places, keys, bodies = zip(*rows, strict=True)
        text, raw = as_arrays(bodies).values()
        values = (log, numbers(places), raws(keys), text, raw)
        if self._write("append_log", values) != len(rows):
            raise Conflict(f"not all of {len(rows)} indexes of the log {log} are free")
        if keyed := [(row.key, row.at) for row in rows if row.key is not None]:
            keys, places = zip(*keyed, strict=True)
            self._write("put_log_keys", (log, raws(keys), numbers(places)))

    def trim_log(self, log: str, *, after: int, up_to: int, keys_up_to: int) -> None:
        """Remove items of a log, and old keys."""
        self._write("trim_log", (log, after, up_to))
        if keys_up_to > 0:
            self._write("trim_log_keys", (log, keys_up_to))
