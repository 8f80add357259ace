"""The contract that every store implements, and the records that it exchanges with the engine.

`store.run(fn)` calls `fn(txn)` as one atomic batch, and calls it again after a conflict with another batch:
one call after the other, never while an earlier one may still be committed. `fn` reads through `txn` and
returns a `Changes` and a result. **What it has read stays unchanged until the commit, not only what it
writes**: what `rows`, `children` (with their parent), `domain_counts` and `notice` have returned or not
found, and the jobs that `load`, `archived`, `first`, `expiring`, `ended` and `domain_queue` have returned.
The other reads are hints. When `run` returns, the changes survive a crash of the process and of the machine,
as far as the store's durability setting promises.

    fn reads through txn ──▶ the rules decide ──▶ Changes ──▶ the store commits it

A store keeps jobs in order and decides nothing. `claim` and `lease` are the only methods by which it changes
jobs itself, exactly as `core.rules.claim` changes a plain job (`core.job.plain_lease_ms`).

What users do most needs no read: `commit` writes changes that were decided without one, and `lease` claims
plain jobs. Both are one statement or message, and refuse whatever needs more; then the engine runs a batch.

Everything other than jobs is a row: a table, a key, bytes and optionally the time at which it is due. Unique
keys, domains, limits, pauses, schedules, workers, sysids, progress, logs and steps are rows (`core.kinds`).

Which locks a store takes, and in which order, is its own matter: docs/decisions/0003 and, for PostgreSQL,
0007. Versions are not: version n of a job is replaced by version n + 1 only, or `Conflict` is raised and the
whole batch is run again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import msgspec
from msgspec.structs import replace

from ..core import rank
from ..core.glob import matches
from ..core.history import TallyKey as TallyKey
from ..core.job import ANY_LEASE_MS, Body, Counted, Job, Place, State, counted, size_of
from ..core.jump import Jump
from ..core.kinds import Names
from ..core.limits import DomainCounts, DomainKey
from ..core.queries import JobFilter as JobFilter
from ..core.queries import Waiting as Waiting

T = TypeVar("T")
# How often a batch is run after conflicts; then `Contended` is raised.
TRIES = 100
# (tenant, task) pairs that claims skip; None matches any tenant or task.
Skipped = tuple[tuple[str | None, str | None], ...]
# (tenant, task, maximum number of jobs) to claim.
Pick = tuple[str, str, int]
# A READY job as it was before a claim, and its data.
Leased = tuple[Job, Body]
# The table and the key of a row.
RowKey = tuple[str, str]
# The key and the value of a row.
Row = tuple[str, bytes]


class CountKey(NamedTuple):
    """The key of a count. Archived jobs count as DONE, suspended ones as what they wait for."""

    tenant: str
    task: str
    place: Place
    counted: Counted

    @property
    def state(self) -> State:
        """The state that users see."""
        if isinstance(self.counted, State):
            return self.counted
        return State.PAUSED if self.place is Place.PAUSED else State.QUEUED


def count_key(job: Job) -> CountKey:
    """What a job counts as."""
    return CountKey(job.tenant, job.task, job.place, counted(job))


class NewJobs(msgspec.Struct, frozen=True, gc=False):
    """Jobs to add that differ from `template` only in id, data and size; the first job is `template`.

    Jobs are often added in thousands that differ in nothing else, so a store can encode the rest once.
    """

    template: Job
    rows: Sequence[tuple[int, Body]]
    # Whether the ids were made in this transaction, so that no archived job can have them.
    is_fresh: bool = False

    def jobs(self) -> list[tuple[Job, Body]]:
        """Each job with its data."""
        template = self.template
        if len(self.rows) == 1 and self.rows[0][0] == template.id:
            return [(template, self.rows[0][1])]
        return [(replace(template, id=id, size=size_of(data)), data) for id, data in self.rows]


# `Changes.notice`: leave the notice as it is.
UNCHANGED = b"\0unchanged"
# `Changes.wake`: which waiting processes the commit wakes up: none, those that wait for completions or log
# appends, or those that wait for jobs. Processes that wait for completions wake up for JOBS too.
NO_WAKE, ENDS, JOBS = "", "ends", "jobs"


class Changes(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that a batch writes, in this order. A job occurs once, or in `added` and one more."""

    # An id that exists already is a `Conflict`; that of an archived job too, unless the group is fresh.
    added: Sequence[NewJobs] = ()
    # Live jobs to replace. Each has the stored version plus one, or `Conflict`.
    swapped: Sequence[Job] = ()
    # Live jobs to move to the archive, also with the stored version plus one.
    archived: Sequence[Job] = ()
    # Live jobs to delete with data and result. Each has the stored version, or `Conflict`.
    removed: Sequence[Job] = ()
    # Ids of archived jobs to delete with data and result; a missing one is a `Conflict`.
    forgotten: Collection[int] = ()
    # Data to write or replace, and results, by id.
    data: Mapping[int, Body] = {}
    results: Mapping[int, Body] = {}
    # Differences to add; a count or a tally of zero is deleted.
    counts: Mapping[CountKey, int] = {}
    tallies: Mapping[TallyKey, int] = {}
    # Rows to write; None deletes one. `dues`: when a row is due (`scan`); rows without an entry never are.
    rows: Mapping[RowKey, bytes | None] = {}
    dues: Mapping[RowKey, int] = {}
    # The value that `ReadTxn.notice` returns to later batches. Batches that read the old value commit first.
    notice: bytes | None = UNCHANGED
    wake: str = NO_WAKE


NOTHING = Changes()


def only_add(changes: Changes) -> NewJobs | None:
    """The one new job of changes that do nothing else, if its id was made for it."""
    added = changes.added
    if len(added) != 1 or changes.swapped or changes.archived or changes.removed:
        return None
    return added[0] if added[0].is_fresh and len(added[0].rows) == 1 else None


class ClaimQuery(NamedTuple):
    """Which READY jobs to lease, to which owner, until when."""

    owner: int
    now_ms: int
    limit: int
    # 0: no lease.
    lease_until: int = 0
    # Here and below None means any.
    tenant: str | None = None
    tasks: tuple[str, ...] | None = None
    # Only tasks whose names match this pattern (`core.glob.matches`).
    glob: str | None = None
    priority: int | None = None
    # Whether mocked jobs are claimed too.
    mock: bool = False
    skipped: Skipped = ()
    tenants: tuple[str, ...] | None = None
    # Only jobs of these different pairs, up to the number of each, and no mocked ones. Empty: of all pairs.
    picks: tuple[Pick, ...] = ()
    # Whether the run starts now; otherwise the holder reports its start later.
    start: bool = True

    @property
    def started_at(self) -> int:
        """The start of the run: now, or 0 if the holder reports it later."""
        return self.now_ms if self.start else 0

    @property
    def lease_ms(self) -> int:
        """How long the lease is: jobs whose `plain_lease_ms` is less do not start plainly."""
        return self.lease_until - self.now_ms if self.lease_until else ANY_LEASE_MS

    def wants(self, tenant: str, task: str) -> bool:
        """Whether the query matches any jobs of a tenant's task."""
        return (
            self.tenant in (None, tenant)
            and (self.tenants is None or tenant in self.tenants)
            and (self.tasks is None or task in self.tasks)
            and (self.glob is None or matches(self.glob, task))
            and not is_skipped((tenant, task), self.skipped)
        )

    def matches(self, job: Job) -> bool:
        """Whether a READY job matches, whatever the limits on the number of jobs."""
        return (
            self.priority in (None, job.priority)
            and (self.mock or not job.mock)
            and self.wants(job.tenant, job.task)
        )


class WaitingQuery(NamedTuple):
    """Which (tenant, task) pairs with READY jobs to list, and how many pairs; None means any."""

    limit: int
    tenants: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    skipped: Skipped = ()
    # Only pairs that have a handler: a row in the table `HANDLED`.
    handled: bool = False
    # The tenant and the task above which the list begins; it wraps round.
    after: tuple[str, str] = ("", "")


def picks_left(picks: tuple[Pick, ...], taken: Iterable[Job]) -> tuple[Pick, ...]:
    """The picks less the claimed jobs. A pick of 0 jobs stays: without picks a claim takes any job."""
    if not picks:
        return picks
    count = Counter((job.tenant, job.task) for job in taken)
    return tuple((tenant, task, most - count[tenant, task]) for tenant, task, most in picks)


def is_skipped(pair: tuple[str, str], skipped: Skipped) -> bool:
    """Whether claims skip a tenant's task."""
    return any(tenant in (None, pair[0]) and task in (None, pair[1]) for tenant, task in skipped)


def leased_all(jobs: Iterable[Job], query: ClaimQuery) -> list[Job]:
    """The jobs as a claim leaves them; the same as `core.rules.claim` for plain jobs."""
    until, end, started_at, owner = (
        query.lease_until,
        rank.lease(query.lease_until),
        query.started_at,
        query.owner,
    )
    return [
        replace(
            job,
            place=Place.RUNNING,
            rank=end,
            owner=owner,
            lease_until=until,
            started_at=started_at,
            claim=job.claim + 1,
            version=job.version + 1,
        )
        for job in jobs
    ]


def added(parts: Iterable[Mapping[T, int]]) -> dict[T, int]:
    """The sums of several counts, without those that are zero."""
    sums: dict[T, int] = {}
    for part in parts:
        for key, number in part.items():
            sums[key] = sums.get(key, 0) + number
    return {key: number for key, number in sums.items() if number}


def merged_counts(counts: Mapping[CountKey, int], *, task: str | None) -> dict[CountKey, int]:
    """The counts of all tenants together; of one task, or of all."""
    mine = ((key, number) for key, number in counts.items() if task in (None, key.task))
    return added({key._replace(tenant=""): number} for key, number in mine)


def page_of_counts(
    counts: Mapping[CountKey, int],
    *,
    tenant: str | None = None,
    after: tuple[str, str] = ("", ""),
    limit: int | None = None,
) -> dict[CountKey, int]:
    """The counts of a tenant, or of all; with `limit` the first in order, of the pairs above `after`."""
    mine = {key: number for key, number in counts.items() if tenant in (None, key.tenant)}
    if limit is None:
        return mine
    return {key: mine[key] for key in sorted(key for key in mine if key[:2] > after)[: max(limit, 0)]}


def counts_of_lease(jobs: Iterable[Job]) -> dict[CountKey, int]:
    """The differences of the counts when these plain jobs are leased."""
    differences: dict[CountKey, int] = {}
    for (tenant, task), count in Counter([(job.tenant, job.task) for job in jobs]).items():
        differences[CountKey(tenant, task, Place.READY, State.QUEUED)] = -count
        differences[CountKey(tenant, task, Place.RUNNING, State.RUNNING)] = count
    return differences


def first_jobs(jobs: Sequence[Job], most_bytes: int) -> Sequence[Job]:
    """The first of these jobs, with at most `most_bytes` of data together, or one."""
    size = 0
    for at, job in enumerate(jobs):
        size += job.size
        if at and size > most_bytes:
            return jobs[:at]
    return jobs


class Moments(NamedTuple):
    """The next times in ms at which upkeep has something to do, by kind; None: never."""

    scheduled: int | None
    running: int | None
    expiring: int | None
    domains: int | None

    @property
    def first(self) -> int | None:
        """The earliest of the four."""
        return min([moment for moment in self if moment is not None], default=None)

    def is_due(self, now_ms: int) -> bool:
        """Whether upkeep has something to do now."""
        return self.first is not None and self.first <= now_ms

    def after_claim(self, jobs: Sequence[Job], lease: int) -> "Moments | None":
        """The moments after these jobs were leased until `lease`, a rank; None: they must be read again."""
        if any([job.expires_at for job in jobs]):  # noqa: C419 - a call for each less
            return None
        return self._replace(running=lease) if lease < (self.running or rank.LAST) else self


class ReadTxn(Protocol):
    """The reads, all from one consistent view."""

    @property
    def now_ms(self) -> int:
        """The store's time when the view began."""

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        """The live jobs with these ids and their parents. None of them changes until the commit."""

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        """The archived jobs with these ids."""

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        """The data, or the results, of live and archived jobs by id; missing ones are left out."""

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """The live children of a job with an id above `after`, ordered by id."""

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        """The id of the first live job of a task, by (place, rank, id); fast if there is none.

        Only places whose count is above zero are searched, so jobs added by this transaction may be missed.
        """

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place, by (rank, id), whose rank is at most `up_to`.

        In a batch this, `expiring`, `ended` and `domain_queue` may leave out jobs that another batch has.
        """

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        """Jobs that have not started and whose `expires_at` is at most `up_to`, earliest first."""

    def ended(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        """The first archived jobs that ended before `before_ms`, by (finished_at, id)."""

    def jobs(self, query: JobFilter, *, after: int, limit: int, before: int | None = None) -> list[Job]:
        """Jobs that match, with an id above `after`, ordered by id.

        With `before` those with an id between the two, the highest first.
        """

    def heads(self, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """Of each tenant's task its first READY job by (rank, id), if it has one that is not mocked."""

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """The pairs with READY jobs: tenants by name from above `after[0]` on, wrapping round.

        Of each tenant its tasks by name from above `after[1]` on, wrapping round. The first task of each
        tenant comes first, then the second of each, up to `query.limit` pairs (`store/ready_pairs.py`).
        The cost does not grow with the number of pairs: only a bounded number is examined. If the query skips
        or excludes all of these, the list is empty although other pairs have READY jobs. A batch sees the
        pairs as they were before it, until it writes the counts.
        """

    def domain_queue(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        """Jobs of a domain's task in a place, by (rank, id): the first, or the last in reverse order."""

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        """The numbers of READY, HELD and RUNNING jobs of domains that have any; counted, so expensive.

        No job joins such a domain between this read and the commit of a batch that writes its row.
        """

    def counts(
        self, *, tenant: str | None = None, after: tuple[str, str] = ("", ""), limit: int | None = None
    ) -> dict[CountKey, int]:
        """The numbers of jobs by tenant, task, place and state; maintained with each change, not counted.

        With `limit` the first ones in order of tenant and task, of the pairs above `after`.
        """

    def totals(self, *, task: str | None = None) -> dict[CountKey, int]:
        """The same for all tenants together, as of tenant "", added up by the store where it can."""

    def tallies(self) -> dict[TallyKey, int]:
        """The tallies that are in no bucket yet. They may change before the commit."""

    def moments(self) -> Moments:
        """When upkeep has something to do next."""

    def rows(self, table: str, keys: Collection[str] | None = None) -> dict[str, bytes]:
        """The values of rows by key; without `keys` the whole table, which must be small.

        The rows do not change until the commit, and missing rows stay missing.
        """

    def scan(
        self,
        table: str,
        *,
        after: str = "",
        prefix: str = "",
        due_before: int | None = None,
        limit: int,
    ) -> list[Row]:
        """A page of a table: rows with a key above `after` that starts with `prefix`, ordered by key.

        With `due_before` only rows due at that time or earlier, ordered by due time. The rows may change
        before the commit.
        """

    def tables(self) -> list[str]:
        """The names of all tables that have rows; used to copy a store."""

    def present(self, names: Collection[str]) -> set[str]:
        """Those of these names whose processes, which announced them (`Store.appear`), are still running."""

    def notice(self) -> bytes | None:
        """The notice of a store that is being moved, else None. It does not change until the commit.

        Every batch reads it, so it must be cheap.
        """


class Txn(ReadTxn, Protocol):
    """One atomic batch. Its reads see its own writes."""

    # The last forward jump of the clock that this process noticed, if the store uses the local clock.
    jump: Jump | None

    def read_ahead(self, rows: Names) -> None:
        """Prefetch rows that will be read next, in one round trip where that is cheaper."""

    def claim(self, query: ClaimQuery) -> list[Job]:
        """Lease the first jobs that match, by (rank, id).

        It finds READY jobs that are counted, and those that this batch has written. They become what
        `leased_all` returns, and are returned as they were before. No two callers ever get the same job, and
        the list is in order. It may be shorter than `limit`, or empty; the call never waits (see
        `Store.wait`).
        """

    def write(self, changes: Changes) -> None:
        """Write changes that later reads and claims of this batch must see. What `fn` returns comes last."""


class Capabilities(NamedTuple):
    """What the engine must know of a store: what it can do, and how to use it."""

    # How many commits of one process may be in progress at once.
    parallel_commits: int = 1
    # Whether one more may be if it is of a worker's answers, so that claims need not wait for it.
    answers_beside: bool = False
    # Whether reads send nothing to a server, so that a process may read often.
    reads_locally: bool = False
    # Whether ids must be allocated before joining a caller's transaction instead of inside it.
    ids_apart: bool = False


class StoreReport(NamedTuple):
    """Version, settings and sizes of a store; and problems, each with its fix."""

    facts: dict[str, str]
    complaints: list[str]


class AnyStore(Protocol):
    """One store, or several as one (`ShardedStore`): what concerns no single batch."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do; constant."""

    @property
    def shards(self) -> Sequence["Store"]:
        """The stores that run the batches: this one alone, or the shards in order."""

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """Call `fn` on one consistent view, concurrently with writers.

        `hint`: the view need not be consistent.
        """

    async def lend(self, connection: Any) -> Any:
        """Wrap an asyncio connection so that `borrow` can use it in another thread than the event loop's."""

    def now_ms(self) -> int:
        """The store's clock, which all processes use for leases."""

    def appear(self, name: str) -> bool:
        """Announce this process under a unique name until the store is closed or the process ends.

        No job or row is written. False if the store cannot tell which processes are running.
        """

    def report(self) -> StoreReport:
        """The state of the store, which is opened for it; nothing is written."""

    def close(self) -> None:
        """Release all resources; a closed store is not used again."""


class OneStore:
    """The base of stores that are one."""

    @property
    def shards(self) -> tuple[Self]:
        """This store."""
        return (self,)


class Store(AnyStore, Protocol):
    """Where jobs are kept."""

    def commit(self, changes: Changes) -> bool:
        """Commit changes for which nothing was read, in one statement or message where possible.

        They are those of plain adds, answers and steps, without `dues`, `forgotten` and `notice`, and are
        durable on return. Their `rows` are steps, which only the holder of a job writes. False: nothing was
        written, because an id exists, a job is not of the version before, or the store has a notice; a batch
        then finds out which. A store may return False at any
        time. Errors are those of `run`.
        """

    def lease(self, query: ClaimQuery, leased: list[Leased]) -> bool:
        """Lease the first READY jobs that match, in one statement or message where possible; append them.

        What `Txn.claim` and `bodies` do in a batch: the jobs as they were before, with their data; and the
        counts of `counts_of_lease`. Missing data is `MISSING`. False: nothing was leased, because something
        else must be decided: the store has a notice or a pause, something is due by `query.now_ms`
        (`ReadTxn.moments`), or one of the jobs does not start plainly (`core.job.plain_lease_ms`). A store
        may return False at any time, and does so if it cannot send the query within `bounds.LATE_S`, as the
        lease would have begun long before. The jobs have at most CLAIM_BYTES of data, or there is one.

        `leased` is filled before the commit, or as soon as that is known: after an interrupt it has what may
        have been leased, which the caller then releases.
        """

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Call `fn` as one atomic batch, again after a conflict; durable on return.

        Errors of the library are translated: `Unavailable` if the store cannot be reached, `Contended` after
        too many conflicts, `Unsettled` if it cannot be found out whether the batch was committed.
        """

    def borrow(self, connection: Any, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Call `fn` inside the caller's own transaction on the caller's connection to this store.

        Raises `InAutocommit` (`common.lending`) if there is no open transaction, but each statement commits.
        """

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """Sleep until another process may have committed something: a hint that may come late, or never.

        `ends`: whether it also wakes up on completions and log appends, not only on claimable jobs. False if
        the time has passed, or if it was interrupted and no process has committed anything.
        """

    def interrupt(self) -> None:
        """Wake this process's own `wait`, or its next one."""

    def stop_retrying(self) -> None:
        """The store will be closed: its calls wait for an unavailable server only a few seconds more."""
