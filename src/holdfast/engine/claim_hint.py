"""A hint whether waiting claims would find a job: a read without a lock, before a claim that writes.

It may say yes wrongly, but not no: a claim that finds nothing costs a transaction, one that is not made would
delay a job.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..core import commands as c
from ..core import rank
from ..core.glob import matches
from ..core.job import Place
from ..core.kinds import CHORE, SCHEDULE
from ..core.queries import ListWaiting
from ..store.contract import ReadTxn
from . import upkeep
from .commands.schedules import fires_at
from .queries import list_waiting

# The most pairs of tenant and task that are read: with more, the answer is yes.
MAX_PAIRS_READ = 64


class ClaimHint(NamedTuple):
    """Whether there is anything to claim or upkeep to do, and when a job next becomes due."""

    has_work: bool
    next_ms: int | None = None
    # When full upkeep is due: a schedule fires.
    upkeep_ms: int | None = None
    # Whether full upkeep is due now, or there are chores: a claim alone does not do it.
    is_upkeep_due: bool = False


def read_claim_hint(txn: ReadTxn, commands: Sequence[c.Command]) -> ClaimHint:
    """Read the hint for these claims."""
    next_ms, upkeep_ms = txn.moments().first, _upkeep_at(txn)
    is_upkeep_due = bool(txn.rows(CHORE)) or upkeep.is_due(upkeep_ms, txn.now_ms)
    found = is_upkeep_due or upkeep.is_due(next_ms, txn.now_ms) or _has_claimable(txn, commands)
    return ClaimHint(found, next_ms, upkeep_ms, is_upkeep_due)


def _has_claimable(txn: ReadTxn, commands: Sequence[c.Command]) -> bool:
    claims = [command for command in commands if isinstance(command, c.Claim)]
    if any(claim.mock for claim in claims):
        return bool(txn.first(Place.READY, rank.LAST, 1))
    return any(_has_ready(txn, claim) for claim in claims)


def _upkeep_at(txn: ReadTxn) -> int | None:
    moments = [fires_at(raw) for raw in txn.rows(SCHEDULE).values()]
    return min((moment for moment in moments if moment is not None), default=None)


def _has_ready(txn: ReadTxn, claim: c.Claim) -> bool:
    """Whether a claim may find a job."""
    whose = claim.tenants if claim.tenant is None else (claim.tenant,)
    asked = ListWaiting(tenants=whose, tasks=claim.tasks, handled=claim.handled, limit=MAX_PAIRS_READ)
    found = list_waiting(txn, asked)
    if claim.handled and not found:
        # It has looked at very many of them.
        return False
    if claim.glob is None and found:
        return True
    if any(claim.glob is None or matches(claim.glob, one.task) for one in found):
        return True
    return len(found) == MAX_PAIRS_READ or _has_more_pairs(txn)


def _has_more_pairs(txn: ReadTxn) -> bool:
    """Whether there are more pairs than are read."""
    return len(list_waiting(txn, ListWaiting(limit=MAX_PAIRS_READ))) == MAX_PAIRS_READ
