"""From what a batch has seen and decided to what its commit checks and writes."""

import base64
import secrets
from collections.abc import Callable

from ...core.job import Body
from ...core.limits import Domain
from . import keys as k
from .connection import Words
from .draft import Stamped
from .keys import INLINE_BYTES, LARGE, joined, member
from .moves import Moves
from .names import OF_JOBS
from .plan import ABSENT, BEGINS, CROWD, EQUALS, Plan
from .txn import RedisTxn

# A body that was written before its record, by somebody who was not heard of again, goes after this.
STAGED_MS = 60_000


class Commit:
    """The plan of a batch, and the large bodies that are to be written before it."""

    def __init__(self, txn: RedisTxn, *, lane: bytes, stamp: bytes, at_ms: int) -> None:
        self._txn, self._stamp, self._at_ms = txn, stamp, at_ms
        self._keys = txn.keys
        self.plan = Plan(txn.keys, lane)
        self.bodies: list[Words] = []
        # What the jobs will be once it is committed.
        self.written: dict[int, Stamped | None] = {}
        steps: tuple[Callable[[], None], ...] = (
            *(self._check_jobs, self._check_names, self._jobs, self._astray, self._archive, self._bodies),
            *(self._uniques, self._domains, self._records, self._turns, self._logs),
        )
        for step in steps:
            step()

    # Checks

    def _check_jobs(self) -> None:
        plan, keys, seen = self.plan, self._keys, self._txn.seen
        hoped = self._txn.draft.hoped
        for table, found in ((keys.jobs, seen.jobs), (keys.archive, seen.archive)):
            there = [(member(job_id), stamped.stamp) for job_id, stamped in found.items() if stamped]
            plan.check_all(BEGINS, table, there)
            absent = [job_id for job_id, stamped in found.items() if not stamped]
            for job_id in (*absent, *(hoped - found.keys())):
                plan.check(ABSENT, table, member(job_id))

    def _check_names(self) -> None:
        plan, keys, seen = self.plan, self._keys, self._txn.seen
        for kind, (version, _) in seen.kinds.items():
            plan.check(EQUALS, keys.kinds, kind.encode(), version)
        for (kind, name), value in seen.records.items():
            if kind not in OF_JOBS:
                plan.check(EQUALS, keys.records(kind), name.encode(), value)
        for key, held in seen.uniques.items():
            plan.check(EQUALS, keys.unique, joined(*key), held)
        for domain, stamped in seen.domains.items():
            plan.check(BEGINS, keys.domains, joined(*domain), stamped.stamp if stamped else None)
            if stamped is None and self._txn.draft.domains.get(domain) is not None:
                # Whoever adds to it meanwhile is not in what was counted.
                plan.check(CROWD, keys.domain(domain), b"", b"%d" % seen.crowds[domain])

    # Jobs

    def _jobs(self) -> None:
        plan, keys, txn, stamp = self.plan, self._keys, self._txn, self._stamp
        records, gone = plan.words("HSET", keys.jobs), plan.words("HDEL", keys.jobs)
        moves, seen, taken = Moves(plan, keys), txn.seen.jobs, txn.taken
        for job_id, after in txn.draft.jobs.items():
            stamped = seen.get(job_id)
            before = stamped.job if stamped is not None else None
            name = member(job_id)
            moves.move(name, before, after, taken=job_id in taken)
            if after is not None:
                records += (name, k.write_job(stamp, after))
                self.written[job_id] = Stamped(stamp, after)
            elif before is not None:
                gone.append(name)
                self.written[job_id] = None
        moves.count()

    def _astray(self) -> None:
        """What was taken and not used, or was found astray, stands again where its record says."""
        keys, txn = self._keys, self._txn
        for job_id in txn.taken - txn.draft.jobs.keys():
            stamped = txn.seen.jobs[job_id]
            spots = keys.spots(stamped.job) if stamped is not None else {}
            for key, score in spots.items():
                self.plan.write("ZADD", key, score, member(job_id))
            if keys.in_process_queue not in spots:
                self.plan.write("ZREM", keys.in_process_queue, member(job_id))

    def _archive(self) -> None:
        plan, keys = self.plan, self._keys
        records = plan.words("HSET", keys.archive)
        ids, ends = plan.words("ZADD", keys.archive_ids), plan.words("ZADD", keys.archive_ends)
        for job_id, after in self._txn.draft.archive.items():
            name = member(job_id)
            if after is not None:
                records += (name, k.write_job(self._stamp, after))
                ids += (0, name)
                ends += (after.finished_at, name)
            else:
                plan.write("HDEL", keys.archive, name)
                plan.write("ZREM", keys.archive_ids, name)
                plan.write("ZREM", keys.archive_ends, name)

    def _bodies(self) -> None:
        plan, keys, draft = self.plan, self._keys, self._txn.draft
        for (job_id, result), body in draft.bodies.items():
            table, name, own = keys.bodies(result=result), member(job_id), keys.body(job_id, result=result)
            if body is None:
                plan.write("HDEL", table, name)
                plan.drop(own)
            elif len(body) > INLINE_BYTES:
                plan.write("HSET", table, name, LARGE)
                plan.stage(self._staged(body), own)
            else:
                plan.words("HSET", table).extend((name, k.write_body(body)))
                if result or job_id not in draft.hoped:
                    plan.drop(own)

    def _staged(self, body: Body) -> bytes:
        key = self._keys.stage(self._stamp, len(self.bodies))
        self.bodies.append((b"SET", key, k.write_body(body), b"PX", STAGED_MS))
        return key

    # All else

    def _uniques(self) -> None:
        plan, keys = self.plan, self._keys
        for key, holder in self._txn.draft.uniques.items():
            name = joined(*key)
            if holder is not None:
                plan.write("HSET", keys.unique, name, k.write_unique(holder))
            else:
                plan.write("HDEL", keys.unique, name)
            if holder is not None and holder.until_ms:
                plan.write("ZADD", keys.unique_lapses, holder.until_ms, name)
            else:
                plan.write("ZREM", keys.unique_lapses, name)

    def _domains(self) -> None:
        plan, keys = self.plan, self._keys
        for key, domain in self._txn.draft.domains.items():
            name = joined(*key)
            if domain is not None:
                plan.write("HSET", keys.domains, name, k.write_domain(self._stamp, self._at_ms, domain))
                plan.write("ZADD", keys.domain_names, 0, name)
            else:
                plan.write("HDEL", keys.domains, name)
                plan.write("ZREM", keys.domain_names, name)
            self._due(name, domain)

    def _due(self, name: bytes, domain: Domain | None) -> None:
        if domain is not None and domain.due_ms:
            self.plan.write("ZADD", self._keys.domains_due, domain.due_ms, name)
        else:
            self.plan.write("ZREM", self._keys.domains_due, name)

    def _records(self) -> None:
        plan, keys = self.plan, self._keys
        changed = set()
        for (kind, name), value in self._txn.draft.records.items():
            if value is not None:
                plan.write("HSET", keys.records(kind), name.encode(), value)
            else:
                plan.write("HDEL", keys.records(kind), name.encode())
            changed.add(kind)
        for kind in changed - {*OF_JOBS}:
            plan.tally(keys.kinds, b"", kind.encode(), 1)

    def _turns(self) -> None:
        plan, keys, txn = self.plan, self._keys, self._txn
        for order, names in txn.forgotten.items():
            plan.write("ZREM", order, *names)
        for (tenant, task), turn in txn.served_lanes.items():
            plan.serve_lane(joined(tenant, task), task.encode(), keys.tasks(tenant), turn)
        for tenant, turn in txn.served_tenants.items():
            plan.serve_tenant(tenant.encode(), turn)
        plan.count(txn.draft.counts)

    def _logs(self) -> None:
        plan, keys, draft = self.plan, self._keys, self._txn.draft
        for log, items in draft.items.items():
            for at, row in items.items():
                plan.check(ABSENT, keys.log("bodies", log), member(at))
                plan.write("HSET", keys.log("bodies", log), member(at), k.write_item(row.key, row.body))
                plan.write("ZADD", keys.log("items", log), 0, member(at))
        for log, trims in draft.trims.items():
            for after, up_to in trims:
                for at in range(after + 1, up_to + 1):
                    plan.write("HDEL", keys.log("bodies", log), member(at))
                    plan.write("ZREM", keys.log("items", log), member(at))
        for log, found in draft.log_keys.items():
            for key, index in found.items():
                if index is not None:
                    plan.write("HSET", keys.log("keys", log), key, member(index))
                    plan.write("ZADD", keys.log("order", log), 0, member(index) + key)
                else:
                    plan.write("HDEL", keys.log("keys", log), key)
        for log, up_to in draft.keys_up_to.items():
            plan.write("ZREMRANGEBYLEX", keys.log("order", log), b"-", b"(" + member(up_to + 1))


def new_stamp() -> bytes:
    """The mark of a commit."""
    return base64.b64encode(secrets.token_bytes(9))
