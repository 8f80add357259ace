"""What those who wait are not told of, on the stores that are servers: they look for it in time."""

import time

import pytest

import holdfast
from tests.idle import waits
from tests.queue_suite.tools import until, waiting
from tests.stores import SERVED


@pytest.mark.parametrize("address", SERVED)
def test_a_lease_that_nobody_heard_of_ends_in_time(address: str, request: pytest.FixtureRequest) -> None:
    """One takes a job with a short lease, a moment after the word that it is there, and says no more."""
    url = request.getfixturevalue(address)
    with (
        holdfast.connect(url) as killed,
        holdfast.connect(url) as other,
        waiting(lambda: other.next(["nothing"], wait=60)),
    ):
        until(lambda: waits(other))
        killed.add("t")
        # By then it was heard and looked at.
        time.sleep(1.0)
        job = killed.next(["t"], lease=1, renew=False)
        assert job is not None
        since_s = time.monotonic()

        until(lambda: killed.get(job.id).losses == 1)

        # Without a look soon after news it would take the half minute of seldom ones.
        assert time.monotonic() - since_s < 25.0
        other.close()
