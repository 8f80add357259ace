"""One who waits for jobs and is woken looks and claims by one call; what he gets is what a claim gets."""

import threading

import msgspec
import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.errors import Moved
from holdfast.core.moving import Notice, Standing
from holdfast.store.common.clock import monotonic_s
from holdfast.store.contract import WaitingQuery
from holdfast.store.postgres.connection import OwnLink, PsycopgLink
from holdfast.store.postgres.store import FOLD_ROWS
from holdfast.store.postgres.txn import PostgresTxn
from tests.postgres.test_messages import by_committer
from tests.test_model import run, served

CLAIM = c.Claim(tenant="", limit=10, lease_ms=60_000)
PATIENCE_S = 60.0
# What is asked of a connection that was just made.
FIRST = ("pg_backend_pid", "server_version_num", "pg_class", ".version", "SET ")


@pytest.fixture
def engine(queue):
    """An engine that has a number of its own, as one who waits has."""
    queue.add("first")
    queue.next(["first"]).done()
    return queue.line.committer.engine


@pytest.fixture
def messages(monkeypatch):
    """What is asked of the server, and committed, by the thread that seeks."""
    said: list[str] = []
    ask, commit = PsycopgLink.ask, OwnLink.commit

    def spy_ask(self, sql, values=()):
        # Not what is asked on a new connection.
        if by_committer() and not any(word in sql for word in FIRST):
            said.append("seek" if ".seek(" in sql else sql.split()[0])
        return ask(self, sql, values)

    def spy_commit(self):
        if by_committer():
            said.append("COMMIT")
        commit(self)

    monkeypatch.setattr(PsycopgLink, "ask", spy_ask)
    monkeypatch.setattr(OwnLink, "commit", spy_commit)
    return said


def seek(engine, command=CLAIM):
    """What one who seeks gets: task and data of each."""
    return [(one.job.task, one.data) for one in sought(engine, command)]


def sought(engine, command):
    """What one who seeks gets."""
    seeker = engine.seeker(command)
    assert seeker is not None
    (found,) = engine.execute_by([command], seeker).replies
    return found


def test_what_is_there_comes_by_two_messages(queue, engine, messages):
    queue.add_many([("work", n) for n in range(3)])
    messages.clear()

    assert seek(engine) == [("work", "0"), ("work", "1"), ("work", "2")]
    assert messages == ["seek", "COMMIT"]
    assert queue.counts()["work"] == {"RUNNING": 3}


def test_where_there_is_nothing_no_more_is_asked(queue, engine, messages):
    queue.add("other")
    messages.clear()

    assert seek(engine, c.Claim(tenant="", tasks=("work",), lease_ms=1_000)) == []
    assert messages == ["seek", "COMMIT"]


@pytest.mark.parametrize(
    ("lease_ms", "limit", "expected"),
    [(None, 1, ["0"]), (60_000, 2, ["0", "1"]), (60_000, 9, ["0", "1", "2"])],
)
def test_who_has_them_and_for_how_long(queue, engine, lease_ms, limit, expected):
    queue.add_many([("work", n) for n in range(3)])
    command = c.Claim(tenant="", limit=limit, lease_ms=lease_ms)
    found = sought(engine, command)

    assert [one.data for one in found] == expected
    for one in found:
        kept = queue.get(one.job.id)
        assert kept == one.job
        assert one.job.lease_until == (one.job.started_at + lease_ms if lease_ms else 0)
        assert (one.job.owner, one.job.claim) == (engine.ids.number, 1)


def test_large_data_and_bytes_come_along(queue, engine):
    large, raw = "x" * 5_000, b"\0\1\2"
    queue.add("work", large)
    queue.add("work", raw)

    assert seek(engine) == [("work", f'"{large}"'), ("work", raw)]


def test_what_is_not_plain_goes_the_long_way(queue, engine):
    """Limits hold, what is expired is not started, what is paused or due is seen first."""
    queue.limit("d", concurrency=1)
    for n in range(3):
        queue.add("work", n, domain="d")
    assert seek(engine) == [("work", "0")]
    assert seek(engine) == []
    queue.add("other")
    queue.pause("other")
    assert seek(engine) == []
    queue.resume("other")
    queue.add("third", delay=0.001)
    threading.Event().wait(0.01)
    assert sorted(seek(engine)) == [("other", "{}"), ("third", "{}")]


def test_what_is_paused_is_only_looked_at(queue, engine, messages):
    queue.add("work")
    queue.pause("work")
    messages.clear()

    assert seek(engine) == []
    assert messages == ["seek", "COMMIT"]


def test_of_several_tasks_the_first_by_priority(queue, engine):
    queue.add("a", 1, priority=100)
    queue.add("b", 2, priority=900)

    assert seek(engine, c.Claim(tenant="", limit=1, lease_ms=1_000)) == [("b", "2")]
    assert seek(engine, c.Claim(tenant="", limit=1, lease_ms=1_000, tasks=("b",))) == []
    assert seek(engine, c.Claim(tenant="", limit=1, lease_ms=1_000, tasks=("a",))) == [("a", "1")]


def test_a_store_that_has_moved_gives_nothing(queue, engine):
    queue.add("work")
    notice = msgspec.json.encode(Notice(standing=Standing.MOVED, token="t", other="memory://"))
    engine.store.run(lambda txn: txn.put_notice(notice))
    with pytest.raises(Moved):
        seek(engine)
    engine.store.run(lambda txn: txn.put_notice(None))

    assert seek(engine) == [("work", "{}")]


def test_who_waits_is_woken_and_has_it_by_two_messages(queue, postgres_url, messages):
    """In another process's stead: another queue, whose claim waits."""
    got: list[int] = []

    def wait() -> None:
        with holdfast.connect(postgres_url, follow=False) as other:
            other.add("mine")
            job = other.next(["mine"])
            assert job is not None
            job.done()
            waiting.set()
            job = other.next(["work"], wait=PATIENCE_S)
            assert job is not None
            got.append(job.data)
            woken.extend(messages)

    waiting = threading.Event()
    woken: list[str] = []
    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(PATIENCE_S)
    until_s = monotonic_s() + PATIENCE_S
    # Its first claim, which finds nothing, is over.
    while messages.count("seek") == 0 and monotonic_s() < until_s:
        messages.clear()
        queue.add("unwanted")
        threading.Event().wait(0.2)
    messages.clear()
    queue.add("work", 7)
    thread.join(PATIENCE_S)

    assert got == [7]
    assert "seek" in woken
    assert "WITH" not in woken


def test_random_histories_are_what_they_are_by_the_long_way(postgres_schemas, seekers):
    run(served(postgres_schemas), 10, piece=7)
    assert any(seekers)
    assert not all(seekers)


def test_what_is_left_to_do_is_seen_by_who_only_looks(postgres_schemas, seekers, small_bites, monkeypatch):
    """He may have no locks yet: then all is begun anew, as a batch that has them."""
    moments, anew = PostgresTxn.moments, []

    def spy(self):
        anew.append(self.only_looked)
        return moments(self)

    monkeypatch.setattr(PostgresTxn, "moments", spy)
    run(served(postgres_schemas), 10, piece=8)
    assert any(anew)


def test_a_permit_is_not_lost_to_a_job_that_upkeep_sees_running(queue, engine, postgres_url, monkeypatch):
    """What fires meanwhile counts the domain anew, and must not find there what is only in hand."""
    queue.add("work", 1, domain="d9")
    with holdfast.connect(postgres_url, follow=False) as other:
        # Of neither does the one who seeks know.
        other.limit("d*", concurrency=1)
        other.schedule("often", "work", every=1, domain="d9")
    threading.Event().wait(1.1)
    monkeypatch.setattr(engine, "next_upkeep_ms", 1 << 60)

    assert seek(engine) == [("work", "1")]
    queue.unschedule("often")


def test_nor_to_a_chore_that_is_left(queue, engine, postgres_url, small_bites):
    queue.limit("d*", concurrency=5)
    for n in range(6):
        queue.add("work", n, domain=f"d{n}")
    running = queue.claim(["work"], limit=6)
    queue.add("work", 9, domain="d5")
    with holdfast.connect(postgres_url, follow=False) as other:
        other.limit("d*", concurrency=1)

    assert seek(engine) == []
    for job in running:
        job.done()
    assert seek(engine) == [("work", "9")]


def test_one_who_waits_goes_on_waiting_where_a_store_stands_still(queue, engine):
    """It is only looked at, and so nobody is held up."""
    notice = msgspec.json.encode(Notice(standing=Standing.STOPPED, token="t", other="memory://"))
    engine.store.run(lambda txn: txn.put_notice(notice))
    assert seek(engine) == []
    engine.store.run(lambda txn: txn.put_notice(None))


def test_many_tasks_and_what_others_have(queue, engine, postgres_url, messages, connection):
    """Where not all is seen at once he goes the long way; where others have it all he is told so at once."""
    jobs = queue.add_many([("work", n) for n in range(2)])
    schema = postgres_url.rpartition("schema=")[2]
    connection.execute(f'SELECT id FROM "{schema}".jobs FOR UPDATE')
    messages.clear()
    assert seek(engine) == []
    assert messages == ["seek", "COMMIT"]
    connection.rollback()
    queue.add_many([(f"a{n:02}", n) for n in range(20)])
    messages.clear()

    assert len(sought(engine, c.Claim(tenant="", tasks=("work",), limit=9, lease_ms=1_000))) == len(jobs)
    assert messages[0] == "seek"
    assert messages.count("COMMIT") == 1


def test_a_lane_that_was_emptied_by_one_who_sought_rests_when_the_counts_are_folded(
    queue, engine, schema, postgres
):
    """Until then it is marked as having jobs, and the next add finds it so."""

    def ready():
        rows = connection.execute(f'SELECT task FROM "{schema}".lanes WHERE ready ORDER BY task').fetchall()
        tenants = connection.execute(f'SELECT tenant FROM "{schema}".tenants WHERE ready').fetchall()
        return [task for (task,) in rows], [tenant for (tenant,) in tenants]

    with postgres.connect() as connection:
        queue.add("work")
        queue.add("held", delay="1h")
        assert seek(engine) == [("work", "{}")]
        assert ready() == (["work"], [""])
        queue.add("work")
        assert seek(engine) == [("work", "{}")]
        engine.store._appended = FOLD_ROWS
        queue.counts()
        assert ready() == ([], [])
        queue.add("work")
        assert ready() == (["work"], [""])
        assert seek(engine) == [("work", "{}")]


def test_no_more_than_a_few_lanes_are_left_so(queue, engine, schema, postgres):
    for n in range(7):
        queue.add(f"work-{n}")
        assert seek(engine) == [(f"work-{n}", "{}")]
    with postgres.connect() as connection:
        (left,) = connection.execute(f'SELECT count(*) FROM "{schema}".lanes WHERE ready').fetchone()

    assert left <= 4
    assert engine.read(lambda txn: txn.waiting(WaitingQuery(limit=1))) == []
    queue.add("work-9")
    assert [one.task for one in engine.read(lambda txn: txn.waiting(WaitingQuery(limit=1)))] == ["work-9"]
