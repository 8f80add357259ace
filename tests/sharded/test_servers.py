"""Two PostgreSQL servers as one queue; one of them is stopped, and started again."""

import pytest

import holdfast
from holdfast.core import ids
from holdfast.core.slots import shard_of
from holdfast.store.clock import monotonic_s
from holdfast.testing.queue_suite.tools import take_all, until
from tests.servers import postgres_or_skip
from tests.sharded.places import all_up

# A server that is gone is known within the patience that shards have; claims go on at once after that.
SOON_S = 8.0


@pytest.fixture
def servers():
    """Two servers of the test's own."""
    made = []
    try:
        made += [postgres_or_skip(), postgres_or_skip()]
        yield made
    finally:
        for server in made:
            server.close()


@pytest.mark.timeout(180)
def test_a_server_that_stops_holds_up_only_its_own_jobs_and_comes_back(servers):
    """Claims and adds go on with the other; what it had is there when it is back, and nothing twice."""
    url = " ".join(server.url() for server in servers)
    there, away = (next(f"d{n}" for n in range(99) if ids.slot_of("", f"d{n}") % 2 == at) for at in (0, 1))
    with holdfast.connect(url) as queue:
        stay = [queue.add("work", domain=there) for _ in range(5)]
        wait = [queue.add("work", domain=away) for _ in range(5)]
        servers[1].stop(immediately=True)

        began_s = monotonic_s()
        added = [queue.add("work") for _ in range(4)]
        with pytest.raises(holdfast.Unavailable, match="shard 1 of 2"):
            queue.get(wait[0])
        claimed = take_all(queue)
        for job in claimed:
            job.done()
        took_s = monotonic_s() - began_s

        assert {job.id for job in claimed} == {job.id for job in [*stay, *added]}
        assert {shard_of(job.id, 2) for job in added} == {0}
        assert took_s < SOON_S

        servers[1].start()
        until(lambda: all_up(queue))
        back = take_all(queue)
        for job in back:
            job.done()

        assert {job.id for job in back} == {job.id for job in wait}
        assert queue.counts() == {"work": {"FINISHED": 14}}
