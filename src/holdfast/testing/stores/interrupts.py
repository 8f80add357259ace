"""Interrupts: a batch may be cut off at any step, and the next one works."""

import sys
import threading
from collections.abc import Callable
from inspect import CO_GENERATOR
from types import FrameType

import pytest

from ...core.job import Place
from ...store import contract
from ...store.contract import (
    Changes,
    Store,
    Txn,
)
from .making import (
    a_job,
    a_query,
    add,
    commit,
    following,
    live,
    look,
    new_jobs,
)

# Longer than anything takes that works, on a busy machine.
PATIENT_S = 60.0


class Struck(BaseException):
    """An interrupt, as of the keyboard."""


class Strike:
    """Raises `Struck` where an interrupt could strike: at a call of the store's code, or as one returns."""

    def __init__(self, store: Store, at: int) -> None:
        self.left = at
        # Where its code is, and what it may share with others.
        self._modules = (
            type(store).__module__.rpartition(".")[0] + ".",
            contract.__name__.rpartition(".")[0],
        )

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        # A generator is also called to be thrown away, where whatever is raised is lost.
        is_step = event == "c_return" or (event == "call" and not frame.f_code.co_flags & CO_GENERATOR)
        if not is_step or not str(frame.f_globals.get("__name__")).startswith(self._modules):
            return
        self.left -= 1
        if self.left == 0:
            raise Struck


def strike(store: Store, fn: Callable[[Txn], tuple[Changes, None]], at: int) -> bool:
    """Run a batch that is interrupted at a step; False where it has fewer."""
    struck = Strike(store, at)
    before = sys.getprofile()
    sys.setprofile(struck)
    try:
        store.run(fn)
    except Struck:
        return True
    finally:
        sys.setprofile(before)
    assert struck.left > 0, "the interrupt was lost"
    return False


def in_time(call: Callable[[], None]) -> None:
    """Make a call in a thread of its own, which must not hang; what it raises is raised."""
    failed: list[BaseException] = []

    def go() -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    thread.join(PATIENT_S)
    assert not thread.is_alive(), "something is still locked"
    if failed:
        raise failed[0]


def test_an_interrupt_strikes_at_any_step_of_a_batch_and_the_next_one_works(
    store: Store, another: Store
) -> None:
    """An interrupted batch is committed completely or not at all, and blocks no other."""
    add(store, a_job(1))
    commit(store, rows={("k", "n"): b"0"})

    def fn(txn: Txn, n: int) -> tuple[Changes, None]:
        txn.rows("k", ["n"])
        job = txn.load([1])[1]
        txn.write(Changes(added=new_jobs([a_job(n, priority=900)])))
        (claimed,) = txn.claim(a_query(limit=1))
        swapped = [following(job), following(following(claimed), place=Place.PAUSED, rank=0)]
        return Changes(swapped=swapped, rows={("k", "n"): b"%d" % n}), None

    def look_after(n: int) -> None:
        kept = look(another, lambda txn: int(txn.rows("k", ["n"])["n"]))
        assert (kept == n) == (n in live(store, n))
        commit(store, swapped=[following(live(store, 1)[1])], rows={("k", "m"): b"%d" % n})
        commit(another, swapped=[following(live(another, 1)[1])], rows={("k", "m"): b"%d" % n})

    at = 1
    while strike(store, lambda txn, n=1000 + at: fn(txn, n), at):  # type: ignore[misc]
        in_time(lambda n=1000 + at: look_after(n))  # type: ignore[misc]
        at += 1 + at // 20
    assert at > 20
    assert live(store, 1000 + at)


def test_an_interrupt_in_what_a_batch_decides_undoes_it(store: Store, another: Store) -> None:
    """As any other error does."""
    add(store, a_job(1))

    def fn(txn: Txn) -> tuple[Changes, None]:
        txn.rows("k")
        txn.write(Changes(swapped=[following(txn.load([1])[1])], rows={("k", "a"): b"1"}))
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            store.run(fn)
    add(another, a_job(2))
    commit(another, swapped=[following(live(another, 1)[1])], rows={("k", "b"): b"1"})

    assert live(store, 1)[1].version == 2
    assert look(store, lambda txn: txn.rows("k")) == {"b": b"1"}
