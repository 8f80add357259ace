"""What can be read of a Redis store by name: records, unique keys, domains, counts and logs."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ...core.job import Place, State
from ...core.kinds import Names
from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from ..contract import CountKey, LogRow
from . import keys as k
from .connection import PAGE, Link, Words
from .draft import Draft, Seen, StampedDomain
from .keys import Keys, joined

# Records that belong to one job each. Who changes one changes its job as well, and its stamp decides.
OF_JOBS = ("steps", "job_log")
# Commands, and what sees their replies.
Asking = tuple[Sequence[Words], Callable[[Sequence[Any]], None]]
_NOTHING: Asking = ((), lambda _replies: None)


class RedisNames:
    """A view of a store, and what a batch would make of it."""

    def __init__(self, link: Link, keys: Keys, now_ms: int) -> None:
        self.link, self.keys, self.now_ms = link, keys, now_ms
        self.seen, self.draft = Seen(), Draft(keys)
        # How often the server was asked: what was read at once is of one moment.
        self.trips = 0

    def ask(self, commands: Sequence[Words]) -> list[Any]:
        """Replies to several commands, in one round trip."""
        if not commands:
            return []
        self.trips += 1
        return self.link.many(commands)

    def page(self, order: bytes, records: bytes, *words: Any) -> tuple[list[bytes], list[bytes | None]]:
        """A part of an order with its records."""
        ((members, found),) = self.ask([PAGE.words((order, records), *words)])
        return members, found

    # Small records

    def records(self, kind: str, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Small named records of a kind: these names, or all."""
        self._ask_together([self._asking_records(kind, names)])
        if kind in self.seen.kinds:
            found = dict(self.seen.kinds[kind][1])
        else:
            seen = {name: self.seen.records[kind, name] for name in names or ()}
            found = {name: value for name, value in seen.items() if value is not None}
        for (of, name), value in self.draft.records.items():
            if of == kind:
                found.pop(name, None)
                if value is not None:
                    found[name] = value
        return found if names is None else {name: found[name] for name in names if name in found}

    def kind_words(self, kind: str) -> list[Words]:
        """What asks for a whole kind."""
        return [(b"HGET", self.keys.kinds, kind), (b"HGETALL", self.keys.records(kind))]

    def see_kind(self, kind: str, version: bytes | None, found: Any) -> None:
        """The replies to that."""
        pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
        self.seen.kinds[kind] = (version, {name.decode(): value for name, value in pairs})

    def read_ahead(self, records: Names, domains: Collection[DomainKey]) -> None:
        """Have these seen, by one round trip."""
        asked = [self._asking_records(kind, names) for kind, names in records.items()]
        self._ask_together([*asked, self._asking_domains(domains)])

    def _ask_together(self, asked: Sequence[Asking]) -> None:
        replies = iter(self.ask([words for commands, _ in asked for words in commands]))
        for commands, see in asked:
            if commands:
                see([next(replies) for _ in commands])

    def _asking_records(self, kind: str, names: Collection[str] | None) -> Asking:
        if kind in self.seen.kinds:
            return _NOTHING
        if names is None:
            return self.kind_words(kind), lambda replies: self.see_kind(kind, *replies)
        missing = [name for name in dict.fromkeys(names) if (kind, name) not in self.seen.records]

        def see(replies: Sequence[Any]) -> None:
            found = zip(missing, replies[0], strict=True)
            self.seen.records |= {(kind, name): value for name, value in found}

        return ([(b"HMGET", self.keys.records(kind), *missing)], see) if missing else _NOTHING

    def present(self, name: str) -> bool:
        """Whether a process that appeared under a name is still there."""
        (found,) = self.ask([(b"EXISTS", self.keys.here(name))])
        return bool(found)

    # Unique keys

    def find_unique(self, keys: Collection[UniqueKey]) -> dict[UniqueKey, Unique]:
        """Who holds these keys, also where `until_ms` has passed."""
        own, seen = self.draft.uniques, self.seen.uniques
        if missing := [key for key in dict.fromkeys(keys) if key not in own and key not in seen]:
            (values,) = self.ask([(b"HMGET", self.keys.unique, *(joined(*key) for key in missing))])
            self.seen.uniques |= dict(zip(missing, values, strict=True))
        found = {key: self._holder(key) for key in keys}
        return {key: holder for key, holder in found.items() if holder is not None}

    def _holder(self, key: UniqueKey) -> Unique | None:
        if key in self.draft.uniques:
            return self.draft.uniques[key]
        raw = self.seen.uniques[key]
        return None if raw is None else k.read_unique(key, raw)

    # Domains

    def domains(self, keys: Collection[DomainKey]) -> dict[DomainKey, Domain]:
        """What is kept of these domains."""
        self._ask_together([self._asking_domains(keys)])
        found = {key: self.domain_now(key) for key in keys}
        return {key: domain for key, domain in found.items() if domain is not None}

    def _asking_domains(self, keys: Collection[DomainKey]) -> Asking:
        own, seen = self.draft.domains, self.seen.domains
        missing = [key for key in dict.fromkeys(keys) if key not in own and key not in seen]
        if not missing:
            return _NOTHING
        # Of one that becomes limited its jobs are counted next: most often there are none.
        crowds = [(b"ZCARD", self.keys.domain(key)) for key in missing]
        fields = (b"HMGET", self.keys.domains, *(joined(*key) for key in missing))

        def see(replies: Sequence[Any]) -> None:
            values, *counts = replies
            for key, raw, count in zip(missing, values, counts, strict=True):
                self._see_domain(key, raw)
                self.seen.crowds[key] = count

        return [fields, *crowds], see

    def _see_domain(self, key: DomainKey, raw: bytes | None) -> None:
        if raw is None:
            self.seen.domains[key] = None
            return
        at_ms, domain = k.read_domain(raw)
        self.seen.domains[key] = StampedDomain(raw[: k.STAMP_BYTES], at_ms, domain)
        self.written_at(at_ms)

    def written_at(self, at_ms: int) -> None:
        """A domain was written at a moment: nothing to somebody who only looks."""

    def domain_now(self, key: DomainKey) -> Domain | None:
        """A domain that was read, as it stands now."""
        if key in self.draft.domains:
            return self.draft.domains[key]
        seen = self.seen.domains[key]
        return None if seen is None else seen.domain

    def due_domains(self, up_to: int, limit: int) -> list[Domain]:
        """The domains whose `due_ms` is not 0 and at most `up_to`, first ones first."""
        words = (self.keys.domains_due, 1, up_to, "LIMIT", 0, limit + len(self.draft.domains))
        (names,) = self.ask([(b"ZRANGEBYSCORE", *words)])
        found = self.domains([*map(domain_key, names), *self.draft.domains])
        due = [domain for domain in found.values() if 0 < domain.due_ms <= up_to]
        return sorted(due, key=lambda domain: (domain.due_ms, domain.key))[:limit]

    def list_domains(self, tenant: str, *, after: bytes, limit: int) -> list[Domain]:
        """What is kept of a tenant's domains, by name, from the first above `after` (b"": all)."""
        span = b"(" + joined(tenant, after), b"(" + tenant.encode() + b"\1"
        words = (self.keys.domain_names, *span, "LIMIT", 0, limit + len(self.draft.domains))
        (names,) = self.ask([(b"ZRANGEBYLEX", *words)])
        found = self.domains([*map(domain_key, names), *self.draft.domains])
        mine = [domain for domain in found.values() if domain.tenant == tenant and domain.name > after]
        return sorted(mine, key=lambda domain: domain.name)[:limit]

    # Counts

    def counts(self, *, tenant: str | None = None) -> dict[CountKey, int]:
        """How many jobs there are of each kind."""
        (found,) = self.ask([(b"HGETALL", self.keys.counts)])
        pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
        counts = {_count_key(field): int(value) for field, value in pairs}
        for key, change in self.draft.counts.items():
            counts[key] = counts.get(key, 0) + change
        return {key: count for key, count in counts.items() if count and tenant in (None, key.tenant)}

    # Logs

    def read_log(self, log: str, *, after: int, limit: int) -> list[LogRow]:
        """Items of a log in order, from the first above `after`."""
        own, trims = self.draft.items.get(log, {}), self.draft.trims.get(log, [])
        most = limit + sum(up_to - begin for begin, up_to in trims)
        words = (b"(%019d" % after, b"+", "BYLEX", "LIMIT", 0, most)
        members, found = self.page(self.keys.log("items", log), self.keys.log("bodies", log), *words)
        rows = {
            int(at): LogRow(int(at), *k.read_item(raw)) for at, raw in zip(members, found, strict=True) if raw
        }
        rows |= {at: row for at, row in own.items() if at > after}
        kept = [at for at in sorted(rows) if not any(begin < at <= up_to for begin, up_to in trims)]
        return [rows[at] for at in kept[:limit]]

    def find_in_log(self, log: str, keys: Collection[bytes]) -> dict[bytes, int]:
        """Where in a log these keys are, or were before their items were trimmed."""
        wanted = list(dict.fromkeys(keys))
        if not wanted:
            return {}
        (values,) = self.ask([(b"HMGET", self.keys.log("keys", log), *wanted)])
        found = {key: int(at) for key, at in zip(wanted, values, strict=True) if at is not None}
        own = self.draft.log_keys.get(log, {})
        found |= {key: at for key, at in own.items() if at is not None and key in wanted}
        return {key: at for key, at in found.items() if own.get(key, at) is not None}


def domain_key(name: bytes) -> DomainKey:
    """A domain from the name of its field."""
    tenant, _, domain = name.partition(b"\0")
    return tenant.decode(), domain


def _count_key(field: bytes) -> CountKey:
    tenant, task, place, state = field.decode().split("\0")
    return CountKey(tenant, task, Place(int(place)), State(state))
