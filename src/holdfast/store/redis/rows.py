"""The reads of rows, counts and the notice in a Redis store, and its round trips.

Reads show the rows that the batch itself has written.

`ReadSet` and `Written` have what a batch has read and written so far, before its commit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.errors import Conflict
from ...core.job import Body, Job
from ...core.kinds import DOMAIN, Names
from ..contract import UNCHANGED, CountKey, Row, RowKey, TallyKey, added, merged_counts, page_of_counts
from .connection import PAGE, Command, RedisServer
from .keys import STAMP_BYTES, Keys, count_key, is_tally, tally_key, written_at


class ReadSet:
    """What was read from the server; None for missing values. The commit checks that nothing has changed."""

    def __init__(self) -> None:
        # Jobs, and the stamps of those that exist.
        self.jobs: dict[int, Job | None] = {}
        self.stamps: dict[int, bytes] = {}
        self.archive: dict[int, Job | None] = {}
        self.archive_stamps: dict[int, bytes] = {}
        # Rows with their stamps.
        self.rows: dict[RowKey, bytes | None] = {}
        # Tables that were read whole: the stamp of their last change, and their rows.
        self.tables: dict[str, tuple[bytes | None, dict[str, bytes]]] = {}
        # The number of live jobs of domains whose rows were read, by the key of the row.
        self.domain_sizes: dict[str, int] = {}
        # The data of the jobs, as it is in their values. It may change before the commit.
        self.data: dict[int, bytes] = {}


class Written:
    """What was written; None for deleted values. Reads use it before `ReadSet`."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job | None] = {}
        self.archive: dict[int, Job | None] = {}
        # Ids of added jobs that were not looked up: the commit checks that they do not exist.
        self.added: set[int] = set()
        self.data: dict[int, Body | None] = {}
        self.results: dict[int, Body | None] = {}
        self.counts: Mapping[CountKey, int] = {}
        self.tallies: Mapping[TallyKey, int] = {}
        self.rows: dict[RowKey, bytes | None] = {}
        self.dues: dict[RowKey, int] = {}
        self.notice: bytes | None = UNCHANGED


class KnownVersion(NamedTuple):
    """What a process knows of a store: the value of the key `version`, and the notice with its stamp.

    The value is `LAYOUT OLDEST STAMP`: the layout, the oldest version that may write it, and the stamp of the
    notice. So one comparison shows whether a process must look at either of them again.
    """

    version: bytes
    notice: bytes | None = None

    @property
    def layout(self) -> bytes:
        """The value without the stamp of the notice."""
        return self.version[: self.version.rindex(b" ") + 1]


class VersionChanged(Conflict):
    """The layout or the notice is not the one that the batch has used."""

    def __init__(self) -> None:
        super().__init__("the layout or the notice has changed")


class ClockBehind(Conflict):
    """A domain was written by a batch with a later time than this one."""

    def __init__(self, at_ms: int) -> None:
        super().__init__("a domain was written later than now")
        self.at_ms = at_ms


class RedisRows:
    """A view of a store; see `ReadTxn` for what each method promises."""

    # Whether the time is the server's, not that of a test's clock.
    timed = False

    def __init__(self, server: RedisServer, keys: Keys, now_ms: int, known: KnownVersion) -> None:
        self.server, self.keys, self.now_ms = server, keys, now_ms
        self.seen, self.written = ReadSet(), Written()
        # The first round trip checks it, and so does the commit.
        self.known = known
        # The number of round trips; a single one is consistent.
        self.trips = 0

    # Submitter

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Replies to several commands, in one round trip."""
        if not commands:
            return []
        if not self.trips:
            return self.begin(commands)
        self.trips += 1
        return self.server.call_many(commands)

    def begin(self, commands: Sequence[Command] = ()) -> list[Any]:
        """The first round trip, which also checks the known layout and notice."""
        self.trips = 1
        keys = self.keys
        version, *replies = self.server.call_many([(b"GET", keys.version), *commands])
        if version != self.known.version:
            raise VersionChanged
        return replies

    def page(self, order: bytes, records: bytes, *words: Any) -> tuple[list[bytes], list[bytes | None]]:
        """A part of an order, with the records of its members."""
        ((members, found),) = self.ask([PAGE.command((order, records), *words)])
        return members, found

    def notice(self) -> bytes | None:
        """The notice of a store that is being moved."""
        if self.written.notice != UNCHANGED:
            return self.written.notice
        raw = self.known.notice
        return None if raw is None else raw[STAMP_BYTES:]

    def present(self, names: Collection[str]) -> set[str]:
        """Those of these names whose processes are running."""
        found = self.ask([(b"EXISTS", self.keys.here(name)) for name in names])
        return {name for name, is_there in zip(names, found, strict=True) if is_there}

    def counts(
        self, *, tenant: str | None = None, after: tuple[str, str] = ("", ""), limit: int | None = None
    ) -> dict[CountKey, int]:
        """The numbers of jobs by tenant, task, place and state."""
        (flat,) = self.ask([(b"HGETALL", self.keys.counts)])
        fields = [(field, int(value)) for field, value in in_pairs(flat) if not is_tally(field)]
        if limit is not None and not self.written.counts:
            # A separator sorts before all that names contain, so the fields are in order of their keys.
            above = "{}\0{}\x01".format(*after).encode() if any(after) else b""
            of_tenant = b"" if tenant is None else tenant.encode() + b"\0"
            fields = sorted([one for one in fields if one[0] > above and one[0].startswith(of_tenant)])[
                :limit
            ]
        counts = {count_key(field): count for field, count in fields}
        counts = added((counts, self.written.counts))
        return page_of_counts(counts, tenant=tenant, after=after, limit=limit)

    def totals(self, *, task: str | None = None) -> dict[CountKey, int]:
        """The numbers of all tenants together."""
        (flat,) = self.ask([(b"HGETALL", self.keys.counts)])
        sums: dict[bytes, int] = {}
        for field, value in in_pairs(flat):
            kind = field[field.index(b"\0") :]
            sums[kind] = sums.get(kind, 0) + int(value)
        counts = {count_key(kind): count for kind, count in sums.items() if not is_tally(kind)}
        return added((merged_counts(counts, task=task), merged_counts(self.written.counts, task=task)))

    def tallies(self) -> dict[TallyKey, int]:
        """What was tallied and is in no bucket yet."""
        (flat,) = self.ask([(b"HGETALL", self.keys.counts)])
        tallies = {tally_key(field): int(value) for field, value in in_pairs(flat) if is_tally(field)}
        return added((tallies, self.written.tallies))

    # Rows

    def read_ahead(self, rows: Names) -> None:
        """Read these rows into `seen`, in one round trip."""
        self.ask_rows(rows)

    def ask_rows(self, wanted: Names, more: Sequence[Command] = ()) -> list[Any]:
        """Read rows into `seen`; return the replies to further commands of the same round trip."""
        seen, written, keys = self.seen, self.written.rows, self.keys
        missing: dict[str, list[str] | None] = {}
        commands: list[Command] = []
        for table, names in wanted.items():
            if table in seen.tables:
                continue
            if names is None:
                missing[table] = None
                commands += [(b"HGET", keys.versions, table), (b"HGETALL", keys.rows(table))]
                continue
            known = [name for name in dict.fromkeys(names) if (table, name) not in written]
            if new := [name for name in known if (table, name) not in seen.rows]:
                missing[table] = new
                commands.append((b"HMGET", keys.rows(table), *new))
                # The jobs of a domain that becomes limited are counted next: mostly there are none.
                commands += [(b"ZCARD", keys.domain(name)) for name in new if table == DOMAIN]
        replies = self.ask([*commands, *more])
        at = 0
        for table, new_names in missing.items():
            at += self._note_rows(table, new_names, replies[at:])
        return replies[at:]

    def _note_rows(self, table: str, names: list[str] | None, replies: list[Any]) -> int:
        """Note rows as the server returned them; return how many replies they took."""
        if names is None:
            version, flat = replies[:2]
            self.seen.tables[table] = (version, {name.decode(): raw for name, raw in in_pairs(flat)})
            return 2
        raws = replies[0]
        self.seen.rows |= {(table, name): raw for name, raw in zip(names, raws, strict=True)}
        if table != DOMAIN:
            return 1
        self.seen.domain_sizes |= zip(names, replies[1 : 1 + len(names)], strict=True)
        last_ms = max((written_at(raw) for raw in raws if raw is not None), default=0)
        if self.timed and last_ms > self.now_ms:
            raise ClockBehind(last_ms)
        return 1 + len(names)

    def rows(self, table: str, keys: Collection[str] | None = None) -> dict[str, bytes]:
        """The values of rows by key; without `keys` the whole table."""
        self.ask_rows({table: keys})
        seen, written = self.seen, self.written.rows
        whole = seen.tables[table][1] if table in seen.tables else None
        if keys is None:
            assert whole is not None
            raws: dict[str, bytes | None] = {**whole}
        elif whole is not None:
            raws = {key: whole[key] for key in keys if key in whole}
        else:
            raws = {key: seen.rows[table, key] for key in keys if (table, key) in seen.rows}
        found: dict[str, bytes | None] = {
            key: raw[STAMP_BYTES:] for key, raw in raws.items() if raw is not None
        }
        if written:
            asked = [key for name, key in written if name == table and (keys is None or key in keys)]
            found |= {key: written[table, key] for key in asked}
        return {key: value for key, value in found.items() if value is not None}

    def scan(
        self,
        table: str,
        *,
        after: str = "",
        prefix: str = "",
        due_before: int | None = None,
        limit: int,
    ) -> list[Row]:
        """A page of a table, by key or by due time."""
        own = {key: value for (name, key), value in self.written.rows.items() if name == table}
        if due_before is None:
            low, high = _span(after.encode(), prefix.encode())
            order = self.keys.row_keys(table)
            words: tuple[Any, ...] = (low, high, "BYLEX", "LIMIT", 0, limit + len(own))
        else:
            order, words = self.keys.due_rows(table), (b"-inf", due_before, "BYSCORE")
            if not after and not prefix:
                words = (*words, "LIMIT", 0, limit + len(own))
        names, raws = self.page(order, self.keys.rows(table), *words)
        found = [(name.decode(), raw) for name, raw in zip(names, raws, strict=True) if raw is not None]
        rows = [(key, raw[STAMP_BYTES:]) for key, raw in found if key not in own]
        if not own:
            chosen = rows
        elif due_before is None:
            chosen = sorted([*rows, *((key, value) for key, value in own.items() if value is not None)])
        else:
            chosen = self._due_rows(table, names, rows, due_before)
        return [row for row in chosen if row[0] > after and row[0].startswith(prefix)][:limit]

    def _due_rows(self, table: str, names: list[bytes], rows: list[Row], due_before: int) -> list[Row]:
        """Due rows, with the changes of the batch, by due time."""
        scores = self.ask([(b"ZMSCORE", self.keys.due_rows(table), *names)])[0] if names else []
        due = {name.decode(): int(score or 0) for name, score in zip(names, scores, strict=True)}
        mine = {
            key: ms for (name, key), ms in self.written.dues.items() if name == table and ms <= due_before
        }
        values = {key: self.written.rows.get((table, key)) for key in mine}
        both = [*rows, *((key, value) for key, value in values.items() if value is not None)]
        return sorted(both, key=lambda row: ((due | mine)[row[0]], row[0]))

    def tables(self) -> list[str]:
        """The names of all tables that have rows."""
        (found,) = self.ask([(b"HKEYS", self.keys.versions)])
        names = {name.decode() for name in found}
        for table in {table for table, _ in self.written.rows}:
            names -= {table}
            if self.rows(table):
                names.add(table)
        return sorted(names)


def in_pairs(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    """A flat reply of names and values."""
    return zip(flat[::2], flat[1::2], strict=True)


def _span(after: bytes, prefix: bytes) -> tuple[bytes, bytes]:
    """The range of ZRANGE for keys above `after` with a prefix."""
    low = b"(" + after if after >= prefix else b"[" + prefix
    # No byte of UTF-8 is 255.
    return low, b"(" + prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"+"
