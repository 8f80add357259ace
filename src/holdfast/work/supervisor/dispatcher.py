"""The dispatcher of one claim loop of a supervisor: gives jobs to its executors."""

from collections.abc import Awaitable, Callable, Sequence

from ...core import commands as c
from ...core.errors import HoldfastError, Unavailable
from ...core.job import Job
from ...store.common.clock import system_clock
from ...store.contract import Pick
from ..capacity import Capacity, ExecutionMode
from ..claim_loop import Dispatcher
from .commits import AnswerWriter
from .executor_handle import HeldJob, make_held_jobs
from .executor_pool import ExecutorPool
from .sources import JobSource
from .suspects import RELEASE_DELAY_MS, Suspects


class ModeDispatcher(Dispatcher):
    """Gives claimed jobs to the executors of a worker."""

    def __init__(
        self,
        pool: ExecutorPool,
        suspects: Suspects,
        source: JobSource,
        mode: ExecutionMode,
        writer: AnswerWriter,
        log: Callable[[str], None],
        is_finished: Callable[[], Awaitable[bool]],
    ) -> None:
        self._pool, self._suspects, self._source, self._mode = pool, suspects, source, mode
        self._writer, self._log, self._is_finished = writer, log, is_finished

    def capacity(self) -> Capacity:
        """How many jobs of this execution mode the executors can take now."""
        return self._pool.capacity(self._mode)

    def slots(self) -> tuple[int, dict[str, float]]:
        """How many slots of this execution mode there are, and how many each tenant has with slow jobs."""
        executors = [one for one in self._pool.executors if one.can_take_jobs]
        return len(executors) * self._mode.slots, self._pool.slow_slots(self._mode)

    def in_requests(self, pick: Pick) -> Pick:
        """A pick of slots as one of jobs."""
        tenant, task, slots = pick
        return tenant, task, round(slots / self._pool.durations.slots_of(tenant, task))

    def held(self) -> Sequence[Job]:
        """The jobs of this queue and execution mode that this worker has."""
        queue_index, mode = self._source.queue_index, self._mode
        here = self._pool.held() + self._suspects.held()
        return [held.job for held in here if held.queue_index == queue_index and held.mode == mode]

    def dispatch(self, jobs: Sequence[c.Claimed]) -> None:
        """Deliver jobs to executors, and suspects to isolated ones; jobs that none can take are released."""
        found = make_held_jobs(jobs, self._source.queue_index, self._mode)
        for held in [one for one in found if one.job.crowd_limit]:
            if not self._suspects.add(held):
                self._release(held, delay_ms=RELEASE_DELAY_MS)
        plain = [one for one in found if not one.job.crowd_limit]
        for held in self._pool.dispatch(plain):
            self._release(held)

    def _release(self, held: HeldJob, *, delay_ms: int = 0) -> None:
        self._writer.put(self._source.connection, c.Release(hold=c.hold_of(held.job), delay_ms=delay_ms))

    def record_claim(self, error: HoldfastError | None) -> None:
        """Record the result of a claim for the health file, and log a new error."""
        source = self._source
        if error is None:
            source.claimed_at, source.error = system_clock(), ""
            return
        if str(error) != source.error:
            self._log(f"cannot claim: {error}")
        source.error = str(error)

    async def is_finished(self) -> bool:
        """Whether the whole worker has no more jobs to run."""
        return await self._is_finished()


async def is_empty(held: Callable[[], Sequence[HeldJob]], sources: Sequence[JobSource]) -> bool:
    """Whether the worker holds no job, and no job of its queues is unfinished.

    A store that cannot be reached may have jobs; raises if none can be reached.
    """
    if held():
        return False
    errors: list[Unavailable] = []
    for source in sources:
        try:
            if await source.has_unfinished():
                return False
        except Unavailable as error:
            errors.append(error)
    if errors and len(errors) == len(sources):
        raise errors[0]
    return not errors and not held()
