"""What the tests of the suite have in common: to take a job, to see everything, to race."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from holdfast.core import commands as c
from holdfast.core.job import Backoff, Job, Place, State
from holdfast.core.kinds import SYSID
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.store.common.clock import monotonic_s
from holdfast.store.contract import JobFilter
from tests.doubles import engine_of

from ..doubles import Gate
from ..model.checks import CHECKS
from ..model.view import ALL, View, differences, look

T = TypeVar("T")

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

# A wait that is woken; were it not, the test would fail after so long and not hang. Also on a busy machine.
LONG_S = 60.0
# What comes after a run that did not end well, to the millisecond.
STEADY = Backoff(first_ms=1_000, most_ms=60_000, jitter=0.0)

TENANTS = ("", "acme", "zeta")


# ── one queue ────────────────────────────────────────────────────────────────────────────────────


def ask(queue: Queue, command: c.Command) -> Any:
    """The reply to a command that no verb of the queue says."""
    return queue.connection.ask(command)


def ask_all(queue: Queue, commands: Sequence[c.Command]) -> list[Any]:
    """The replies to commands that are one transaction; on shards, one after the other."""
    if len(queue.connection.store.shards) > 1:
        return [ask(queue, command) for command in commands]
    return engine_of(queue.connection).execute(commands).replies


def hold_of(job: ClaimedJob) -> c.Hold:
    """The right to answer for a claimed job."""
    return c.Hold(job_id=job.id, owner=job.record.owner, claim=job.claim)


def upkeep(queue: Queue) -> None:
    """Let whatever has become true by itself be so."""
    ask(queue, c.Upkeep())


def take(queue: Queue, *tasks: str, **options: Any) -> ClaimedJob:
    """Claim the next job, which must be there, and leave its lease alone."""
    job = queue.next(tasks or None, **{"renew": False, **options})
    assert job is not None, f"there is no job for {tasks or 'anybody'}"
    return job


def nothing(queue: Queue, *tasks: str) -> bool:
    """Whether there is nothing to claim."""
    return queue.next(tasks or None, renew=False) is None


def take_all(queue: Queue, limit: int = 1_000, **options: Any) -> list[ClaimedJob]:
    """Claim all that may run now."""
    taken: list[ClaimedJob] = []
    while found := queue.claim(limit=limit, renew=False, **options):
        taken += found
    return taken


def state_of(queue: Queue, job: Any) -> State:
    """What people see of a job."""
    return queue.get(job).state


def states(queue: Queue, jobs: Collection[Any]) -> list[State]:
    """What people see of jobs."""
    return [state_of(queue, job) for job in jobs]


def place_of(queue: Queue, job: Any) -> Place:
    """Where the store keeps a job."""
    return queue.get(job).place


def live(queue: Queue, **query: Any) -> list[Job]:
    """All live jobs that match, of all tenants."""
    return queue.connection.engine.read(lambda txn: txn.jobs(JobFilter(**query), after=0, limit=ALL))


# ── everything ───────────────────────────────────────────────────────────────────────────────────


def see(queue: Queue) -> View:
    """Everything that the store of a queue shows."""
    store = queue.connection.engine.store
    view = look(store, ids=set(), tenants=TENANTS)
    # Who makes ids is nobody's affair but the engine's.
    for record in [record for record in view.records if record[0] == SYSID]:
        del view.records[record]
    return view


def complaints(queue: Queue) -> list[str]:
    """What is not as it must be at every moment."""
    view = see(queue)
    return [f"{check.__name__}: {text}" for check in CHECKS for text in check(view)]


@contextmanager
def unchanged(queue: Queue) -> Iterator[None]:
    """Whatever happens inside leaves everything as it was."""
    before = see(queue)
    yield
    assert differences(before, see(queue)) == []


# ── several at once ──────────────────────────────────────────────────────────────────────────────


def outcome(call: Callable[[], T]) -> T | Exception:
    """What a call returns, or raises."""
    try:
        return call()
    except Exception as error:
        return error


def together(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """What calls return or raise that are made at the same moment, each in a thread of its own."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T | Exception:
        barrier.wait()
        return outcome(call)

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def collide(
    first: tuple[Queue, Callable[[], Any]], second: tuple[Queue, Callable[[], Any]]
) -> tuple[Any, Any]:
    """What two verbs on two queues return or raise, where the second begins before the first has committed.

    The first has read and written everything when the second sets out; see `Gate`.
    """
    gate = Gate(first[0], second[0])
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(outcome, first[1])
        assert gate.first_is_in.wait(LONG_S)
        late = pool.submit(outcome, second[1])
        return early.result(), late.result()


@contextmanager
def waiting(call: Callable[[], T]) -> Iterator["Future[T]"]:
    """A call that is waited for in a thread of its own; it must end soon after the block."""
    with ThreadPoolExecutor(1) as pool:
        begun = threading.Event()

        def run() -> T:
            begun.set()
            return call()

        future = pool.submit(run)
        assert begun.wait(LONG_S)
        yield future
        future.exception(LONG_S)


def until(happened: Callable[[], bool]) -> None:
    """Wait for something that another thread does by itself: look often at first, then less."""
    deadline_s = monotonic_s() + LONG_S
    pause, pause_s = threading.Event(), 0.002
    while not happened():
        assert monotonic_s() < deadline_s, "it has not happened"
        pause.wait(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)
