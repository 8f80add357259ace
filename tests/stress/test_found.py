"""What the stress tests have found, each as a small test of its own."""

import threading
import time

import holdfast
from holdfast.store.sqlite.store import SqliteStore


def test_a_job_dropped_after_a_renewal_comes_back(tmp_path):
    """The renewing thread must not keep alive what it renews: the lease would never end."""
    with (
        holdfast.connect(str(tmp_path / "jobs.db"), lease=0.6) as queue,
        holdfast.connect(queue.url) as other,
    ):
        queue.add("work")
        job = queue.next()
        assert job is not None
        first = job.record.lease_until
        while (until := job.record.lease_until) == first:
            time.sleep(0.01)

        del job

        again = other.next(wait=60)
        assert again is not None
        assert (again.claim, again.record.started_at >= until) == (2, True)


def test_a_store_that_fails_once_while_waiting_is_waited_for_again(tmp_path, monkeypatch):
    """Another process may be in the way for a moment: that must not make this one deaf for ever."""
    waited = []

    def wait(store, timeout_s, *, ends=True):
        waited.append(timeout_s)
        if len(waited) == 1:
            raise holdfast.Unavailable("somebody recovers the log")
        return real(store, timeout_s, ends=ends)

    real = SqliteStore.wait
    monkeypatch.setattr(SqliteStore, "wait", wait)
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue, holdfast.connect(queue.url) as other:
        assert queue.next(wait=1.5) is None

        ring = threading.Timer(0.2, other.add, ["ring"])
        ring.start()

        assert queue.next(wait=60) is not None
        ring.join()
        assert len(waited) > 1
