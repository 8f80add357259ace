"""How much is said to the server: nothing that is not needed, and at once what is asked together."""

import threading

import psycopg
import pytest
from holdfast.store.postgres.rows import bodies

import holdfast
from holdfast.core import commands as c
from holdfast.core.job import Place
from holdfast.engine import look
from holdfast.engine.prospects import prospects
from holdfast.store.contract import ClaimQuery, leased
from holdfast.store.postgres import txn as postgres_txn
from holdfast.store.postgres import view as postgres_view
from holdfast.store.postgres.connection import OwnLink, PsycopgLink
from holdfast.store.postgres.statements import lock_number, texts
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.stores.making import NOW_MS, a_job, add, following, race
from tests.store.helpers import all_ids

ODD = ["", "a", 'q"uo"te', "back\\slash", "{a,b}", "NULL", "é\U0001f600", "line\nline", " "]


@pytest.fixture
def said(monkeypatch):
    """What batches ask of the server, the first word of each; and how they are committed."""
    asked: list[str] = []
    ask, commit = PsycopgLink.ask, OwnLink.commit

    def spy_ask(self, sql, values=()):
        # Not what is asked and set on a new connection.
        if by_committer() and "pg_backend_pid" not in sql and not sql.startswith("SET"):
            asked.append(sql.split()[0])
        return ask(self, sql, values)

    def spy_commit(self):
        if by_committer():
            asked.append("ALONE" if self._alone else "COMMIT")
        commit(self)

    monkeypatch.setattr(PsycopgLink, "ask", spy_ask)
    monkeypatch.setattr(OwnLink, "commit", spy_commit)
    return asked


def by_committer():
    """Whether this thread executes batches: not one that notifies others, listens, or folds counts."""
    return threading.current_thread().name in ("MainThread", "holdfast-committer")


@pytest.fixture
def asked(monkeypatch):
    """Whatever is asked of the server, by anybody here."""
    statements: list[str] = []
    ask = PsycopgLink.ask

    def spy(self, sql, values=()):
        statements.append(sql)
        return ask(self, sql, values)

    monkeypatch.setattr(PsycopgLink, "ask", spy)
    return statements


def test_an_add_is_one_call(postgres_url, said):
    """A transaction by itself; behind a pooler, where nothing can be prepared, one message."""
    for way, one in ((postgres_url, "ALONE"), (f"{postgres_url}&prepare=off&notify=off", "COMMIT")):
        with holdfast.connect(way, follow=False) as queue:
            queue.add("work")
            said.clear()
            queue.add("work")
            assert said == [one]


def test_adds_that_are_not_alike_are_one_message(queue, said):
    """Several groups, and the counts of all."""
    queue.add("work")
    said.clear()
    queue.add_many([("work", 1), ("other", 2), ("work", 3)])

    assert said == ["COMMIT"]
    assert queue.counts() == {"work": {"QUEUED": 3}, "other": {"QUEUED": 1}}


def test_a_claim_is_three_messages(queue, said):
    """The moments, what is paused and the time; the jobs with their data and turns; the commit."""
    for n in range(2):
        queue.add("work", n)
    assert queue.next(["work"]).data == 0
    said.clear()
    assert queue.next(["work"]).data == 1

    assert said == ["BEGIN", "WITH", "COMMIT"]


def test_who_had_to_wait_for_his_turn_has_not_walked_slowly(queue, said, monkeypatch):
    """A claim's first message may wait for locks, or for a pooler: then its walks are timed alone."""
    queue.add_many([("work", n) for n in range(5)])
    monkeypatch.setattr(postgres_txn, "SLOW_S", 0.0)
    for n in range(5):
        said.clear()
        assert queue.next(["work"]).data == n

    assert said == ["BEGIN", "SELECT", "WITH", "COMMIT"]
    assert queue.line.committer.engine.store._begin.starts._walks == {}


def test_ends_are_one_call(postgres_url, said):
    """Of several at once, with results and without; behind a pooler one message."""
    for way, one in ((postgres_url, "ALONE"), (f"{postgres_url}&prepare=off&notify=off", "COMMIT")):
        with holdfast.connect(way, follow=False) as queue:
            engine, ids = _ended_before(queue)
            answers = _answers(engine, ids, ['"one"', None, b"two"])
            said.clear()
            done = engine.execute(answers)

            assert said == [one]
            assert [job.id for job in done.replies] == ids
            assert [engine.read(lambda txn: look.bodies(txn, n))[1] for n in ids] == ['"one"', None, b"two"]  # noqa: B023
            assert {queue.get(n).state for n in ids} == {"FINISHED"}


def test_one_end_that_comes_too_late_takes_no_other_along(queue):
    """All of the call fails, and is done again by a batch that looks."""
    engine, ids = _ended_before(queue)
    answers = _answers(engine, ids, [None, None, None])
    engine.execute([c.Release(hold=answers[1].hold)])
    done = engine.execute(answers)

    assert isinstance(done.replies[1], holdfast.LeaseLost)
    assert [queue.get(n).state for n in ids] == ["FINISHED", "QUEUED", "FINISHED"]
    assert queue.counts() == {"work": {"FINISHED": 3, "QUEUED": 1}}


def _ended_before(queue):
    """An engine that has ended a job already, and three more jobs."""
    queue.add("work")
    queue.next(["work"]).done()
    return queue.line.committer.engine, [job.id for job in queue.add_many([("work", n) for n in range(3)])]


def _answers(engine, ids, results):
    """Claim jobs, and what their holder says of them."""
    (claimed,) = engine.execute([c.Claim(tasks=("work",), tenant="", limit=len(ids), lease_ms=9_000)]).replies
    jobs = {one.job.id: one.job for one in claimed}
    return [
        c.Answer(hold=c.hold_of(jobs[n]), held=jobs[n], result=result)
        for n, result in zip(ids, results, strict=True)
    ]


def test_who_is_woken_sees_at_once_whether_there_is_anything_for_him(queue, store, asked):
    """One answer: tasks that are READY and not paused, also where they are many."""

    def hopes(*, mock=False, **whose):
        asked.clear()
        claim = c.Claim(limit=1, lease_ms=1_000, mock=mock, **whose)
        return store.peek(lambda txn: prospects(txn, [claim])).any

    assert not hopes(tenant="")
    queue.add_many([("work", 1), ("other", 2)])
    assert hopes(tenant="", tasks=("work",))
    assert [sql.split()[0] for sql in asked] == ["SELECT"]
    assert not hopes(tenant="", tasks=("absent",))
    assert len(asked) == 1
    queue.pause("work")
    assert not hopes(tenant="", tasks=("work",))
    assert hopes(tenant="")
    queue.add_many([(f"task-{n}", n) for n in range(20)])
    assert hopes(tenant="", tasks=("task-7",))
    assert not hopes(tenant="", tasks=("absent",))


def test_a_look_that_was_slow_does_not_say_which_of_its_walks_was(queue, store, asked, monkeypatch):
    """Each is timed alone then; taken for slow, they would begin past what others put there."""
    queue.add("work", delay="1h")
    monkeypatch.setattr(postgres_view, "SLOW_S", 0.0)
    for _ in range(5):
        asked.clear()
        assert store.read(lambda txn: txn.moments()).scheduled is not None

    assert [sql.split()[0] for sql in asked] == ["BEGIN", "SELECT", "SELECT", "ROLLBACK"]
    asked.clear()
    store.peek(lambda txn: txn.moments())
    assert [sql.split()[0] for sql in asked] == ["SELECT", "SELECT"]
    assert store._begin.starts._walks == {}


def test_who_also_takes_mocked_jobs_hopes_for_them(queue, store):
    """They are not among the tasks that are seen at once."""
    queue.line.committer.ask(c.Add(jobs=(c.NewJob(task="work", mock=True),)))
    claim = c.Claim(tenant="", limit=1, lease_ms=1_000, mock=True)

    assert store.read(lambda txn: prospects(txn, [claim])).any


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
            others[n].run(lambda txn: txn.swap([following(txn.load([job_id])[job_id])]))  # noqa: B023
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


def _claim_and_check(txn):
    """What is claimed is put back at once, so that nobody finds it changed."""
    query = ClaimQuery(owner=7, now_ms=NOW_MS, limit=1_000, lease_until=NOW_MS + 9)
    before = {job.id: job for job in txn.claim(query)}
    after = txn.load(list(before))
    assert {id: leased(job, query) for id, job in before.items()} == after
    changes = {"place": Place.READY, "rank": a_job(1).rank, "owner": 0, "lease_until": 0}
    txn.swap([following(job, **changes) for job in after.values()])
    return len(before)


def test_moments_are_as_they_stand_after_a_claim(store):
    """Of what was claimed here too, without another look; and after any other change by one."""
    add(store, a_job(1, rank=1), a_job(2, rank=2, expires_at=NOW_MS + 5))
    query = ClaimQuery(owner=7, now_ms=NOW_MS, limit=1, lease_until=0)

    def fn(txn):
        before = txn.moments()
        txn.claim(query._replace(lease_until=NOW_MS + 9))
        between = txn.moments()
        txn.claim(query._replace(lease_until=NOW_MS + 7))
        return before, between, txn.moments()

    before, between, after = store.run(fn)

    assert (before.running, before.expiring) == (None, NOW_MS + 5)
    assert (between.running, between.expiring) == (NOW_MS + 9, NOW_MS + 5)
    assert (after.running, after.expiring) == (NOW_MS + 7, None)
    assert store.read(lambda txn: txn.moments()) == after


def test_what_is_paused_comes_along_and_is_held_until_the_commit(store, postgres, schema):
    """Who asks for moments has the lock of pauses, shared, and sees what he writes himself."""
    store.run(lambda txn: txn.put_records("pause", {"one": b"1"}))
    number = lock_number(schema, "records", "pause")

    def fn(txn):
        txn.moments()
        with postgres.connect() as other:
            (free,) = other.execute("SELECT pg_try_advisory_xact_lock(%s)", (number,)).fetchone()
        seen = txn.records("pause")
        txn.put_records("pause", {"two": b"2"})
        return free, seen, txn.records("pause")

    assert store.run(fn) == (False, {"one": b"1"}, {"one": b"1", "two": b"2"})


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


def test_bodies_of_both_kinds_keep_their_places(store):
    """Text and bytes in one batch of jobs that are alike."""
    data = ['"text"', b"\x00bytes", "{}", b""]
    store.run(lambda txn: txn.insert_alike(a_job(1), list(enumerate(data, start=1))))

    assert store.read(lambda txn: txn.bodies([1, 2, 3, 4])) == dict(enumerate(data, start=1))
    assert bodies(["a"]) == {"bodies": '{"a"}', "raws": "{}"}
    assert all_ids(store) == [1, 2, 3, 4]
