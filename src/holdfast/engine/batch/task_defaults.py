"""The published defaults of tasks: written by workers, read by claims. See docs/decisions/0014."""

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from ...core import commands as c
from ...core.checks import check_defaults, check_name
from ...core.defaults import NO_DEFAULTS, Defaults, Published
from ...core.errors import BadInput
from ...core.kinds import TASK, name_of
from ...store.contract import ReadTxn
from ..records import read_task_key

if TYPE_CHECKING:
    from .working_set import WorkingSet

# How long a process caches the defaults, and so how late it may notice what another process publishes.
FRESH_MS = 5_000
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(Defaults).decode
_NOTHING = _encode(NO_DEFAULTS)


def publish(batch: "WorkingSet", command: c.Publish) -> None:
    """Write the defaults of tasks that have changed; see `Publish`."""
    for tenant, task, defaults in command.tasks:
        check_name("task", task)
        if tenant is not None:
            check_name("tenant", tenant, empty=True)
        check_defaults(defaults)
    said = {name_of(tenant, task): _encode(defaults) for tenant, task, defaults in command.tasks}
    known = batch.rows_of(TASK, said)
    for name, raw in said.items():
        if raw != known.get(name, _NOTHING):
            batch.rows[TASK, name] = None if raw == _NOTHING else raw
            batch.published = True


def read_published(txn: ReadTxn) -> Published:
    """All published defaults that are valid: a damaged row of one task must not stop all claims."""
    found = ((read_task_key(name), _read(raw)) for name, raw in txn.rows(TASK).items())
    return {key: defaults for key, defaults in found if defaults is not None}


@lru_cache(maxsize=4096)
def _read(raw: bytes) -> Defaults | None:
    try:
        defaults = _decode(raw)
        check_defaults(defaults)
    except (msgspec.MsgspecError, UnicodeError, BadInput):
        return None
    return defaults


class KnownDefaults:
    """A cache of the published defaults, so that not every claim reads them."""

    def __init__(self) -> None:
        self._found: Published = {}
        self._read_ms: int | None = None

    def read(self, txn: ReadTxn, *, keep: bool) -> Published:
        """The defaults, at most a few seconds old. `keep`: unless the transaction has changed them itself."""
        if keep and (known := self.fresh(txn.now_ms)) is not None:
            return known
        found = read_published(txn)
        if keep:
            self._found, self._read_ms = found, txn.now_ms
        return found

    def fresh(self, now_ms: int) -> Published | None:
        """The defaults, if they were read a few seconds ago at most."""
        known = self._read_ms is not None and 0 <= now_ms - self._read_ms < FRESH_MS
        return self._found if known else None

    def forget(self) -> None:
        """Clear the cache: the defaults have changed."""
        self._read_ms = None
