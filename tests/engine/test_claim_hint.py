"""What one who waits may hope for: he errs on the side of hope, however many others wait."""

import pytest

from holdfast.core import commands as c
from holdfast.engine.engine import Engine
from holdfast.engine.upkeep import read_claim_hint
from holdfast.store.sqlite.store import SqliteStore


@pytest.mark.parametrize("others", [3, 6, 40, 100])
def test_one_of_many_tenants_has_what_he_waits_for(tmp_path, others):
    """Those that come before it, by their turn, have only what he does not want."""
    engine = Engine(SqliteStore(tmp_path / "jobs.db"), rng=lambda: 0.5)
    names = [f"t{n:03}" for n in range(others)]
    engine.execute([c.Add(jobs=tuple(c.NewJob(task="a", tenant=name) for name in names))])
    wanted = c.Claim(tasks=("x",))
    assert engine.read(lambda txn: read_claim_hint(txn, [wanted])).has_work is (others >= 64)
    engine.execute([c.Add(jobs=(c.NewJob(task="x", tenant="z"),))])

    assert engine.read(lambda txn: read_claim_hint(txn, [wanted])).has_work
    engine.close()
