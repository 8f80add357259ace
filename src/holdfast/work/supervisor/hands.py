"""The hands of one claim loop: a queue of the worker, a lane of its tasks, and who runs them."""

from collections.abc import Awaitable, Callable, Sequence

from ...core import commands as c
from ...core.errors import HoldfastError
from ...core.job import Job
from ...store.common.clock import system_clock
from .crew import Crew
from .lanes import Lane
from .member import Held, held_of
from .outbox import Outbox
from .pace import Space
from .sources import Source
from .suspects import BACK_MS, Suspects


class LaneHands:
    """See `claiming.Hands`."""

    def __init__(
        self,
        crew: Crew,
        suspects: Suspects,
        source: Source,
        lane: Lane,
        outbox: Outbox,
        log: Callable[[str], None],
        is_over: Callable[[], Awaitable[bool]],
    ) -> None:
        self._crew, self._suspects, self._source, self._lane = crew, suspects, source, lane
        self._outbox, self._log, self._is_over = outbox, log, is_over

    def space(self) -> Space:
        """How much of the lane the executors can take now."""
        return self._crew.space(self._lane)

    def held(self) -> Sequence[Job]:
        """What they have of this queue and lane."""
        at, lane = self._source.at, self._lane
        here = self._crew.held() + self._suspects.held()
        return [held.job for held in here if held.at == at and held.lane == lane]

    def hand_over(self, jobs: Sequence[c.Claimed]) -> None:
        """Give jobs to executors, suspects to those of their own; what none is left to take goes back."""
        found = held_of(jobs, self._source.at, self._lane)
        for held in [one for one in found if one.job.crowd_limit]:
            if not self._suspects.add(held):
                self._release(held, delay_ms=BACK_MS)
        plain = [one for one in found if not one.job.crowd_limit]
        for held in self._crew.hand_over(plain, self._lane):
            self._release(held)

    def _release(self, held: Held, *, delay_ms: int = 0) -> None:
        self._outbox.put(self._source.line, c.Release(hold=c.hold_of(held.job), delay_ms=delay_ms))

    def note_claim(self, error: HoldfastError | None) -> None:
        """Note how the store is, for the health of this worker, and log what is new about it."""
        source = self._source
        if error is None:
            source.claimed_at, source.error = system_clock(), ""
            return
        if str(error) != source.error:
            self._log(f"cannot claim: {error}")
        source.error = str(error)

    async def is_over(self) -> bool:
        """Whether nothing is left to do in the whole worker."""
        return await self._is_over()


async def is_empty(held: Callable[[], Sequence[Held]], sources: Sequence[Source]) -> bool:
    """Whether nothing is held here and nothing waits in any of the queues."""
    if held():
        return False
    for source in sources:
        if await source.has_unfinished():
            return False
    return not held()
