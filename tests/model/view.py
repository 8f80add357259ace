"""Everything of a store that can be seen, in one record, so that two stores can be held side by side."""

from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core import kinds, rank
from holdfast.core.bounds import MAX_TIME_MS
from holdfast.core.job import Body, Job, Place, Record
from holdfast.core.limits import Domain, DomainKey
from holdfast.core.unique import Unique, UniqueKey, read_unique
from holdfast.engine.batch.limiting import list_domains
from holdfast.engine.sysid import Sysid
from holdfast.store.contract import AnyStore, CountKey, JobFilter, Moments, ReadTxn, Waiting, WaitingQuery

# More than any history makes.
ALL = 100_000
KINDS = (
    kinds.LIMIT,
    kinds.PATTERNS,
    kinds.PAUSE,
    kinds.SCHEDULE,
    kinds.SYSID,
    kinds.SETTING,
    kinds.TASK,
    kinds.WORKER,
    kinds.CHORE,
    kinds.FLOOR,
    kinds.STEPS,
    kinds.SIGNALS,
    kinds.SIGNAL_KEY,
    kinds.JOB_LOG,
    kinds.HANDLER,
    kinds.HANDLER_VERSION,
    kinds.HANDLED,
)


class View(Record, frozen=True, kw_only=True):
    """What a store shows. `orders` are the lists that upkeep and limits go by, as ids or names."""

    now_ms: int
    live: dict[int, Job]
    archived: dict[int, Job]
    data: dict[int, Body]
    results: dict[int, Body]
    counts: dict[CountKey, int]
    domains: dict[DomainKey, Domain]
    uniques: dict[UniqueKey, Unique]
    moments: Moments
    waiting: list[Waiting]
    records: dict[tuple[str, str], bytes]
    children: dict[int, list[int]]
    orders: dict[Any, list[Any]]

    def at(self, *places: Place) -> list[Job]:
        """The live jobs that stand in one of these places, by id."""
        return [job for job in self.live.values() if job.place in places]

    @property
    def notes(self) -> dict[tuple[str, str], bytes]:
        """The steps and logs of all jobs."""
        owned = (kinds.STEPS, kinds.SIGNALS, kinds.JOB_LOG)
        return {key: raw for key, raw in self.records.items() if key[0] in owned}

    def family(self) -> dict[int, list[Job]]:
        """The live children of each parent, which itself may be gone."""
        found: dict[int, list[Job]] = {}
        for job in self.live.values():
            if job.parent_id:
                found.setdefault(job.parent_id, []).append(job)
        return found


def look(store: AnyStore, *, ids: set[int], tenants: tuple[str, ...]) -> View:
    """A view of a store: of all jobs, of the bodies of all ids that ever were."""

    def see(txn: ReadTxn) -> View:
        live = {job.id: job for job in txn.jobs(JobFilter(), after=0, limit=ALL)}
        archived = {job.id: job for job in txn.jobs(JobFilter(archived=True), after=0, limit=ALL)}
        ever = sorted(ids | live.keys() | archived.keys())
        domains = [d for tenant in tenants for d in list_domains(txn, tenant, after=b"", limit=ALL)]
        holders = [read_unique(raw) for _, raw in txn.scan(kinds.UNIQUE, limit=ALL)]
        parents = sorted({job.parent_id for job in live.values() if job.parent_id})
        return View(
            now_ms=txn.now_ms,
            live=live,
            archived=archived,
            data=txn.bodies(ever),
            results=txn.bodies(ever, result=True),
            counts=txn.counts(),
            domains={domain.key: domain for domain in domains},
            uniques={holder.id: holder for holder in holders},
            moments=txn.moments(),
            waiting=txn.waiting(WaitingQuery(limit=ALL)),
            records=_records(txn),
            children={id: [job.id for job in txn.children(id, limit=ALL)] for id in parents},
            orders=_orders(txn, domains),
        )

    return store.read(see)


def _records(txn: ReadTxn) -> dict[tuple[str, str], bytes]:
    found = {(kind, name): raw for kind in KINDS for name, raw in txn.rows(kind).items()}
    for key, raw in found.items():
        if key[0] == kinds.SYSID:
            # The token is drawn by lot; whether there is one is what matters.
            held = msgspec.json.decode(raw, type=Sysid)
            found[key] = msgspec.json.encode(replace(held, token="…" if held.token else ""))
    return found


def _orders(txn: ReadTxn, domains: list[Domain]) -> dict[Any, list[Any]]:
    orders: dict[Any, list[Any]] = {
        place: [job.id for job in txn.first(place, rank.LAST, ALL)]
        for place in (Place.SCHEDULED, Place.RUNNING)
    }
    orders["expiring"] = [job.id for job in txn.expiring(MAX_TIME_MS, ALL)]
    orders["due domains"] = [key for key, _ in txn.scan(kinds.DOMAIN, due_before=MAX_TIME_MS, limit=ALL)]
    for domain in domains:
        for task in domain.loads:
            for place in (Place.READY, Place.HELD):
                jobs = txn.domain_queue(domain.key, task, place, last=place == Place.READY, limit=ALL)
                orders[domain.key, task, place] = [job.id for job in jobs]
    return orders


def differences(expected: View, found: View) -> list[str]:
    """What one view shows and the other does not, one line each."""
    lines = []
    for field in View.__struct_fields__:
        ours, theirs = getattr(expected, field), getattr(found, field)
        if ours == theirs:
            continue
        if not isinstance(ours, dict):
            lines.append(f"{field}: expected {ours}, found {theirs}")
            continue
        for key in sorted(ours.keys() | theirs.keys(), key=repr):
            if ours.get(key) != theirs.get(key):
                lines.append(f"{field} {key}: expected {ours.get(key)}, found {theirs.get(key)}")
    return lines
