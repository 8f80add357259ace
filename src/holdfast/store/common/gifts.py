"""What a store may do beyond its contract: who uses it asks here, and else goes the plain way.

lanes            how many commits of a process may be under way at once; else one
quick            what runs batches of a sort quicker: those that only add plain jobs, that only end some
                 plainly, that claim; it may find that one is of another sort, and is no quicker then
run_carefully    a `run` for a batch that is done again: what is mostly so is looked up this time
peek             a `read` that may show things of different moments: enough for a hint
seek             what runs the claim of one who waits for jobs, and was woken: its batch has a `sight`, what a
                 `peek` would show, and says whether that is all (`may_end`); what he seeks may be taken then
lends_apart      whether numbers are to be taken before a caller's transaction is joined
lend             makes a connection of asyncio's kind one that can be borrowed
tell             of a batch: its commit tells those who wait, and `notify` need not
heed             whether `wait` returns for words of ends and logs as well, which at first it does
ready_pairs      of a view: which tenants' tasks have READY jobs, mocked ones too if asked for, where all are
                 known by now
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, cast

from ..contract import ClaimQuery, ReadTxn, Store, Txn

T = TypeVar("T")
Run = Callable[[Callable[[Txn], T]], T]
# Sorts of batches.
ADDS, ENDS, CLAIMS = "adds", "ends", "claims"


class Sought(NamedTuple):
    """What one who waits asks for: for how long, from a moment that is not known yet."""

    query: ClaimQuery
    lease_ms: int

    def at(self, now_ms: int) -> ClaimQuery:
        """The claim as it is at a moment."""
        return self.query._replace(now_ms=now_ms, lease_until=now_ms + self.lease_ms if self.lease_ms else 0)


def lanes_of(store: Store) -> int:
    """How many commits may be under way at once."""
    return cast(int, getattr(store, "lanes", 1))


def quick_run_of(store: Store, sort: str) -> Run[T] | None:
    """The quicker way for batches of a sort."""
    quick = getattr(store, "quick", None)
    return None if quick is None else cast("Run[T] | None", quick(sort))


def run_carefully(store: Store, fn: Callable[[Txn], T]) -> T:
    """Run a batch that is done again."""
    run: Run[T] = getattr(store, "run_carefully", store.run)
    return run(fn)


def peek(store: Store, fn: Callable[[ReadTxn], T]) -> T:
    """Look for a hint."""
    look: Callable[[Callable[[ReadTxn], T]], T] = getattr(store, "peek", store.read)
    return look(fn)


def seek_run_of(store: Store, sought: Sought) -> Run[T] | None:
    """What runs a claim without a look before it."""
    seek = getattr(store, "seek", None)
    return None if seek is None else cast("Run[T] | None", seek(sought))


def sight_of(txn: Txn) -> ReadTxn | None:
    """What one who seeks sees as his batch begins."""
    return cast("ReadTxn | None", getattr(txn, "sight", None))


def may_end(txn: Txn) -> bool:
    """Whether the batch of one who seeks has nothing but that yet, and so may end as a look does."""
    return cast(bool, getattr(txn, "may_end", False))


def lends_apart(store: Store) -> bool:
    """Whether numbers are taken before a caller's transaction is joined."""
    return cast(bool, getattr(store, "lends_apart", False))


def lender_of(store: Store) -> Callable[[Any], Awaitable[Any]] | None:
    """What makes a connection to await one that can be borrowed."""
    return cast("Callable[[Any], Awaitable[Any]] | None", getattr(store, "lend", None))


def has_told(txn: Txn, *, ends: bool) -> bool:
    """Have the commit of a batch tell those who wait, see `Store.notify`; False where it cannot."""
    tell = getattr(txn, "tell", None)
    if tell is not None:
        tell(ends=ends)
    return tell is not None


def heed(store: Store, *, ends: bool) -> None:
    """Let `wait` return for words of ends and logs as well, or only for those of something to claim."""
    listen = getattr(store, "heed", None)
    if listen is not None:
        listen(ends=ends)


def ready_pairs_of(txn: ReadTxn, *, mock: bool) -> list[tuple[str, str]] | None:
    """The tenants' tasks that have READY jobs, mocked ones too or perhaps not, where they are known."""
    known = getattr(txn, "ready_pairs", None)
    return None if known is None else cast("list[tuple[str, str]] | None", known(mock=mock))
