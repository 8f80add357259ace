"""What those who wait are told: that there may be something to claim, or only that something has ended."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.engine.engine import Engine
from holdfast.engine.upkeep import ClaimHint
from holdfast.queue.connect import store_maker
from holdfast.store.common.clock import monotonic_s
from holdfast.store.contract import ENDS, JOBS, NO_WAKE, Changes, Store
from tests.idle import waits
from tests.queue_suite.tools import until, waiting
from tests.stores import SERVED


@pytest.fixture(params=["sqlite", *SERVED])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue(request.param))


def commit(store: Store, wake: str, rows: Mapping[tuple[str, str], bytes | None] | None = None) -> None:
    """Write something, and have others woken."""
    changes = Changes(rows={("table", "key"): b"1"} if rows is None else rows, wake=wake)
    store.run(lambda _txn: (changes, None))


@pytest.fixture
def stores(url: str) -> Iterator[list[Store]]:
    """Two stores at one address, both in use."""
    with ExitStack() as stack:
        both = [stack.enter_context(closing(store_maker(url)())).shards[0] for _ in range(2)]
        for store in both:
            commit(store, NO_WAKE)
        # Until there is nothing new to be heard.
        until(lambda: not any(store.wait(0.2) for store in both))
        yield both


@pytest.mark.usefixtures("no_looks")
def test_who_heeds_ends_is_woken_by_them_and_nobody_else(stores: list[Store]) -> None:
    """All who have not said otherwise; and everybody by what may be claimed."""
    one, other = stores
    commit(one, ENDS)
    assert other.wait(60)

    until(lambda: not other.wait(0.2, ends=False))
    commit(one, ENDS, rows={})
    assert not other.wait(0.3, ends=False)
    commit(one, JOBS)
    assert other.wait(60, ends=False)

    commit(one, ENDS)
    assert other.wait(60)


def test_of_two_words_at_once_none_is_lost(stores: list[Store]) -> None:
    """An end is said just before, or just after, that there is something to claim."""
    one, other = stores
    for turn in range(10):
        calls = [partial(commit, one, ENDS), partial(commit, one, JOBS)]
        threads = [threading.Thread(target=call) for call in (calls if turn % 2 else calls[::-1])]
        for thread in threads:
            thread.start()
        assert other.wait(60, ends=False), turn
        for thread in threads:
            thread.join()
        until(lambda: not other.wait(0.05, ends=False))


def test_who_waits_for_jobs_does_not_look_because_others_end(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file, whose changes are seen as well, ten times a second at most."""
    looks: list[Engine] = []
    hopes = Engine.claim_hint

    def spy(self: Engine, commands: Sequence[c.Command]) -> ClaimHint:
        looks.append(self)
        return hopes(self, commands)

    monkeypatch.setattr(Engine, "claim_hint", spy)
    with holdfast.connect(url) as queue, holdfast.connect(url) as other:
        queue.add_many([("work", n) for n in range(40)])
        with waiting(lambda: other.next(["nothing"], wait=60)):
            until(lambda: waits(other))
            began_s = monotonic_s()
            for job in queue.claim(["work"], limit=40):
                job.done()
                # So that none of these words is taken together with another.
                time.sleep(0.015)
            # Of the adds, of its own first wait, and of changes to a file.
            assert len(looks) < 7 + 10 * (monotonic_s() - began_s)
            other.close()


def test_who_waits_for_a_result_hears_of_it_beside_one_who_waits_for_jobs(url: str) -> None:
    """In the same process, by the same ear."""
    with holdfast.connect(url) as queue, holdfast.connect(url) as other:
        job = queue.add("work")
        with waiting(lambda: other.next(["nothing"], wait=60)):
            until(lambda: waits(other))
            results: list[object] = []
            thread = threading.Thread(target=lambda: results.append(other.result(job.id, wait=60)))
            thread.start()
            claimed = queue.next(["work"])
            assert claimed is not None
            claimed.done("found")
            thread.join(60)
            assert results == ["found"]
            other.close()
