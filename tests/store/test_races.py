"""Two at once, again and again: families, keys and permits, between two queues on one server."""

import pytest

import holdfast
from holdfast.testing.stores.making import race
from tests.queue_suite.tools import complaints, take, upkeep
from tests.stores import SERVED

# `make proof` has races of many processes: `tests/stress/test_hammer.py`, `test_family.py`, `test_limits.py`.
ROUNDS = 40


@pytest.fixture(params=SERVED)
def queues(request):
    """Two, in which all is right at the end."""
    url = request.getfixturevalue(request.param)
    with holdfast.connect(url) as one, holdfast.connect(url) as two:
        yield one, two
        upkeep(one)
        assert complaints(one) == []


def test_the_last_two_children_finish_at_once_and_their_parent_resumes_once(queues):
    """Each time: neither child may think that the other still runs."""
    one, two = queues
    for _ in range(ROUNDS):
        one.add("parent")
        parent = take(one, "parent")
        for _ in range(2):
            parent.add("child")
        parent.done()
        first, second = take(one, "child"), take(two, "child")

        race([first.done, second.done])

        again = take(one, "parent")
        assert again.id == parent.id
        assert two.next(["parent"]) is None
        again.done()


def test_of_two_adds_of_one_key_one_is_kept(queues):
    """Whoever comes second finds the first."""
    for n in range(ROUNDS):
        first, second = race(
            [lambda n=n, queue=queue: queue.add("work", unique=f"key {n}").id for queue in queues]  # type: ignore[misc]
        )

        assert first == second
    assert len(queues[0].jobs(limit=1000)) == ROUNDS


def test_the_last_permit_goes_to_one(queues):
    """Of two claims at once, however often."""
    one, two = queues
    one.limit("site", concurrency=1)
    for _ in range(ROUNDS // 2):
        one.add_many([("visit", n) for n in range(2)], domain="site")
        claims = race([lambda queue=queue: queue.claim(limit=2, renew=False) for queue in queues])  # type: ignore[misc]
        jobs = [job for claim in claims for job in claim]

        assert len(jobs) <= 1
        for job in jobs or [take(one)]:
            job.done()
        take(two).done()
