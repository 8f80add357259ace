"""What those who wait for jobs may hope for, read beside whoever writes: no lock, no write.

It errs on the side of hope: a claim that then finds nothing costs a transaction, one that is not made
would cost a job its time.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..core import commands as c
from ..core import rank
from ..core.glob import matches
from ..core.job import Place
from ..store.common.gifts import ready_pairs_of
from ..store.contract import ReadTxn, is_passed
from . import upkeep
from .commands.schedules import read_kept
from .look import pauses, waiting
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
    rest = bool(txn.records(CHORE)) or _is_past(rest_ms, txn.now_ms)
    found = rest or _is_past(next_ms, txn.now_ms) or _finds(txn, commands)
    return Prospects(found, next_ms, rest_ms, rest)


def _is_past(moment: int | None, now_ms: int) -> bool:
    return moment is not None and moment <= now_ms


def _finds(txn: ReadTxn, commands: Sequence[c.Command]) -> bool:
    claims = [command for command in commands if isinstance(command, c.Claim)]
    pairs = _ready_pairs(txn, mock=any(claim.mock for claim in claims))
    if pairs is not None:
        return any(_wants(claim, pair) for claim in claims for pair in pairs)
    return bool(txn.first(Place.READY, rank.LAST, 1)) and any(_has_ready(txn, claim) for claim in claims)


def _ready_pairs(txn: ReadTxn, *, mock: bool) -> list[tuple[str, str]] | None:
    """The tenants' tasks that have READY jobs and are not paused, where a store knows them all by now."""
    pairs = ready_pairs_of(txn, mock=mock)
    if not pairs:
        return pairs
    passing = tuple((tenant, task) for tenant, task, domain in pauses(txn) if domain is None)
    return [pair for pair in pairs if not is_passed(pair, passing)]


def _wants(claim: c.Claim, pair: tuple[str, str]) -> bool:
    tenant, task = pair
    return (
        (claim.tenant is None or claim.tenant == tenant)
        and (claim.tenants is None or tenant in claim.tenants)
        and (claim.tasks is None or task in claim.tasks)
        and (claim.glob is None or matches(claim.glob, task))
    )


def _rest_at(txn: ReadTxn, site: Site) -> int | None:
    moments = [_fires_at(raw) for raw in txn.records(SCHEDULE).values()]
    if not site.is_alone and txn.records(LETTER):
        # Whoever wrote it delivers it; should he die first, somebody else does.
        moments.append(txn.now_ms + upkeep.PERIOD_MS)
    return min((moment for moment in moments if moment is not None), default=None)


@lru_cache(maxsize=4096)
def _fires_at(raw: bytes) -> int | None:
    """When a schedule next fires; asked for at every ring, so remembered."""
    schedule = read_kept(raw).schedule
    return None if schedule.paused or schedule.ended or not schedule.next_at else schedule.next_at


def _has_ready(txn: ReadTxn, claim: c.Claim) -> bool:
    whose = claim.tenants if claim.tenant is None else (claim.tenant,)
    if claim.mock or claim.glob is not None:
        return True
    return bool(waiting(txn, tenants=whose, tasks=claim.tasks, limit=LOOKED_THROUGH)) or _is_long(txn)


def _is_long(txn: ReadTxn) -> bool:
    """Whether more wait than a look goes through."""
    return len(waiting(txn, tenants=None, tasks=None, limit=LOOKED_THROUGH)) == LOOKED_THROUGH
