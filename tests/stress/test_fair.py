"""Who is many does not crowd out who is few, and who waits costs nothing.

one tenant   ■■■■■■■■■■■■■■■■■■■■…     added first
nine         ■ ■ ■ ■ ■ ■ ■ ■ ■         each has its tenth of the first starts
"""

from collections import Counter
from typing import NamedTuple

import pytest

import holdfast
from tests.work.conftest import Bench, bench

__all__ = ["bench"]


class Size(NamedTuple):
    """How much of it."""

    many: int
    few: int
    least: int


SIZES = [
    pytest.param(Size(many=5_000, few=40, least=38), id="small"),
    pytest.param(Size(many=100_000, few=100, least=95), id="full", marks=pytest.mark.proof),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.proof), 4])
def test_a_tenant_with_very_many_jobs_leaves_the_others_their_share(bench: Bench, size, threads, tell):
    """Of the first starts each of the nine has nearly all of its jobs."""
    _add(bench, "whale", size.many)
    for n in range(9):
        _add(bench, f"minnow{n}", size.few)

    worker = bench.start("--tenant", "*", "--tasks", "whose", "--threads", str(threads))
    bench.wait_for(lambda: len(bench.notes.read_text().splitlines()) >= 10 * size.few)
    worker.terminate()
    worker.communicate(timeout=60)

    lines = bench.notes.read_text().splitlines()[: 10 * size.few]
    starts = Counter(line.split()[0] for line in lines)
    assert min(starts[f"minnow{n}"] for n in range(9)) >= size.least, starts
    tell(f"of {len(lines):,} starts: {starts.most_common()}")


def _add(bench: Bench, tenant: str, count: int) -> None:
    with holdfast.connect(bench.store, tenant=tenant) as queue:
        queue.add_many([("whose", {"tenant": tenant})] * count)
