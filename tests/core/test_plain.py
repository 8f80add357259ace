"""What is said of plain jobs is what the rules say of all."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core import plain, rules
from holdfast.core.job import Children, Code, Job, Outcome, Place, Progress
from holdfast.core.outcome import outcome
from holdfast.store.contract import ClaimQuery, leased

NOW_MS = 1_767_225_600_000

# Of each of these most jobs have the first; any may matter to how a run begins or ends.
_PARTS = {
    "parent_id": (0, 7),
    "repeat": ("", "+1 DAY"),
    "again_at": (0, NOW_MS + 5),
    "then": ("", '{"task":"next"}'),
    "steps": (0, 2),
    "log_lines": (0, 3),
    "cancel_requested": (False, True),
    "strict": (False, True),
    "mock": (False, True),
    "lapsed": (False, True),
    "unique": (None, b"key"),
    "domain": (None, b"domain"),
    "children": (Children(), Children(pending=1), Children(failed=1), Children(kept=1)),
    "wait_for_failed": (False, True),
    "expires_at": (0, NOW_MS + 1),
    "retry_after": (0, 60_000),
    "timeout_ms": (0, 1_000),
    "progress": (None, Progress(fraction=0.5)),
    "has_result": (False, True),
    "losses": (0, 1),
    "attempts": (0, 3),
    "crowd_limit": (0, 4),
    "errors": ((), (Outcome(code=Code.ERROR, at=5, error="no"),)),
    "reason": ("", "requeued"),
    "schedule": ("", "nightly"),
}


def _jobs(place: Place) -> st.SearchStrategy[Job]:
    """Jobs that differ from a plain one in a few parts."""
    base = Job(id=12, task="a", place=place, claim=3, version=4, rank=9, run_at=NOW_MS - 10, created_at=1)
    odd = st.lists(st.sampled_from(sorted(_PARTS)), max_size=3, unique=True)
    return odd.flatmap(
        lambda names: st.builds(
            lambda **parts: replace(base, **parts), **{name: st.sampled_from(_PARTS[name]) for name in names}
        )
    )


@given(_jobs(Place.RUNNING), st.booleans())
def test_a_plain_end_is_that_of_the_rules(job: Job, has_result: bool) -> None:
    job = replace(job, owner=5, lease_until=NOW_MS + 99, started_at=NOW_MS - 5)
    if plain.ends_plainly(job):
        end = outcome(Code.OK, now_ms=NOW_MS)
        by_rules = rules.finish(job, now_ms=NOW_MS, end=end)
        by_rules = replace(by_rules, has_result=has_result or job.has_result, version=job.version + 1)
        assert plain.finish_plainly(job, now_ms=NOW_MS, end=end, has_result=has_result) == by_rules


@given(_jobs(Place.READY), st.booleans())
def test_a_plain_start_is_that_of_the_rules(job: Job, start: bool) -> None:
    if plain.starts_plainly(job):
        query = ClaimQuery(owner=5, now_ms=NOW_MS, limit=1, lease_until=NOW_MS + 60_000, start=start)
        by_rules = rules.claim(job, owner=5, now_ms=NOW_MS, lease_ms=60_000, start=start)
        assert leased(job, query) == replace(by_rules, version=job.version + 1)


def test_most_jobs_are_plain() -> None:
    job = Job(id=1, task="a", place=Place.RUNNING, owner=5, claim=1)
    assert plain.ends_plainly(job)
    assert plain.starts_plainly(job)
    assert not plain.ends_plainly(replace(job, place=Place.READY))
