"""How much is sent to the server: nothing that is not needed, and in one message what is asked together."""

import threading

import psycopg
import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.job import Body, Place
from holdfast.engine.upkeep import read_claim_hint
from holdfast.store.contract import NOTHING, Changes, ClaimQuery, NewJobs, leased_all
from holdfast.store.postgres.statements import literal, read_key, texts, written_key
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.stores.making import NOW_MS, a_job, add, commit, following, look, race
from tests.queue_suite.tools import take
from tests.store.helpers import all_ids

ODD = ["", "a", 'q"uo"te', "back\\slash", "{a,b}", "NULL", "é\U0001f600", "line\nline", " ", "'", "$h$", "$h"]


@pytest.fixture(params=["", "&prepare=off"], ids=["alone", "behind a pooler"])
def warm(request, postgres_url):
    """A queue whose one connection knows all statements; behind a pooler nothing is prepared."""
    with holdfast.connect(f"{postgres_url}&notify=off{request.param}", follow=False) as queue:
        queue.connection.engine.store.folding.appended = 0  # type: ignore[attr-defined]
        for n in range(4):
            queue.add_many([("work", n), ("work", n)])
            queue.add("work", n)
            for _ in range(3):
                take(queue, *(["work"] if n % 2 else [])).done("result" if n % 2 else None)
        yield queue


def test_an_add_is_one_message(warm, messages):
    """Its counts come with it."""
    assert messages.count(lambda: warm.add("work")) == 1
    assert warm.counts()["work"]["QUEUED"] == 1


def test_adds_that_are_not_alike_are_one_message(warm, messages):
    """Several groups, and the counts of all."""
    many = [("work", 1), ("other", 2), ("work", 3)]
    warm.add_many(many)

    assert messages.count(lambda: warm.add_many(many)) == 1
    assert warm.counts()["other"] == {"QUEUED": 2}


def test_a_claim_is_one_message(warm, messages):
    """Behind a pooler three: what it looks at first; the jobs with data; the changes and the commit."""
    number = 3 if warm.connection.engine.store.pool.pooled else 1
    for n in range(2):
        warm.add("work", n)
    found = []

    assert messages.count(lambda: found.append(warm.next(["work"]))) == number
    assert messages.count(lambda: found.append(warm.next())) == number
    assert [job.data for job in found] == [0, 1]


def test_a_finish_is_one_message(warm, messages):
    """With a result and without."""
    for n in range(2):
        warm.add("work", n)
    one, two = warm.next(["work"]), warm.next(["work"])

    assert messages.count(lambda: one.done("result")) == 1
    assert messages.count(two.done) == 1
    assert {warm.get(job.id).state for job in (one, two)} == {"FINISHED"}


def test_ends_of_many_are_one_message(warm, messages):
    """With results and without, text and bytes."""
    ids = [job.id for job in warm.add_many([("work", n) for n in range(3)])]
    engine = warm.connection.engine
    # The first has its shape prepared.
    for _ in range(2):
        answers = _answers(engine, ids, ['"one"', None, b"two"])
        sent = messages.count(lambda answers=answers: engine.execute(answers))
        results = engine.store.read(lambda txn, ids=ids: txn.bodies(ids, result=True))
        assert results == {ids[0]: '"one"', ids[2]: b"two"}
        ids = [job.id for job in warm.add_many([("work", n) for n in range(3)])]

    assert sent == 1


def test_one_end_that_comes_too_late_takes_no_other_along(queue):
    """All of the call fails, and is done again by a batch that looks."""
    ids = [job.id for job in queue.add_many([("work", n) for n in range(3)])]
    engine = queue.connection.engine
    answers = _answers(engine, ids, [None, None, None])
    engine.execute([c.Release(hold=answers[1].hold)])
    done = engine.execute(answers)

    assert isinstance(done.replies[1], holdfast.LeaseLost)
    assert [queue.get(n).state for n in ids] == ["FINISHED", "QUEUED", "FINISHED"]
    assert queue.counts() == {"work": {"FINISHED": 2, "QUEUED": 1}}


def _answers(engine, ids, results):
    """Claim jobs, and what their holder says of them."""
    (claimed,) = engine.execute([c.Claim(tasks=("work",), tenant="", limit=len(ids), lease_ms=9_000)]).replies
    jobs = {one.job.id: one.job for one in claimed}
    return [
        c.Answer(hold=c.hold_of(jobs[n]), held=jobs[n], result=result)
        for n, result in zip(ids, results, strict=True)
    ]


def test_rows_that_are_asked_for_together_come_in_one_message(store, messages):
    """With their locks; and those that were read, or are known to be absent, in none."""
    commit(store, rows={("k", "a"): b"1", ("domain", "d"): b"2", ("domain", "e"): b"3", ("whole", "x"): b"4"})

    def fn(txn):
        ahead = {"k": ["a", "b"], "domain": ["d", "f"], "whole": None}
        sent = messages.count(lambda: txn.read_ahead(ahead))
        found: list[dict[str, bytes]] = []
        sent_later = messages.count(
            lambda: found.extend(
                (txn.rows("k", ["a", "b"]), txn.rows("domain", ["d", "f"]), txn.rows("whole"))
            )
        )
        return NOTHING, (sent, sent_later, found)

    look(store, lambda txn: txn.read_ahead({"k": ["a"]}))
    found = [{"a": b"1"}, {"d": b"2"}, {"x": b"4"}]
    assert store.run(fn) == (1, 0, found)


def test_a_process_that_is_woken_sees_in_one_message_whether_there_is_anything(queue, store, messages):
    """Tasks that are READY and not paused; more messages where they are many."""

    def claim_hint(*, mock=False, **whose):
        claim = c.Claim(limit=1, lease_ms=1_000, mock=mock, **whose)
        found = []
        sent = messages.count(
            lambda: found.append(store.read(lambda txn: read_claim_hint(txn, [claim]), hint=True).has_work)
        )
        return found[0], sent

    claim_hint(tenant="")
    assert claim_hint(tenant="") == (False, 1)
    queue.add_many([("work", 1), ("other", 2)])
    assert claim_hint(tenant="", tasks=("work",)) == (True, 1)
    assert claim_hint(tenant="", tasks=("absent",)) == (False, 1)
    assert claim_hint(tenant="", tasks=("work",), mock=True)[0]
    queue.pause("work")
    assert claim_hint(tenant="", tasks=("work",)) == (False, 1)
    assert claim_hint(tenant="") == (True, 1)
    queue.add_many([(f"task-{n}", n) for n in range(20)])
    assert claim_hint(tenant="", tasks=("task-7",))[0]
    assert not claim_hint(tenant="", tasks=("absent",))[0]


def test_what_a_claim_answers_is_what_it_took(store, postgres_url):
    """Also of jobs that others have changed, one after the other, since it began to look."""
    add(store, *(a_job(n) for n in range(1, 1_001)))
    others = [PostgresStore(postgres_url) for _ in range(2)]
    over = threading.Event()

    def change(n: int) -> int:
        count = 0
        while not over.is_set():
            count += 1
            job_id = 1 + (count * 2 + n) % 1_000
            others[n].run(lambda txn: _swap(txn, job_id))  # noqa: B023
        return count

    def look() -> int:
        try:
            return sum(store.run(_claim_and_check) for _ in range(40))
        finally:
            over.set()

    claimed, *changed = race([look, lambda: change(0), lambda: change(1)])
    for other in others:
        other.close()

    assert claimed > 0
    assert min(changed) > 0


def _swap(txn, job_id):
    return Changes(swapped=[following(txn.load([job_id])[job_id])]), None


def _claim_and_check(txn):
    """What is claimed is put back at once, so that nobody finds it changed."""
    query = ClaimQuery(owner=7, now_ms=NOW_MS, limit=1_000, lease_until=NOW_MS + 9)
    before = {job.id: job for job in txn.claim(query)}
    after = txn.load(list(before))
    assert {job.id: job for job in leased_all(before.values(), query)} == after
    changes = {"place": Place.READY, "rank": a_job(1).rank, "owner": 0, "lease_until": 0}
    return Changes(swapped=[following(job, **changes) for job in after.values()]), len(before)


def test_moments_are_as_they_stand_after_a_claim(store, messages):
    """Of what was claimed here too, without another message; and after any other change by one."""
    add(store, a_job(1, rank=1), a_job(2, rank=2, expires_at=NOW_MS + 5))
    query = ClaimQuery(owner=7, now_ms=NOW_MS, limit=1, lease_until=0)

    def fn(txn):
        before = txn.moments()
        txn.claim(query._replace(lease_until=NOW_MS + 9))
        sent = messages.sent
        between = txn.moments()
        assert messages.sent == sent
        txn.claim(query._replace(lease_until=NOW_MS + 7))
        return NOTHING, (before, between, txn.moments())

    before, between, after = store.run(fn)

    assert (before.running, before.expiring) == (None, NOW_MS + 5)
    assert (between.running, between.expiring) == (NOW_MS + 9, NOW_MS + 5)
    assert (after.running, after.expiring) == (NOW_MS + 7, None)
    assert store.read(lambda txn: txn.moments()) == after


def test_what_is_paused_comes_along_and_is_held_until_the_commit(store, postgres_url):
    """Nobody changes it meanwhile, and the batch sees what it writes itself."""
    commit(store, rows={("pause", "one"): b"1"})
    other = PostgresStore(postgres_url, patience_s=0.1)

    def fn(txn):
        with pytest.raises(holdfast.Unavailable):
            commit(other, rows={("pause", "two"): b"2"})
        seen = txn.rows("pause")
        txn.write(Changes(rows={("pause", "three"): b"3"}))
        return NOTHING, (seen, txn.rows("pause"))

    assert store.run(fn) == ({"one": b"1"}, {"one": b"1", "three": b"3"})
    other.close()


@pytest.mark.parametrize("some", [ODD, ODD[:1], [], [None, *ODD], [None]])
def test_texts_arrive_as_they_are(postgres, some):
    """All at once or, where one is missing, one by one."""
    with postgres.connect() as connection:
        (arrived,) = connection.execute("SELECT %s::text[]", (texts(some),)).fetchone()

    assert arrived == some


def test_a_text_that_postgresql_cannot_have_is_no_two_texts(postgres):
    """It is refused, as ever."""
    with postgres.connect() as connection, pytest.raises(psycopg.DataError):
        connection.execute("SELECT %s::text[]", (texts(["a\0b", "c"]),))


@pytest.mark.parametrize("text", ODD)
def test_texts_arrive_in_a_message_of_several_statements(postgres, text):
    """As they are, whatever marks their ends."""
    with postgres.connect() as connection:
        for setting in ("on", "off"):
            connection.execute(f"SET standard_conforming_strings = {setting}")
            assert connection.execute(f"SELECT {literal(text)}").fetchone() == (text,)


@pytest.mark.parametrize("key", ["", "a", "\0", "\1", "\0\1", "\1\0", "\1\1", "a\0b", "\0\0", "\2", "\1\2"])
def test_keys_with_nul_are_written_without_and_read_with(key):
    """PostgreSQL has no such text."""
    assert "\0" not in written_key(key)
    assert read_key(written_key(key)) == key


def test_keys_are_written_in_their_order():
    """Also next to those without NUL."""
    keys = sorted(a + b for a in ("", "\0", "\1", "\2", "a") for b in ("", "\0", "\1", "\2", "a"))

    assert sorted(keys, key=written_key) == keys


def test_bodies_of_both_kinds_keep_their_places(store):
    """Text and bytes in one batch of jobs that are alike."""
    data: list[Body] = ['"text"', b"\x00bytes", "{}", b""]
    commit(store, added=[NewJobs(a_job(1), list(enumerate(data, start=1)))])

    assert store.read(lambda txn: txn.bodies([1, 2, 3, 4])) == dict(enumerate(data, start=1))
    assert all_ids(store) == [1, 2, 3, 4]
