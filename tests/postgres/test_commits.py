"""Several commits of one process under way at once: none waits for another, and nothing is mixed up."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import holdfast
from tests.queue_suite.tools import LONG_S, complaints, take, until, upkeep


@pytest.fixture
def threads():
    """Some."""
    with ThreadPoolExecutor(40) as threads:
        yield threads


@contextmanager
def held_up(postgres, schema, queue, threads) -> Iterator["Future[holdfast.Job]"]:
    """A commit that cannot end: another transaction has a job of it locked."""
    queue.add("stuck")
    job = take(queue, "stuck")
    waits = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    with postgres.connect() as watcher, postgres.connect() as other, other.transaction():
        other.execute(f"SELECT FROM {schema}.jobs WHERE id = {job.id} FOR UPDATE")
        answer = threads.submit(job.done)
        until(lambda: watcher.execute(waits).fetchone()[0] > 0)
        yield answer
        assert not answer.done()


@pytest.fixture
def one_commit(postgres_url):
    """A queue with one commit at a time."""
    with holdfast.connect(postgres_url + "&commits=1") as queue:
        yield queue


def test_an_add_and_a_claim_do_not_wait_for_a_commit_that_is_held_up(queue, postgres, schema, threads):
    """They are committed beside it."""
    with held_up(postgres, schema, queue, threads) as answer:
        added = threads.submit(queue.add, "work").result(LONG_S)
        found = threads.submit(queue.next, ["work"], renew=False).result(LONG_S)
        assert found.id == added.id

    assert answer.result(LONG_S).state == "FINISHED"
    found.done()


def test_with_one_commit_at_a_time_they_wait(one_commit, postgres, schema, threads):
    """So it is the second one that makes the difference."""
    with held_up(postgres, schema, one_commit, threads):
        waits = threads.submit(one_commit.add, "work")
        with pytest.raises(TimeoutError):
            waits.result(0.3)

    assert waits.result(LONG_S).get().task == "work"


def test_a_claim_that_waits_hears_of_an_add_beside_a_commit_that_is_held_up(queue, postgres, schema, threads):
    """As soon as it can be committed."""
    waiting = threads.submit(queue.next, ["work"], wait=LONG_S, renew=False)
    waiter = queue.connection._submitter._waiter
    until(lambda: waiter._claims and not waiter.is_busy)
    with held_up(postgres, schema, queue, threads):
        added = threads.submit(queue.add, "work").result(LONG_S)

    assert waiting.result(LONG_S).id == added.id


def test_a_claim_that_finds_nothing_waits_with_the_others(queue, postgres, schema, threads):
    """Until there is something, or its time is up."""
    with held_up(postgres, schema, queue, threads):
        late = threads.submit(queue.next, ["work"], wait=0.5, renew=False)
        patient = threads.submit(queue.next, ["work"], wait=LONG_S, renew=False)
    assert late.result(LONG_S) is None

    added = queue.add("work")

    assert patient.result(LONG_S).id == added.id


def test_many_threads_with_many_commits_lose_nothing_and_make_no_id_twice(postgres_url):
    """From the first moment on, at which all of them want the process's number."""
    with holdfast.connect(postgres_url + "&commits=6") as queue:
        begin = threading.Barrier(32)

        def work(n: int) -> list[int]:
            begin.wait()
            made = [queue.add("work", {"n": n, "at": at}).id for at in range(20)]
            made += [job.id for job in queue.add_many([("work", {"n": n})] * 20)]
            return made + [queue.add("keyed", unique=f"key {at}").id for at in range(3)]

        with ThreadPoolExecutor(32) as threads:
            made = list(threads.map(work, range(32)))

        ids = [id for part in made for id in part[:40]]
        assert len(set(ids)) == len(ids) == 32 * 40
        assert len({tuple(part[40:]) for part in made}) == 1
        assert queue.counts() == {"work": {"QUEUED": 32 * 40}, "keyed": {"QUEUED": 3}}
        for job in queue.jobs(task="work", limit=1_000):
            assert queue.data(job)["n"] in range(32)
        upkeep(queue)
        assert complaints(queue) == []


def test_a_queue_that_is_closed_answers_what_its_commits_have(postgres_url, postgres, schema, threads):
    """Whoever asked before hears what came of it."""
    queue = holdfast.connect(postgres_url)
    with held_up(postgres, schema, queue, threads):
        for _ in range(8):
            threads.submit(queue.add, "work").result(LONG_S)
        waits = threads.submit(queue.next, ["never"], wait=LONG_S)
        closing = threads.submit(queue.close)
    closing.result(LONG_S)

    with pytest.raises(holdfast.Closed):
        waits.result(LONG_S)
    with holdfast.connect(postgres_url) as again:
        assert again.counts()["work"] == {"QUEUED": 8}


def test_a_commit_that_fails_is_told_to_its_caller_alone(queue, postgres, schema, threads):
    """Those beside it get theirs."""
    with held_up(postgres, schema, queue, threads):
        with pytest.raises(holdfast.NotFound):
            threads.submit(queue.add, "work", parent=12345).result(LONG_S)
        assert threads.submit(queue.add, "work").result(LONG_S).id


@pytest.mark.parametrize("what", ["domain", "unique", "then", ""])
def test_a_finish_is_decided_once(queue, monkeypatch, what):
    """Not first without a connection where it must read: ids that it makes would be wasted."""
    options = {what: queue.call("next") if what == "then" else "x"} if what else {}
    engine, decided = queue.connection.engine, list[int]()
    queue.add("warm")
    take(queue, "warm").done()
    queue.add("work", **options)
    job = take(queue, "work")
    transact = engine._transact

    def counted(*args, **how):
        decided.append(1)
        return transact(*args, **how)

    monkeypatch.setattr(engine, "_transact", counted)

    job.done()

    assert len(decided) == 1
