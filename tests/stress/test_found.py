"""What the stress tests have found, each as a small test of its own."""

import holdfast


def test_a_job_dropped_after_a_renewal_comes_back(tmp_path):
    """The renewing thread must not keep alive what it renews: the lease would never end."""
    with (
        holdfast.connect(str(tmp_path / "jobs.db"), lease=0.15) as queue,
        holdfast.connect(queue.url) as other,
    ):
        queue.add("work")
        job = queue.next()
        assert job is not None
        first = job.record.lease_until
        while job.record.lease_until == first:
            assert other.next(wait=0.02) is None

        del job

        again = other.next(wait=5)
        assert again is not None
        assert again.claim == 2
