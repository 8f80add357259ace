"""Two processes finish the last two children of a parent at once: it resumes each time, and once.

parent ──add 2──▶ PAUSED ── child ── done ┐ at the same
                          └ child ── done ┘ moment        ──▶ parent is READY, never twice, never not
"""

import pytest

import holdfast
from tests.queue_suite.tools import complaints, upkeep

from . import checks, family
from .crew import Crew

ROUNDS = [pytest.param(40, id="small"), pytest.param(1_000, id="full", marks=pytest.mark.proof)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", ROUNDS)
def test_the_last_two_children_wake_their_parent_once(address, rounds):
    """However close together they come."""
    with Crew() as crew, holdfast.connect(address) as queue:
        pair = [crew.start(family.child, path=address, rounds=rounds) for _ in range(2)]
        for _ in range(rounds):
            parent = _with_children(queue)
            for member in pair:
                assert member.hear() == "holding"
            for member in pair:
                member.say("go")
            for member in pair:
                assert member.hear() == "done"

            again = queue.next(["parent"], wait=60, renew=False)
            assert again is not None, queue.why(parent)
            assert (again.id, again.claim) == (parent, 2)
            assert queue.next(["parent"]) is None
            again.done()
        crew.finish()
        upkeep(queue)
        assert complaints(queue) == []
        assert checks.sound(queue.connection.engine.store) == []


def _with_children(queue: holdfast.Queue) -> int:
    """A parent that has run once, and waits for two children."""
    queue.add("parent")
    parent = queue.next(["parent"], wait=60, renew=False)
    assert parent is not None
    for _ in range(2):
        parent.add("child")
    parent.done()
    return parent.id
