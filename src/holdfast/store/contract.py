"""What a store promises, and what it does not.

`store.run(fn)` calls `fn(txn)` as one atomic batch and may call it again if somebody else was faster,
so `fn` must have no effect but through `txn`. **Whatever `fn` read stands still until the commit, not
only what it writes.** When `run` returns, what was written survives the death of the process and of
the machine, as far as the store's durability setting says.

A store keeps jobs in order and decides nothing. `claim` is the one verb by which it changes jobs by
itself, and then just as `core.rules.claim` would change a plain one.

Order of locks, for stores that lock: jobs (parents included) by id, then domains by (tenant, name),
then unique keys, then small records by (kind, name); counts last, by adding only, and turns. Versions: a
job or domain is replaced by the next version of itself, n by n + 1, or `Conflict` is raised and the whole
batch is done again. See docs/decisions/0003. A log needs no lock of its own: whoever appends or trims has
read the log's small record, and writes it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from ..core import rank
from ..core.glob import matches
from ..core.job import Body, Job, Place, State
from ..core.jump import Jump
from ..core.kinds import Names
from ..core.limits import Domain, DomainCounts, DomainKey
from ..core.unique import Unique, UniqueKey
from .common.filters import JobFilter as JobFilter

T = TypeVar("T")
# (tenant, task) pairs that claims pass by; None stands for any.
Passing = tuple[tuple[str | None, str | None], ...]
# A tenant's task, and how many of its jobs at most.
Pick = tuple[str, str, int]


class CountKey(NamedTuple):
    """What jobs are counted by. Archived jobs count as DONE."""

    tenant: str
    task: str
    place: Place
    state: State


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
        """The start of the run: now, or 0 where the holder says later when it was."""
        return self.now_ms if self.start else 0

    def is_asked(self, tenant: str, task: str) -> bool:
        """Whether jobs of a tenant's task are asked for at all."""
        return (
            self.tenant in (None, tenant)
            and (self.tenants is None or tenant in self.tenants)
            and (self.tasks is None or task in self.tasks)
            and not is_passed((tenant, task), self.passing)
        )

    def takes(self, job: Job) -> bool:
        """Whether a READY job is one of them, but for how many there may be."""
        return (
            self.priority in (None, job.priority)
            and (self.glob is None or matches(self.glob, job.task))
            and (self.mock or not job.mock)
            and self.is_asked(job.tenant, job.task)
        )


class WaitingQuery(NamedTuple):
    """Whose READY jobs are looked for, and how many pairs; None: any."""

    limit: int
    tenants: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    passing: Passing = ()


class Waiting(NamedTuple):
    """A tenant's task that has READY jobs, and how many."""

    tenant: str
    task: str
    ready: int


def is_passed(pair: tuple[str, str], passing: Passing) -> bool:
    """Whether a tenant's task is passed by."""
    return any(tenant in (None, pair[0]) and task in (None, pair[1]) for tenant, task in passing)


class Turn(NamedTuple):
    """When a tenant's task was last served; of the tenant itself where `task` is empty."""

    tenant: str
    task: str
    served: int


class LogRow(NamedTuple):
    """An item of a log, where it stands."""

    at: int
    key: bytes | None
    body: Body


def leased(job: Job, query: ClaimQuery) -> Job:
    """What a claim makes of a job: just what `core.rules.claim` makes of a plain one."""
    return replace(
        job,
        place=Place.RUNNING,
        rank=rank.lease(query.lease_until),
        owner=query.owner,
        lease_until=query.lease_until,
        started_at=query.started_at,
        claim=job.claim + 1,
        version=job.version + 1,
    )


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

    def find_unique(self, keys: Collection[UniqueKey]) -> dict[UniqueKey, Unique]:
        """Who holds these keys, also where `until_ms` has passed."""

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        """The id of the first live job of that task, by (place, rank, id); quick where there is none.

        In the places where the counts know of one, so not of jobs that this transaction has added.
        """

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place, by (rank, id), whose rank is at most `up_to`."""

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        """Jobs that have not started and whose `expires_at` is at most `up_to`, first ones first."""

    def jobs(self, query: JobFilter, *, after: int, limit: int) -> list[Job]:
        """Jobs that match, by id, from the first above `after`."""

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """Whose turn it is: tenants served longest ago first, and of each its tasks served longest ago.

        Of many tenants one task each, of few several each, in turn: the first of each tenant, then the
        second. Who was never served, or not for very many turns, comes first, by name. The cost does
        not grow with those that wait, so it looks at so many and no more: where all it sees is passed
        by or not asked for, it is empty although others may wait.
        """

    def lineup(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        """The first jobs of a task of a domain in a place, by (rank, id), or the last, backwards."""

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        """How many jobs of domains stand READY, HELD and RUNNING, if any; counted, so asked seldom."""

    def domains(self, keys: Collection[DomainKey]) -> dict[DomainKey, Domain]:
        """What is kept of these domains. What was loaded stands still."""

    def due_domains(self, up_to: int, limit: int) -> list[Domain]:
        """The domains whose `due_ms` is not 0 and at most `up_to`, first ones first."""

    def list_domains(self, tenant: str, *, after: bytes, limit: int) -> list[Domain]:
        """What is kept of a tenant's domains, by name, from the first above `after` (b"": all)."""

    def counts(self, *, tenant: str | None = None) -> dict[CountKey, int]:
        """How many jobs there are of each kind; kept as they change, never counted."""

    def moments(self) -> Moments:
        """When something becomes true by itself."""

    def records(self, kind: str, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Small named records of a kind: these names, or all."""

    def present(self, name: str) -> bool:
        """Whether a process that appeared under a name (`Store.appear`) is still there."""

    def read_log(self, log: str, *, after: int, limit: int) -> list[LogRow]:
        """Items of a log in order, from the first above `after`."""

    def find_in_log(self, log: str, keys: Collection[bytes]) -> dict[bytes, int]:
        """Where in a log these keys are, or were before their items were trimmed."""

    def notice(self) -> bytes | None:
        """What stands on the store's door (`put_notice`); nobody changes it until the commit.

        Every batch asks, so it must cost next to nothing.
        """

    # Whole listings, for whoever copies a store.

    def list_records(self, *, after: tuple[str, str], limit: int) -> list[tuple[str, str, bytes]]:
        """All small records, by (kind, name), from the first above `after`; the notice is none of them."""

    def list_unique(self, *, after: UniqueKey, limit: int) -> list[Unique]:
        """Who holds which key, by key, from the first above `after`."""

    def list_all_domains(self, *, after: DomainKey, limit: int) -> list[Domain]:
        """What is kept of all domains, by (tenant, name), from the first above `after`."""

    def list_turns(self) -> list[Turn]:
        """The turns of tenants and of their tasks, all that are remembered, by name."""

    def list_log_keys(self, log: str, *, after: int, limit: int) -> list[tuple[int, bytes]]:
        """The keys of a log by where they lead, from the first above `after`; trimmed items' keys too."""


class Txn(ReadTxn, Protocol):
    """One atomic batch."""

    # A jump ahead of the clock that this process has noticed, where the clock is its machine's.
    jump: Jump | None

    def insert(self, rows: Sequence[tuple[Job, Body]]) -> set[int]:
        """Add jobs with their data. Ids that exist already, archived or not, are left alone and returned."""

    def insert_alike(self, template: Job, rows: Sequence[tuple[int, Body]]) -> set[int]:
        """Add jobs that are as `template` but for their id, their data and its size; otherwise as `insert`.

        Most jobs are added by the thousand and alike, and a store may write what they share once.
        """

    def swap(self, jobs: Sequence[Job]) -> None:
        """Replace each job by its next version, whose number is one above the stored one, or `Conflict`."""

    def remove(self, jobs: Sequence[Job]) -> None:
        """Remove live jobs, which must be as stored (`Conflict`), with data and result."""

    def archive(self, jobs: Sequence[Job], *, keep: bool) -> None:
        """Move live jobs, as their next version, to the archive; without `keep` they go with their bodies."""

    def forget(self, ids: Collection[int]) -> None:
        """Remove archived jobs with their bodies."""

    def purge(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        """Remove and return the first archived jobs that ended before a moment."""

    def put_bodies(self, bodies: Mapping[int, Body], *, result: bool = False) -> None:
        """Write or replace the data of jobs, or their results."""

    def put_unique(self, holders: Sequence[Unique]) -> None:
        """Let these jobs hold their keys, whoever held them before."""

    def drop_unique(self, keys: Collection[UniqueKey]) -> None:
        """Set keys free."""

    def lapse_unique(self, up_to: int, limit: int) -> int:
        """Set free the keys whose `until_ms` is not 0 and at most `up_to`; how many there were."""

    def claim(self, query: ClaimQuery) -> list[Job]:
        """Lease the first jobs that match, by (rank, id).

        They become what `leased` says, and are returned as they stood before. No two callers ever get
        the same job, and the list is in order. It may be shorter than asked, or empty; it never
        waits (see `Store.wait`). The pairs that it took from have had their turn (`waiting`).
        """

    def read_ahead(self, records: Names, domains: Collection[DomainKey]) -> None:
        """These are asked for next: look them up together, where that costs less than one by one."""

    def swap_domains(self, domains: Sequence[Domain]) -> None:
        """Add a domain of version 1, or replace one by its next version, or `Conflict`."""

    def drop_domains(self, domains: Sequence[Domain]) -> None:
        """Forget domains, which must be as stored, or `Conflict`."""

    def count(self, changes: Mapping[CountKey, int]) -> None:
        """Add these differences; what comes to zero vanishes."""

    def put_records(self, kind: str, records: Mapping[str, bytes | None]) -> None:
        """Write small records of a kind; None deletes one."""

    def append_log(self, log: str, rows: Sequence[LogRow]) -> None:
        """Write items where none are, or `Conflict`, and let their keys lead to them."""

    def trim_log(self, log: str, *, after: int, up_to: int, keys_up_to: int) -> None:
        """Remove the items above `after` and up to an index, and the keys up to another."""

    def put_notice(self, notice: bytes | None) -> None:
        """Put this on the door. Whoever has read what stood there before has committed by then."""

    def put_turns(self, turns: Sequence[Turn]) -> None:
        """Let these have been served at these turns."""


class Store(Protocol):
    """Where jobs are kept."""

    def run(self, fn: Callable[[Txn], T]) -> T:
        """Call `fn` as one atomic batch, again if somebody else was faster; durable on return."""

    def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """Call `fn` on one consistent view, beside writers."""

    def borrow(self, connection: Any, fn: Callable[[Txn], T]) -> T:
        """Call `fn` inside the caller's own transaction on a connection of this store's library."""

    def now_ms(self) -> int:
        """The store's clock, by which all its users agree on leases."""

    def wait(self, timeout_s: float) -> bool:
        """Sleep until another process may have changed something: a hint, on which nothing depends."""

    def notify(self, *, ends: bool = False) -> None:
        """Tell waiting processes that something changed; `ends`: that jobs have ended or logs moved, no more.

        Those who wait for something to claim need not hear that.
        """

    def interrupt(self) -> None:
        """Wake this process's own `wait`."""

    def appear(self, name: str) -> bool:
        """Be seen by all who share the store until it is closed or the process ends, without a write.

        Nobody else may ever have that name. False where the store cannot tell who is there.
        """

    def check(self) -> list[str]:
        """What is wrong with the store and what to do about it, for `doctor`; nothing: an empty list."""

    def facts(self) -> dict[str, str]:
        """Version, settings and sizes, for people."""

    def close(self) -> None:
        """Let go of everything; a closed store is not used again."""
