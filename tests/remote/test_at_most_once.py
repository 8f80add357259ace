"""Jobs that must not run twice, and clients whose connections break again and again."""

import random
import threading
import time
from collections import Counter

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.queue.connect import connect
from tests.remote.proxy import Proxy

CLIENTS = 3
CLAIMED = 5
# What a client has got and not answered is lost after this time.
LEASE_S = 2.0
# The longest time between two cuts, and between two looks whether all jobs have ended.
MOST_S, LOOK_S = 0.2, 0.1


class Crew:
    """Clients that run jobs, and what cuts them off."""

    def __init__(self, proxy):
        self._proxy, self._over = proxy, threading.Event()
        self.ran, self.cuts = [], 0
        self._threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]
        self._threads.append(threading.Thread(target=self._cut))
        for thread in self._threads:
            thread.start()

    def _work(self):
        with connect(self._proxy.url) as queue:
            while not self._over.is_set():
                try:
                    for job in queue.claim(["work"], limit=CLAIMED, lease=LEASE_S, renew=False, wait=0.5):
                        self.ran.append(job.id)
                        job.done()
                except HoldfastError:
                    continue

    def _cut(self):
        rng = random.Random(1)
        while not self._over.wait(rng.uniform(0, MOST_S)):
            self._proxy.reset()
            self.cuts += 1

    def end(self):
        """Let them end."""
        self._over.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("count", [100, pytest.param(20_000, marks=pytest.mark.proof)], ids=["few", "many"])
def test_no_job_runs_twice_when_connections_break(served, tell, count):
    """Each is FINISHED, or FAILED if it may have been started and was not answered."""
    with connect(f"grpc://127.0.0.1:{served.port}") as direct, Proxy(served.port) as proxy:
        jobs = direct.add_many([("work", n) for n in range(count)], at_most_once=True)
        crew = Crew(proxy)
        try:
            while not direct.counts()["work"].keys() <= {"FINISHED", "FAILED"}:
                time.sleep(LOOK_S)
        finally:
            crew.end()

        counts = direct.counts()["work"]
        finished = {job.id for job in direct.jobs(task="work", state="FINISHED")}
    tell(f"{counts}, {crew.cuts} times cut off")
    assert sum(counts.values()) == len(jobs) == count
    assert [job_id for job_id, runs in Counter(crew.ran).items() if runs > 1] == []
    assert finished <= set(crew.ran)
