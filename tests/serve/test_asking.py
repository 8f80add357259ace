"""New jobs of several clients that are added by one command."""

import asyncio
import random

from holdfast.core import commands as c
from holdfast.core.errors import Closed
from holdfast.core.queries import GetData
from holdfast.engine.store_connection import StoreConnection
from holdfast.serve.asking import Asking
from holdfast.store.memory.store import MemoryStore
from tests.doubles import OnlyBatches


class FussyStore(OnlyBatches, MemoryStore):
    """Cannot store one job."""

    def run(self, fn):
        """Fail if the job is among those to be written."""

        def checked(txn):
            changes, result = fn(txn)
            if any(data == "2" for group in changes.added for _, data in group.rows):
                raise ValueError("not this one")
            return changes, result

        return super().run(checked)


async def ask_for(asking, numbers):
    """What the clients get that add a job with each of these numbers at once."""
    adds = [c.Add(jobs=(c.NewJob(task="t", data=str(n)),)) for n in numbers]
    return await asyncio.gather(*map(asking.ask_async, adds), return_exceptions=True)


def test_a_job_that_cannot_be_stored_fails_alone():
    """The others of its command are added."""
    connection = StoreConnection(FussyStore(), rng=random.random)

    found = asyncio.run(ask_for(Asking(connection), range(5)))

    assert isinstance(found[2], ValueError)
    (first, second, _, fourth, fifth) = found
    ids = [job_id for (job_id,) in (first, second, fourth, fifth)]
    assert [connection.ask(GetData(job_id=job_id)) for job_id in ids] == ["0", "1", "3", "4"]
    connection.close()


def test_every_client_is_told_that_the_store_is_closed():
    """None waits for ever."""
    connection = StoreConnection(MemoryStore(), rng=random.random)
    connection.close()

    found = asyncio.run(ask_for(Asking(connection), range(3)))

    assert [type(one) for one in found] == [Closed] * 3


def test_a_client_that_goes_away_does_not_keep_the_others_from_their_ids():
    """Its job is added all the same."""
    connection = StoreConnection(MemoryStore(), rng=random.random)

    async def run():
        asking = Asking(connection)
        tasks = [asyncio.ensure_future(ask_for(asking, [n])) for n in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second, third = asyncio.run(run())

    assert isinstance(second, asyncio.CancelledError)
    assert len({*first[0], *third[0]}) == 2
    connection.close()
