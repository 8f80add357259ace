"""What a store promises, and what it does not.

`store.run(fn)` calls `fn(txn)` as one atomic batch and may call it again if another batch was faster, so `fn`
must have no effect but through `txn` and what it returns: a `Changes` and a result. **Whatever `fn` read
stands still until the commit, not only what it writes.** When `run` returns, what was written survives the
death of the process and of the machine, as far as the store's durability setting says.

    fn reads through txn ──▶ the rules decide ──▶ Changes ──▶ the store commits it in one way

A store keeps jobs in order and decides nothing. `claim` is the one verb by which it changes jobs by itself,
and then just as `core.rules.claim` would change a plain one.

Everything that is no job is a row: a table, a key, bytes, perhaps a moment at which it is due. Unique keys,
domains, limits, pauses, schedules, workers, sysids, progress, logs and steps are rows (`core.kinds`).

Order of locks, for stores that lock: jobs (parents included) by id, then rows by the order of their tables in
`core.kinds.LOCK_ORDER` and by key; counts last, by adding only, and turns. Versions: a job is replaced by the
next version of itself, n by n + 1, or `Conflict` is raised and the whole batch is done again. See
docs/decisions/0003.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from ..core import rank
from ..core.glob import matches
from ..core.job import Body, Job, Place, size_of
from ..core.jump import Jump
from ..core.kinds import Names
from ..core.limits import DomainCounts, DomainKey
from ..core.queries import CountKey as CountKey
from ..core.queries import JobFilter as JobFilter
from ..core.queries import Waiting as Waiting

T = TypeVar("T")
# (tenant, task) pairs that claims pass by; None stands for any.
Passing = tuple[tuple[str | None, str | None], ...]
# A tenant's task, and how many of its jobs at most.
Pick = tuple[str, str, int]
# The table and the key of a row.
RowKey = tuple[str, str]
# The key and the value of a row.
Row = tuple[str, bytes]


class NewJobs(NamedTuple):
    """Jobs to add that are as `template` but for their id, their data and its size; the first is `template`.

    Most jobs are added by the thousand and alike, and a store may write what they share once.
    """

    template: Job
    rows: Sequence[tuple[int, Body]]

    def jobs(self) -> list[tuple[Job, Body]]:
        """Each job with its data."""
        template = self.template
        if len(self.rows) == 1 and self.rows[0][0] == template.id:
            return [(template, self.rows[0][1])]
        return [(replace(template, id=id, size=size_of(data)), data) for id, data in self.rows]


# `Changes.notice`: leave the notice as it is.
UNCHANGED = b"\0unchanged"
# `Changes.wake`: who is to be woken by the commit. Those that wait for a job to end, or for a log, wake for
# both.
NOBODY, ENDS, JOBS = "", "ends", "jobs"


class Changes(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that a batch writes, in this order. A job comes once, or is added and then archived or removed."""

    # An id that exists already, archived or not, is a `Conflict`.
    added: Sequence[NewJobs] = ()
    # The next version of each, whose number is one above the stored one, or `Conflict`.
    swapped: Sequence[Job] = ()
    # To the archive, as their next version.
    archived: Sequence[Job] = ()
    # Live jobs as they are stored, or `Conflict`; they go with data and result.
    removed: Sequence[Job] = ()
    # Ids of archived jobs that go with data and result; `Conflict` if one is not there.
    forgotten: Collection[int] = ()
    # Data to write or replace, and results, by id.
    data: Mapping[int, Body] = {}
    results: Mapping[int, Body] = {}
    # Differences; a count that comes to zero vanishes.
    counts: Mapping[CountKey, int] = {}
    # Rows to write; None deletes one. `dues`: at which moment a row is due (`scan`); others are never due.
    rows: Mapping[RowKey, bytes | None] = {}
    dues: Mapping[RowKey, int] = {}
    # What every batch is to see from now on (`ReadTxn.notice`). A batch that has read the old one has
    # committed.
    notice: bytes | None = UNCHANGED
    wake: str = NOBODY


NOTHING = Changes()


class ClaimQuery(NamedTuple):
    """Which READY jobs to lease, to whom, until when."""

    owner: int
    now_ms: int
    limit: int
    # 0: no lease.
    lease_until: int = 0
    # None: any.
    tenant: str | None = None
    tasks: tuple[str, ...] | None = None
    # Only tasks whose names match this pattern, as `core.glob.matches` says.
    glob: str | None = None
    priority: int | None = None
    # Also mocked jobs; otherwise they are passed by.
    mock: bool = False
    passing: Passing = ()
    # Any of these tenants; None: no matter which.
    tenants: tuple[str, ...] | None = None
    # Only jobs of these pairs, all different, of each at most so many and none that is mocked. (): of all.
    picks: tuple[Pick, ...] = ()
    start: bool = True

    @property
    def started_at(self) -> int:
        """The start of the run: now, or 0 where the holder reports it later."""
        return self.now_ms if self.start else 0

    def wants(self, tenant: str, task: str) -> bool:
        """Whether jobs of a tenant's task are asked for at all."""
        return (
            self.tenant in (None, tenant)
            and (self.tenants is None or tenant in self.tenants)
            and (self.tasks is None or task in self.tasks)
            and (self.glob is None or matches(self.glob, task))
            and not is_passed((tenant, task), self.passing)
        )

    def matches(self, job: Job) -> bool:
        """Whether a READY job is one of them, but for how many there may be."""
        return (
            self.priority in (None, job.priority)
            and (self.mock or not job.mock)
            and self.wants(job.tenant, job.task)
        )


class WaitingQuery(NamedTuple):
    """Whose READY jobs are looked for, and how many pairs; None: any."""

    limit: int
    tenants: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    passing: Passing = ()
    # Only pairs that have a handler: a row in the table `HANDLED`.
    handled: bool = False


def is_passed(pair: tuple[str, str], passing: Passing) -> bool:
    """Whether claims pass a tenant's task by."""
    return any(tenant in (None, pair[0]) and task in (None, pair[1]) for tenant, task in passing)


def leased_all(jobs: Iterable[Job], query: ClaimQuery) -> list[Job]:
    """What a claim makes of jobs: just what `core.rules.claim` makes of plain ones."""
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


def leased(job: Job, query: ClaimQuery) -> Job:
    """The same of one job."""
    return leased_all([job], query)[0]


class Moments(NamedTuple):
    """The first moment of each kind at which something becomes true by itself; None: never."""

    scheduled: int | None
    running: int | None
    expiring: int | None
    domains: int | None

    @property
    def first(self) -> int | None:
        """The earliest of them."""
        return min((moment for moment in self if moment is not None), default=None)

    def after_claim(self, jobs: Sequence[Job], lease: int) -> "Moments | None":
        """The moments after these jobs were leased until `lease`, a rank; None: they must be read again."""
        if any([job.expires_at for job in jobs]):  # noqa: C419 - a call for each less
            return None
        return self._replace(running=lease) if lease < (self.running or rank.LAST) else self


class ReadTxn(Protocol):
    """What can be read, in one consistent view."""

    @property
    def now_ms(self) -> int:
        """The store's time as the view began."""

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        """The live jobs among these, and the parents of all of them. What was loaded stands still."""

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        """The archived jobs among these."""

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        """The data of jobs, live or archived, or their results; what does not exist is left out."""

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """The live children of a job, by id, from the first above `after`."""

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        """The id of the first live job of that task, by (place, rank, id); fast where there is none.

        In the places where the counts know of one, so not of jobs that this transaction has added.
        """

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place, by (rank, id), whose rank is at most `up_to`."""

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        """Jobs that have not started and whose `expires_at` is at most `up_to`, first ones first."""

    def ended(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        """The first archived jobs that ended before a moment, by (finished_at, id)."""

    def jobs(self, query: JobFilter, *, after: int, limit: int) -> list[Job]:
        """Jobs that match, by id, from the first above `after`."""

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """Whose turn it is: tenants served longest ago first, and of each its tasks served longest ago.

        Of many tenants one task each, of few several each, in turn: the first of each tenant, then the
        second. Who was never served, or not for very many turns, comes first, by name. The cost does not grow
        with those that wait, so it looks at so many and no more: where all it sees is passed by or not asked
        for, it is empty although others may wait.
        """

    def domain_queue(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        """The first jobs of a task of a domain in a place, by (rank, id), or the last, backwards."""

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        """How many jobs of domains stand READY, HELD and RUNNING, if any; counted, so asked seldom."""

    def counts(self, *, tenant: str | None = None) -> dict[CountKey, int]:
        """How many jobs there are of each kind; kept as they change, never counted."""

    def moments(self) -> Moments:
        """When something becomes true by itself."""

    def rows(self, table: str, keys: Collection[str] | None = None) -> dict[str, bytes]:
        """The values of rows by key; without `keys` all of a table, which must be small.

        What was asked for stands still, absence too.
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
        """A page of a table: by key, from the first above `after` that begins with `prefix`.

        With `due_before` those whose moment is not later, the first due first. It need not stand still.
        """

    def tables(self) -> list[str]:
        """The names of all tables that have rows, for whoever copies a store."""

    def present(self, name: str) -> bool:
        """Whether a process that appeared under a name (`Store.appear`) is still there."""

    def notice(self) -> bytes | None:
        """The notice of a store that is being moved; none is changed until the commit.

        Every batch asks, so it must cost next to nothing.
        """


class Txn(ReadTxn, Protocol):
    """One atomic batch. Its reads see what it has written."""

    # A jump ahead of the clock that this process has noticed, where the clock is its machine's.
    jump: Jump | None

    def read_ahead(self, rows: Names) -> None:
        """These rows are asked for next: look them up together, where that costs less than one by one."""

    def claim(self, query: ClaimQuery) -> list[Job]:
        """Lease the first jobs that match, by (rank, id).

        Of READY jobs that are counted, and of those that this batch has written. They become what `leased`
        says, and are returned as they stood before. No two callers ever get the same job, and the list is in
        order. It may be shorter than asked, or empty; it never waits (see `Store.wait`). The pairs that it
        took from have had their turn (`waiting`).
        """

    def write(self, changes: Changes) -> None:
        """Write what must be there before a claim. What `fn` returns is written last."""


class Capabilities(NamedTuple):
    """What stores differ in."""

    # How many commits of a process may be under way at once.
    commits: int = 1
    # Whether it is worth saying of a batch that it is `blind`: each question costs a round trip.
    is_remote: bool = False
    # Whether ids are to be taken before a caller's transaction is joined, and not inside it.
    ids_apart: bool = False
    # Whether it is several stores, each of which runs its own batches: a `ShardedStore`.
    is_sharded: bool = False


class Report(NamedTuple):
    """What there is to say of a store: version, settings and sizes; and what is wrong and how to mend it."""

    facts: dict[str, str]
    complaints: list[str]


class Store(Protocol):
    """Where jobs are kept."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do; it does not change."""

    def run(self, fn: Callable[[Txn], tuple[Changes, T]], *, blind: bool = False) -> T:
        """Call `fn` as one atomic batch, again if another was faster; durable on return.

        `blind`: it most likely reads nothing, and so a store may send it all at once.
        """

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """Call `fn` on one consistent view, beside writers.

        `hint`: what is seen need not be of one moment.
        """

    def borrow(self, connection: Any, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Call `fn` inside the caller's own transaction on a connection of this store's library."""

    async def lend(self, connection: Any) -> Any:
        """Make a connection of asyncio's kind one that `borrow` takes, outside the loop's thread."""

    def now_ms(self) -> int:
        """The store's clock, by which all its users agree on leases."""

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """Sleep until another process may have changed something: a hint, on which nothing depends.

        Without `ends` a commit that brings nothing to claim need not wake it.
        """

    def interrupt(self) -> None:
        """Wake this process's own `wait`, or its next one."""

    def appear(self, name: str) -> bool:
        """Be seen by all who share the store until it is closed or the process ends, without a write.

        Nobody else may ever have that name. False where the store cannot tell who is there.
        """

    def report(self) -> Report:
        """What there is to say of the store; it is opened for that, and nothing is written."""

    def close(self) -> None:
        """Let go of everything; a closed store is not used again."""
