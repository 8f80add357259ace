"""What the random model and the stress tests found about limited domains, as small as it can be shown."""

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core.job import Place
from holdfast.core.kinds import DOMAIN, name_of
from holdfast.core.limits import Limit, TaskLoad
from holdfast.engine.batch import limiting
from holdfast.store.contract import Changes, Txn
from tests.engine.test_found import Rig


def test_a_domain_that_says_more_than_there_is_is_counted_anew_for_all_its_tasks() -> None:
    """What is read step by step, beside others who commit, need not fit together; its commit is refused."""
    rig = Rig()
    rig.ok(c.SetLimit(domain=b"d", limit=Limit(concurrency=1)))
    rig.add(domain=b"d")
    rig.add(domain=b"d")

    def tamper(txn: Txn) -> tuple[Changes, None]:
        domain = limiting.find_domains(txn, [("", b"d")])["", b"d"]
        loads = {task: TaskLoad(ready=99) for task in ("gone", "gone too")}
        raw = msgspec.json.encode(replace(domain, loads=loads))
        return Changes(rows={(DOMAIN, name_of(*domain.key)): raw}, dues={}), None

    rig.engine.store.run(tamper)

    assert len(rig.claim()) == 1


@pytest.mark.parametrize("allowed", [0, 1])
@pytest.mark.parametrize("standing", [5, 6, 9])
def test_the_first_of_a_domain_stands_ready_while_too_many_others_do(
    monkeypatch: pytest.MonkeyPatch, standing: int, allowed: int
) -> None:
    """A limit that came late holds them back by and by; one who comes before all is not among them."""
    monkeypatch.setattr(limiting, "UPKEEP_JOBS", 2)
    monkeypatch.setattr(limiting, "ALLOWANCE", 2)
    rig = Rig()
    for _ in range(standing):
        rig.add(domain=b"d")
    rig.ok(c.SetLimit(domain=b"d", limit=Limit(concurrency=allowed)))

    first = rig.add(domain=b"d", priority=501)

    job = rig.job(first)
    assert job is not None
    assert job.place is Place.READY
