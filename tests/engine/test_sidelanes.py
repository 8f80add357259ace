"""Which commands may be committed beside others, and which keep their place."""

import pytest
from holdfast.engine.sidelanes import is_free

from holdfast.core import commands as c

HOLD = c.Hold(job_id=1, owner=2, claim=1)


@pytest.mark.parametrize(
    ("command", "free"),
    [
        (c.Claim(limit=1, lease_ms=1_000), True),
        (c.Add(jobs=(c.NewJob(task="a"),)), True),
        (c.Claim(limit=1, lease_ms=1_000, owner=1), False),
        (c.Add(jobs=(c.NewJob(task="a"),), hold=HOLD), False),
        (c.Answer(hold=HOLD), False),
        (c.Cancel(job_id=1), False),
    ],
)
def test_only_what_nobody_waits_his_turn_for_goes_beside_the_others(command: c.Command, free: bool) -> None:
    """Claims of the port's clients, who may send several ahead, and what a holder says, keep their order."""
    assert is_free(command) is free
