"""Leases that could not be renewed are renewed as soon as the store is back."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.errors import Unavailable
from holdfast.core.job import Job, Place
from holdfast.queue import lease as queue_lease
from holdfast.queue.lease import Lease, Renewer
from holdfast.queue.timers import FEW_ENTRIES, TimerThread
from holdfast.work.supervisor.commits import Leases

LEASE_MS = 60_000
JOB = Job(id=1, task="t", place=Place.RUNNING, owner=1, claim=1)


class Away:
    """A connection to a store that is away for one command."""

    def __init__(self):
        self._replies = [Unavailable("gone"), JOB]

    def submit(self, ticket):
        """See `Connection`."""
        ticket.answer(self._replies.pop(0))

    async def ask_async(self, _command):
        """See `Connection`."""
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def test_a_lease_is_renewed_soon_after_an_outage():
    """Not a third of its length later, when it may have ended."""
    connection: Any = Away()
    renewer, lease = Renewer(connection), Lease(JOB, LEASE_MS)

    def due_in():
        """Renew, and return when that is due next."""
        while len(renewer._due):
            renewer._due.pop()
        renewer._extend([lease])
        return renewer._due.wait_s()

    assert due_in() <= queue_lease.RETRY_S
    assert due_in() > queue_lease.RETRY_S


def test_jobs_that_have_ended_take_no_memory():
    """However long their leases are; those that are open, and timers that were not cancelled, stay."""
    connection: Any = Away()
    renewer, timers = Renewer(connection), TimerThread()
    held = [Lease(JOB, LEASE_MS) for _ in range(10)]
    for lease in held:
        renewer._push(lease)
    try:
        kept = timers.after(60, lambda: None)
        for _ in range(10 * FEW_ENTRIES):
            lease = Lease(JOB, LEASE_MS)
            renewer._push(lease)
            lease.is_open = False
            timers.after(60, lambda: None).cancel()
    finally:
        timers.close()

    assert len(renewer._due) <= FEW_ENTRIES
    assert len(timers._due) <= FEW_ENTRIES
    left = [renewer._due.pop()() for _ in range(len(renewer._due))]
    assert [lease for lease in left if lease in held] == held
    assert kept in [timers._due.pop() for _ in range(len(timers._due))]


def test_a_worker_renews_its_leases_soon_after_an_outage(monkeypatch):
    """The error is logged."""
    slept: list[float] = []
    log: list[str] = []
    sleep = asyncio.sleep

    async def note(pause_s):
        slept.append(pause_s)
        if len(slept) == 3:
            raise asyncio.CancelledError
        await sleep(0)

    held = SimpleNamespace(queue_index=0, job=JOB, ran_ms=None, started_s=0.0, is_start_committed=False)
    pool: Any = SimpleNamespace(held=lambda: [held], has_claim=lambda *_: True, update_record=lambda *_: None)
    suspects: Any = SimpleNamespace(held=list, update_record=lambda *_: None)
    source: Any = SimpleNamespace(queue_index=0, connection=Away())
    leases = Leases(pool, suspects, [source], LEASE_MS, log.append)
    monkeypatch.setattr(asyncio, "sleep", note)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(leases.keep_renewing())

    assert slept == [20.0, queue_lease.RETRY_S, 20.0]
    assert log == ["gone"]
