"""One queue on several hash tags of a Redis Cluster, and so on several of its masters."""

import pytest

import holdfast
from holdfast.core.errors import BadInput
from holdfast.queue.connect import store_maker


def test_a_queue_is_spread_over_a_cluster(redis_cluster):
    """By one word of the address: jobs live in every shard, are claimed from all, and are found by id."""
    with holdfast.connect(redis_cluster.url(shards="4")) as queue:
        added = [queue.add("work", n) for n in range(40)]

        slots = {job.id % 4 for job in added}
        claimed = queue.claim(["work"], limit=40, renew=False)
        for job in claimed:
            job.done(job.data)

        assert slots == {0, 1, 2, 3}
        assert sorted(job.data for job in claimed) == list(range(40))
        assert [job.result() for job in added] == list(range(40))
        assert queue.counts()["work"] == {"FINISHED": 40}


def test_limits_and_keys_hold_over_shards(redis_cluster):
    """A domain is in one shard, and so is a key, whoever asks."""
    url = redis_cluster.url(prefix="spread", shards="2")
    with holdfast.connect(url) as one, holdfast.connect(url) as other:
        one.limit("d", concurrency=1)
        same = [queue.add("once", unique="k").id for queue in (one, other, one)]
        for n in range(4):
            other.add("work", n, domain="d")

        assert len(set(same)) == 1
        assert len(one.claim(["work"], limit=4, renew=False)) == 1
        assert other.claim(["work"], limit=4, renew=False) == []


@pytest.mark.parametrize("shards", ["0", "3", "128", "x"])
def test_a_number_of_shards_that_cannot_be_is_refused(shards):
    """A power of two, up to 64."""
    with pytest.raises(BadInput, match="shards"):
        store_maker(f"redis://localhost/0?shards={shards}")
