"""The store itself: waiting, waking, presence, the report, closing."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from ...core.errors import BadInput
from ...store.common.clock import monotonic_s
from ...store.contract import (
    ENDS,
    JOBS,
    NOTHING,
    Capabilities,
    Store,
)
from .making import (
    NOW_MS,
    a_job,
    add,
    commit,
    look,
    race,
)

# Longer than anything takes that works, on a busy machine.
PATIENT_S = 60.0


def test_an_interrupted_wait_ends(store: Store) -> None:
    """Also if the interrupt came first. It tells nothing of commits, so it is not taken for one."""
    started_s = monotonic_s()
    while store.wait(0.01):
        # What this store did when it was opened.
        assert monotonic_s() < started_s + PATIENT_S
    store.interrupt()
    assert not store.wait(PATIENT_S)

    calls: list[Callable[[], object]] = [lambda: store.wait(PATIENT_S), store.interrupt]
    assert race(calls) == [False, None]
    assert monotonic_s() < started_s + PATIENT_S

    assert not store.wait(0.01)
    assert not store.wait(0.01, ends=False)


def test_interrupts_do_not_hide_a_commit(store: Store, another: Store) -> None:
    """However often it is interrupted: it is noticed all the same."""
    commit(another, rows={("k", "a"): b"1"})
    while another.wait(0.01):
        pass
    commit(store, rows={("k", "n"): b"2"}, wake=JOBS)
    until_s = monotonic_s() + PATIENT_S
    another.interrupt()
    while not another.wait(PATIENT_S):
        another.interrupt()
        assert monotonic_s() < until_s


@pytest.mark.parametrize(("wake", "ends"), [(JOBS, True), (JOBS, False), (ENDS, True)])
def test_a_commit_wakes_those_that_wait_elsewhere(
    store: Store, another: Store, wake: str, ends: bool
) -> None:
    """For jobs to claim, or for what has ended too; here again and again, so that none comes too early."""
    commit(another, rows={("k", "a"): b"1"})
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(another.wait(PATIENT_S, ends=ends)))
    waiter.start()
    n = 0
    while waiter.is_alive():
        n += 1
        commit(store, rows={("k", "n"): b"%d" % n}, wake=wake)
        waiter.join(0.05)

    assert woken == [True]
    assert n < 20 * PATIENT_S / 2


def test_who_has_appeared_is_present_until_it_closes(store: Store, another: Store) -> None:
    """If a store can tell; a name that was never announced is not present."""
    can_tell = store.appear("somebody")

    assert not another.read(lambda txn: txn.present(["nobody"]))
    assert another.read(lambda txn: txn.present(["somebody"])) == ({"somebody"} if can_tell else set())
    assert look(another, lambda txn: txn.present(["somebody"])) == ({"somebody"} if can_tell else set())


def test_there_is_something_to_say_about_a_store(store: Store) -> None:
    """A store that was just made has nothing wrong with it, and what it can do does not change."""
    assert isinstance(store.capabilities, Capabilities)
    assert store.capabilities == store.capabilities
    assert store.capabilities.parallel_commits >= 1
    add(store, a_job(1))

    facts, complaints = store.report()

    assert complaints == []
    assert facts["store"]
    assert all(isinstance(text, str) for text in facts.values())


def test_what_is_no_connection_is_refused(store: Store) -> None:
    """To be borrowed, and to be lent to a loop."""
    with pytest.raises(BadInput):
        store.borrow(object(), lambda _txn: (NOTHING, None))
    with pytest.raises(BadInput):
        asyncio.run(store.lend(object()))


def test_a_store_may_be_closed_twice(store: Store) -> None:
    """The second time nothing happens."""
    add(store, a_job(1, started_at=NOW_MS))

    store.close()
    store.close()
