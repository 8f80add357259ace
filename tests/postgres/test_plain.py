"""Plain commits and leases: one message each, and replies that are lost, or cut off by Ctrl-C."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from holdfast.core.errors import Unsettled
from holdfast.core.kinds import SETTING
from holdfast.store.contract import JOBS, Changes, Leased, NewJobs, Store, leased_all
from holdfast.store.postgres.connection import OwnConnection
from holdfast.store.postgres.reads import PostgresReads
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.tries import settle
from holdfast.testing.stores.making import a_job, a_query, add, commit, ended, following, ids, live, tally

LOST = psycopg.OperationalError("server closed the connection unexpectedly")


def fresh(*jobs: Any) -> Changes:
    """What the engine writes to add these."""
    groups = [NewJobs(job, [(job.id, "{}")], is_fresh=True) for job in jobs]
    return Changes(added=groups, counts=tally(jobs), wake=JOBS)


def counted(store: Store) -> dict[Any, int]:
    """All counts."""
    return store.read(lambda txn: txn.counts())


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have the next plain statement fail: before it is sent, or after it was done."""

    def lose(error: BaseException, *, sent: bool, name: str = "call") -> None:
        whole, left = getattr(OwnConnection, name), [1]

        def fail(self: OwnConnection, sql: str, values: Any = ()) -> Any:
            if not left or (name == "rows" and ".lease_jobs(" not in sql):
                return whole(self, sql, values)
            left.clear()
            if sent:
                whole(self, sql, values)
            raise error

        monkeypatch.setattr(OwnConnection, name, fail)

    return lose


def test_a_plain_commit_is_one_message(store, messages):
    """So are its end and a lease, once their statements are prepared."""
    first, second = a_job(1), a_job(2)
    assert store.commit(fresh(first))
    assert store.lease(a_query(limit=1), [])
    assert store.commit(Changes(archived=[ended(leased_all([first], a_query())[0])]))
    leased: list[Leased] = []
    end = Changes(archived=[ended(leased_all([second], a_query())[0])])

    assert messages.count(lambda: store.commit(fresh(second))) == 1
    assert messages.count(lambda: store.lease(a_query(limit=1), leased)) == 1
    assert messages.count(lambda: store.commit(end)) == 1
    assert leased == [(second, "{}")]


@pytest.mark.parametrize("sent", [True, False])
def test_an_add_without_a_reply_is_made_once(store, lose, sent):
    """Whether it has arrived or not."""
    lose(LOST, sent=sent)

    assert store.commit(fresh(a_job(1)))

    assert live(store, 1) == {1: a_job(1)}
    assert counted(store) == tally([a_job(1)])


@pytest.mark.parametrize("retention_ms", [None, 0])
def test_an_add_without_a_reply_whose_job_has_ended_is_not_made_again(store, lose, monkeypatch, retention_ms):
    """If it may have been purged, nobody knows."""
    if retention_ms is not None:
        commit(store, rows={(SETTING, "retention_ms"): str(retention_ms).encode()})
    lose(LOST, sent=True)

    def after_its_end(*args: Any, **how: Any) -> bool:
        removed = {"removed": [a_job(1)]} if retention_ms == 0 else {"archived": [ended(a_job(1))]}
        commit(store, **removed)
        return bool(settle(*args, **how))

    monkeypatch.setattr("holdfast.store.postgres.store.settle", after_its_end)

    if retention_ms is None:
        assert store.commit(fresh(a_job(1)))
    else:
        with pytest.raises(Unsettled):
            store.commit(fresh(a_job(1)))

    assert live(store, 1) == {}


@pytest.mark.parametrize("sent", [True, False])
def test_an_answer_without_a_reply_is_made_once(store, lose, sent):
    """Its version says whether it was."""
    (job,) = add(store, a_job(1))
    after = ended(job)
    changes = Changes(archived=[after], results={1: "1"}, counts=tally([job], by=-1) | tally([after]))
    lose(LOST, sent=sent)

    assert store.commit(changes)

    assert store.read(lambda txn: txn.archived([1])) == {1: after}
    assert counted(store) == tally([after])


def test_an_answer_without_a_reply_to_another_version_is_for_a_batch(store, lose):
    """It was not made, and cannot be."""
    add(store, a_job(1, version=3), a_job(2))
    lose(LOST, sent=False)

    assert not store.commit(Changes(archived=[ended(a_job(2))], removed=[a_job(1, version=3), a_job(3)]))

    assert sorted(live(store, 1, 2)) == [1, 2]


def test_an_answer_without_a_reply_to_a_job_that_was_lost_meanwhile_is_for_a_batch(store, lose, monkeypatch):
    """Its lease ran out: a job that has ended would not be live."""
    (job,) = add(store, a_job(1))
    lose(LOST, sent=False)

    def after_its_lease(*args: Any, **how: Any) -> bool:
        commit(store, swapped=[following(job)])
        return bool(settle(*args, **how))

    monkeypatch.setattr("holdfast.store.postgres.store.settle", after_its_lease)

    assert not store.commit(Changes(archived=[ended(job)]))

    assert live(store, 1) == {1: following(job)}


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("error", [LOST, KeyboardInterrupt()])
def test_what_a_lease_without_a_reply_has_leased_is_known(store, lose, sent, error):
    """To be run, or to be released after an interrupt."""
    (_, second) = add(store, a_job(1), a_job(2), data='{"n": 1}')
    other: list[Leased] = []
    assert store.lease(a_query(limit=1), other)
    lose(error, sent=sent, name="rows")
    leased: list[Leased] = []

    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            store.lease(a_query(), leased)
    else:
        assert store.lease(a_query(), leased)

    assert ids(job for job, _ in other) == [1]
    assert [data for _, data in leased] == (['{"n": 1}'] if sent else [])
    after = leased_all([job for job, _ in leased], a_query())
    assert after == ([live(store, 2)[2]] if sent else [])
    assert live(store, 2)[2].version == second.version + sent


def test_a_process_without_a_view_of_jobs_commits_in_batches(store, postgres, schema):
    """So it is while a store is being moved, and with a newer layout."""
    assert store.commit(fresh(a_job(1)))
    with postgres.connect() as other:
        other.execute(f'ALTER VIEW "{schema}".plain_jobs RENAME TO plain_jobs_2')
        try:
            assert not store.commit(fresh(a_job(2)))
            assert not store.lease(a_query(), [])
        finally:
            other.execute(f'ALTER VIEW "{schema}".plain_jobs_2 RENAME TO plain_jobs')

    assert store.commit(fresh(a_job(2)))


def test_behind_a_pooler_plain_commits_are_transactions(store, postgres_url):
    """Their statements are not prepared."""
    pooled = PostgresStore(postgres_url + "&prepare=off")
    try:
        add(pooled, a_job(1))
        assert pooled.commit(fresh(a_job(2)))
        assert not pooled.commit(fresh(a_job(2)))
        assert pooled.commit(fresh(a_job(3)))
    finally:
        pooled.close()

    assert sorted(live(store, 1, 2, 3)) == [1, 2, 3]


def test_an_add_that_is_repeated_does_not_settle_one_beside_it(store):
    """Its job is there already; that of the other was lost with the reply."""
    add(store, a_job(1))
    groups = [NewJobs(a_job(1), [(1, "{}")]), NewJobs(a_job(2), [(2, "{}")], is_fresh=True)]
    changes = Changes(added=groups, counts=tally([a_job(1), a_job(2)]), wake=JOBS)
    sent: list[Any] = []

    def refuse(statements: list[Any]) -> bool:
        sent.append(statements)
        return False

    with store.pool.connection() as connection:
        view = PostgresReads(connection, store._reading, 0, schema=store._schema, starts=store.starts)
        settled = settle(view, changes, refuse, for_s=0.0, is_over=True, shown="here")

    assert len(sent) == 1
    assert not settled


def test_a_claim_that_waited_long_for_a_connection_is_left_to_a_batch(store, monkeypatch):
    """Its lease would have begun long before."""
    add(store, a_job(1))
    leased: list[Leased] = []
    monkeypatch.setattr("holdfast.store.postgres.store.LATE_S", -1.0)

    assert not store.lease(a_query(limit=1), leased)

    assert not leased
    assert live(store, 1) == {1: a_job(1)}
