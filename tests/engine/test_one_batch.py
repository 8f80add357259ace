"""Commands about a job that has just ended: whether they share a commit with its end makes no difference."""

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import HoldfastError
from holdfast.core.ids import PORT_SYSID
from holdfast.core.job import Code
from holdfast.engine.engine import Engine
from holdfast.store.memory.store import MemoryStore
from holdfast.testing.clock import MovedClock

NOW_MS = 1_767_225_600_000


def hold(job_id, claim=None):
    """The right to answer, as workers have it, or as the job-command port does."""
    return c.Hold(job_id=job_id, owner=PORT_SYSID, claim=claim)


LATER = {
    "finish at the port": lambda job_id: c.Answer(hold=hold(job_id), code=Code.OK),
    "fail at the port": lambda job_id: c.Answer(hold=hold(job_id), code=Code.FAILED),
    "finish by claim": lambda job_id: c.Answer(hold=hold(job_id, 1), code=Code.OK),
    "extend": lambda job_id: c.Extend(hold=hold(job_id, 1), lease_ms=1_000),
    "release": lambda job_id: c.Release(hold=hold(job_id, 1)),
    "update": lambda job_id: c.Update(job_id=job_id, data='{"late":1}', priority=900),
    "requeue": lambda job_id: c.Requeue(job_id=job_id),
    "cancel": lambda job_id: c.Cancel(job_id=job_id),
}


def story(later, *, together, **fields):
    """The reply to `later`, given a job that was just finished, and the jobs that are left."""
    engine = Engine(MemoryStore(MovedClock(NOW_MS)), rng=lambda: 0.5)

    def do(*commands):
        return engine.execute(commands).replies

    ((job_id,),) = do(c.Add(jobs=(c.NewJob(id=4096, task="a", **fields),)))
    do(c.Claim(limit=1, lease_ms=60_000, owner=PORT_SYSID, mock=True))
    finish = c.Answer(hold=hold(job_id, 1), code=Code.OK)
    replies = do(finish, later(job_id)) if together else [*do(finish), *do(later(job_id))]
    live, archived = engine.read(lambda txn: (txn.load([job_id]), txn.archived([job_id])))
    reply = replies[1]
    told = type(reply) if isinstance(reply, HoldfastError) else reply
    return told, live, {id: (job.ended, job.priority) for id, job in archived.items()}


@pytest.mark.parametrize("mock", [False, True], ids=["real", "mocked"])
@pytest.mark.parametrize("verb", LATER)
def test_who_comes_with_the_end_hears_what_who_comes_after_it_hears(verb, mock):
    """And the job is as over as it would be."""
    together = story(LATER[verb], together=True, mock=mock)

    assert together[1] == {}
    assert together == story(LATER[verb], together=False, mock=mock)
