"""What those who wait for jobs may hope for, read beside whoever writes: no lock, no write.

It errs on the side of hope: a claim that then finds nothing costs a transaction, one that is not made
would cost a job its time.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..core import commands as c
from ..core import rank
from ..core.glob import matches
from ..core.job import Place
from ..core.queries import ListWaiting
from ..store.contract import ReadTxn
from . import upkeep
from .commands.schedules import fires_at
from .queries import list_waiting
from .records import CHORE, LETTER, SCHEDULE
from .site import ALONE, Site

# Where so many tasks wait, somebody's may stand behind them unseen.
LOOKED_THROUGH = 64


class Prospects(NamedTuple):
    """Whether there is anything to claim or to do, and when something next becomes true by itself."""

    any: bool
    next_ms: int | None = None
    # When the rest of upkeep is due: a schedule fires, or a letter should have been delivered.
    rest_ms: int | None = None
    # Whether it is due now, or there are chores: a claim alone would not see to it.
    rest: bool = False


def prospects(txn: ReadTxn, commands: Sequence[c.Command], site: Site = ALONE) -> Prospects:
    """What there is for these claims."""
    next_ms, rest_ms = txn.moments().first, _rest_at(txn, site)
    rest = bool(txn.rows(CHORE)) or _is_past(rest_ms, txn.now_ms)
    found = rest or _is_past(next_ms, txn.now_ms) or _finds(txn, commands)
    return Prospects(found, next_ms, rest_ms, rest)


def _is_past(moment: int | None, now_ms: int) -> bool:
    return moment is not None and moment <= now_ms


def _finds(txn: ReadTxn, commands: Sequence[c.Command]) -> bool:
    claims = [command for command in commands if isinstance(command, c.Claim)]
    if any(claim.mock for claim in claims):
        return bool(txn.first(Place.READY, rank.LAST, 1))
    return any(_has_ready(txn, claim) for claim in claims)


def _rest_at(txn: ReadTxn, site: Site) -> int | None:
    moments = [fires_at(raw) for raw in txn.rows(SCHEDULE).values()]
    if not site.is_alone and txn.rows(LETTER):
        # Whoever wrote it delivers it; should he die first, somebody else does.
        moments.append(txn.now_ms + upkeep.PERIOD_MS)
    return min((moment for moment in moments if moment is not None), default=None)


def _has_ready(txn: ReadTxn, claim: c.Claim) -> bool:
    """Whether a claim finds something, as far as a look goes: beyond that it may."""
    whose = claim.tenants if claim.tenant is None else (claim.tenant,)
    found = list_waiting(txn, ListWaiting(tenants=whose, tasks=claim.tasks, limit=LOOKED_THROUGH))
    if claim.glob is None and found:
        return True
    if any(claim.glob is None or matches(claim.glob, one.task) for one in found):
        return True
    return len(found) == LOOKED_THROUGH or _is_long(txn)


def _is_long(txn: ReadTxn) -> bool:
    """Whether more wait than a look goes through."""
    return len(list_waiting(txn, ListWaiting(limit=LOOKED_THROUGH))) == LOOKED_THROUGH
