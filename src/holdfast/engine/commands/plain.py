"""A batch of nothing but plain adds: no working set, one write.

Of those who only add it is what nearly every batch is. What a job could meet (a known id, a parent, a unique
key, a domain) is ruled out before (`plain`), so nothing is read and there is nothing to decide.
"""

from collections import Counter
from collections.abc import Sequence

from ...core import commands as c
from ...core.errors import Conflict, HoldfastError
from ...store.contract import CountKey, Txn
from ..batch.births import Births
from ..sysid import IdMaker
from .adding import is_free


def plain(commands: Sequence[c.Command]) -> list[c.Add] | None:
    """The commands of a batch if they only add, and nothing can stand in the way of any of the jobs."""
    adds = [one for one in commands if type(one) is c.Add and all(map(is_free, one.jobs))]
    return adds if len(adds) == len(commands) else None


def add_plain(txn: Txn, maker: IdMaker, commands: Sequence[c.Add]) -> list[list[int] | HoldfastError]:
    """Add all jobs of all commands: of each the ids in order, or what it raised, which fails it alone."""
    if added := sum(command.count for command in commands):
        maker.expect(added)
    births = Births()
    replies: list[list[int] | HoldfastError] = []
    for command in commands:
        try:
            replies.append(_born(births, maker, command, txn.now_ms))
            births.keep()
        except HoldfastError as error:
            births.drop()
            replies.append(error)
    counts: Counter[CountKey] = Counter()
    for group in births.take():
        job = group.template
        counts[CountKey(job.tenant, job.task, job.place, job.state)] += len(group.rows)
        if txn.insert_alike(job, group.rows):
            raise Conflict("an id was taken")
    if counts:
        txn.count(counts)
    return replies


def _born(births: Births, maker: IdMaker, command: c.Add, now_ms: int) -> list[int]:
    ids = maker.make_many(command.count)
    for job_id, new in zip(ids, command.jobs, strict=False):
        births.add(new, job_id=job_id, now_ms=now_ms)
    if command.more:
        births.add_more(zip(ids[len(command.jobs) :], command.more, strict=True))
    return ids
