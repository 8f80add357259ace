"""Jobs that a store starts by itself are as `rules.claim` would make them."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core import rules
from holdfast.core.job import Children, Code, Job, JobProgress, Outcome, Place, plain_lease_ms
from holdfast.store.contract import ClaimQuery, leased_all

NOW_MS = 1_767_225_600_000

# Of each of these most jobs have the first; any may matter to how a run begins.
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
    "progress": (None, JobProgress(fraction=0.5)),
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


@given(_jobs(Place.READY), st.booleans())
def test_a_plain_start_is_that_of_the_rules(job: Job, start: bool) -> None:
    if plain_lease_ms(job) >= 60_000:
        query = ClaimQuery(owner=5, now_ms=NOW_MS, limit=1, lease_until=NOW_MS + 60_000, start=start)
        by_rules = rules.claim(job, owner=5, now_ms=NOW_MS, lease_ms=60_000, start=start)
        assert leased_all([job], query) == [replace(by_rules, version=job.version + 1)]


def test_most_jobs_start_plainly() -> None:
    """Also with a time limit that no lease reaches."""
    job = Job(id=1, task="a", place=Place.READY)
    assert plain_lease_ms(job) > 10**12
    assert plain_lease_ms(replace(job, timeout_ms=120_000)) == 120_000
    assert plain_lease_ms(replace(job, domain=b"d")) == 0
