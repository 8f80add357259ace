"""The checker of the kills, seen to find what it is there for."""

import pytest

from .kills import LEASE_S, Blow, Run, claims_are_alone, late, read, unexplained

SECOND = 1_000_000_000
LEASE = int(LEASE_S * SECOND)


def run(claim: int, begin: int, end: int, *, executor: int = 11, supervisor: int = 1) -> Run:
    return Run(7, claim, executor, supervisor, begin, end)


@pytest.mark.parametrize(
    ("runs", "stood", "complaint"),
    [
        ([run(1, 10, 20)], {}, "never accepted"),
        ([run(1, 10, 20), run(2, 30, 40)], {7: 1}, "run under claim 2, and finished under 1"),
        ([run(1, 10, 20), run(2, 30, 0)], {7: 2}, "whose run never ended"),
        ([run(1, 10, 20), run(1, 30, 40, executor=12)], {7: 1}, "claim 1 of job 7 was run 2 times"),
        ([run(1, 10, 0)], {7: 1}, "whose run never ended"),
    ],
)
def test_what_must_not_be_is_found(runs, stood, complaint):
    told = list(claims_are_alone(runs, stood))

    assert [complaint in text for text in told] == [True]


def test_a_run_that_lost_its_claim_may_go_on_beside_the_next():
    """As long as what it says does not stand."""
    runs = [run(1, 10, 90), run(2, 50, 70, executor=12)]

    assert list(claims_are_alone(runs, {7: 2})) == []
    assert late(runs) == 1
    assert len(list(claims_are_alone(runs, {7: 1}))) == 1


@pytest.mark.parametrize(
    ("blow", "excused"),
    [
        (Blow("executor", 11, 15, 15), True),
        (Blow("supervisor", 1, 15, 15), True),
        (Blow("sleeper", 2, 15, 15 + LEASE), True),
        (Blow("stall", 0, 15, 15 + LEASE), True),
        (Blow("executor", 12, 15, 15), False),
        (Blow("supervisor", 2, 15, 15), False),
        (Blow("sleeper", 2, 15, 15 + LEASE // 10), False),
    ],
)
def test_another_run_is_excused_by_what_befell_the_first_and_by_nothing_else(blow, excused):
    runs = [run(1, 10, 0), run(2, 10 + 2 * LEASE, 20 + 2 * LEASE, executor=12, supervisor=2)]

    assert (list(unexplained(runs, [blow])) == []) is excused


def test_a_run_that_begins_after_the_next_is_late_and_must_be_explained():
    """It lay with an executor whose supervisor slept."""
    runs = [run(2, 2 * LEASE, 3 * LEASE, executor=12, supervisor=2), run(1, 2 * LEASE + 9, 3 * LEASE)]

    assert late(runs) == 1
    assert list(claims_are_alone(runs, {7: 2})) == []
    assert len(list(unexplained(runs, []))) == 1
    assert list(unexplained(runs, [Blow("sleeper", 1, 10, LEASE)])) == []


def test_a_claim_that_one_process_begins_twice_is_found(tmp_path):
    history = tmp_path / "history"
    history.write_text("begin 7 1 11 1 10\nend 7 1 11 1 20\nbegin 7 1 11 1 30\n")

    with pytest.raises(AssertionError, match="claim 1 of job 7 began twice in process 11"):
        read(history)
