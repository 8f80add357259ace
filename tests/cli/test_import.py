"""`holdfast import`: jobs that the real Celery, RQ, huey, … have written, taken over once each."""

import importlib
import json
import os
import sys
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dramatiq
import procrastinate
import pytest
import redis
import rq
from celery import Celery
from dramatiq.brokers.redis import RedisBroker
from huey import PriorityRedisHuey, RedisHuey, SqliteHuey
from kombu import pools

LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=5)
DAY = date(2026, 10, 1)
APP = "tests.cli.import_app:queue"


@pytest.fixture
def app(tmp_path, monkeypatch):
    """The program that takes over, on an empty store."""
    monkeypatch.setenv("IMPORT_STORE", str(tmp_path / "jobs.db"))
    monkeypatch.delitem(sys.modules, "tests.cli.import_app", raising=False)
    app = importlib.import_module("tests.cli.import_app")
    yield app
    app.queue.close()


@pytest.fixture
def url(redis_server, worker_id):
    """An empty database of Redis, which no other process of tests uses."""
    number = 8 + int(worker_id.removeprefix("gw") if worker_id != "master" else 0) % 8
    with redis.Redis(port=redis_server.port, db=number) as client:
        client.flushdb()
        yield f"redis://127.0.0.1:{redis_server.port}/{number}"


class ByCelery:
    """Jobs of Celery, in two of its queues; the arguments of one are pickled."""

    system = "celery"

    def __init__(self, url, tmp_path):
        self.url = url
        self._app = Celery("shop", broker=url)

    def send(self, to, **options):
        """A job of the task that has its name."""
        self._app.send_task("shop.tasks.send", (to,), {"copies": 2}, **options)

    def add_all(self):
        """Two that wait, one that is scheduled, one that has expired, and one that others follow."""
        self.send("a", queue="mail", priority=3)
        self._app.send_task("shop.make_report", (DAY,), serializer="pickle")
        self.send("b", eta=LATER)
        self.send("late", expires=datetime.now(UTC) - timedelta(hours=1))
        self._app.send_task("shop.tasks.send", ("c",), link=self._app.signature("shop.tasks.send", ("d",)))

    left = {"it has expired", "other jobs follow it: callbacks, a chain or a chord"}

    def close(self):
        """Disconnect, so that the next test declares its queues again."""
        self._app.close()
        pools.reset()


class ByRq:
    """Jobs of RQ, which pickles all."""

    system = "rq"

    def __init__(self, url, tmp_path):
        self.url = url
        self._client = redis.Redis.from_url(url)
        self._queue = rq.Queue("mail", connection=self._client)

    def send(self, to):
        """A job of the function that has its name."""
        return self._queue.enqueue("shop.tasks.send", to, copies=2)

    def add_all(self):
        """Two that wait, one that is scheduled, one that waits for another, and that other one."""
        self.send("a")
        rq.Queue(connection=self._client).enqueue("shop.make_report", DAY)
        self._queue.enqueue_at(LATER, "shop.tasks.send", "b", copies=2)
        first = self.send("c")
        self._queue.enqueue("shop.tasks.send", "d", depends_on=first)

    left = {"it waits for another job", "other jobs follow it: callbacks, a chain or a chord"}

    def close(self):
        """Disconnect."""
        self._client.close()


class ByHuey:
    """Jobs of huey."""

    system = "huey"

    def __init__(self, url, tmp_path):
        self.url = url
        self._huey = self.make(url, tmp_path)
        self._send = self._huey.task(name="send")(lambda to, copies: None)
        self._report = self._huey.task(name="make_report")(lambda day: None)

    def make(self, url, tmp_path):
        """The one that most people have, with compression."""
        return RedisHuey("my.shop", url=url, compression=True)

    def send(self, to):
        """A job of the task that has its name."""
        self._send(to, copies=2)

    def add_all(self):
        """Two that wait, one that is scheduled, and one that another follows."""
        self.send("a")
        self._report(DAY)
        self._send.schedule(("b",), {"copies": 2}, eta=LATER.replace(tzinfo=None))
        self._huey.enqueue(self._send.s("c", copies=2).then(self._send, "d", copies=2))

    left = {"other jobs follow it: callbacks, a chain or a chord"}

    def close(self):
        """Disconnect."""
        self._huey.storage.close()


class ByPriorityHuey(ByHuey):
    """With priorities."""

    def make(self, url, tmp_path):
        """Another kind of key."""
        return PriorityRedisHuey("my.shop", url=url)


class BySqliteHuey(ByHuey):
    """In a file."""

    def make(self, url, tmp_path):
        """Its address is a path."""
        self.url = str(tmp_path / "huey.db")
        return SqliteHuey("my.shop", filename=self.url)


class ByDramatiq:
    """Jobs of dramatiq, in two of its queues."""

    system = "dramatiq"

    def __init__(self, url, tmp_path):
        self.url = url
        self._broker = RedisBroker(url=url)
        actor: Any = dramatiq.actor
        self._send = actor(lambda to, copies: None, actor_name="send", broker=self._broker)
        options = {"actor_name": "shop.make_report", "queue_name": "slow"}
        self._report = actor(lambda day: None, broker=self._broker, **options)

    def send(self, to):
        """A job of the actor that has its name."""
        self._send.send(to, copies=2)

    def add_all(self):
        """Two that wait, one that is scheduled, and one that another follows."""
        self.send("a")
        self._report.send(DAY.isoformat())
        self._send.send_with_options(args=("b", 2), delay=LATER - datetime.now(UTC))
        dramatiq.pipeline([self._send.message("c", 2), self._send.message("d", 2)], broker=self._broker).run()

    left = {"other jobs follow it: callbacks, a chain or a chord"}

    def close(self):
        """Disconnect."""
        self._broker.close()
        self._broker.client.close()


class ByProcrastinate:
    """Jobs of Procrastinate, in a schema of its own."""

    system = "procrastinate"

    def __init__(self, url, tmp_path):
        self.url = url
        self._app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
        self._app.open()
        self._app.schema_manager.apply_schema()

    def send(self, to):
        """A job of the task that has its name."""
        self._app.configure_task("shop.send", queue="mail").defer(to=to, copies=2)

    def add_all(self):
        """Two that wait, and one that is scheduled."""
        self.send("a")
        self._app.configure_task("shop.make_report").defer(day=DAY.isoformat())
        self._app.configure_task("shop.send", schedule_at=LATER).defer(to="b", copies=2)
        self._app.configure_task("shop.unknown").defer()

    left = {"the queue has no such task: give --task shop.unknown=NAME"}

    def close(self):
        """Disconnect."""
        self._app.close()


SYSTEMS = [ByCelery, ByRq, ByHuey, ByPriorityHuey, BySqliteHuey, ByDramatiq, ByProcrastinate]


@pytest.fixture(params=SYSTEMS, ids=lambda kind: kind.__name__)
def old(request, tmp_path, redis_server, postgres):
    """The other system."""
    is_in_postgres = request.param is ByProcrastinate
    old = request.param(request.getfixturevalue("own_schema" if is_in_postgres else "url"), tmp_path)
    yield old
    old.close()


@pytest.fixture
def own_schema(postgres):
    """The address of an empty schema of PostgreSQL, as libpq has it."""
    name = f"old_{os.getpid()}"
    with postgres.connect() as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        where = f"host={postgres.folder}&port={postgres.port}&user=postgres"
        yield f"postgresql:///{postgres.database}?{where}&options=-csearch_path%3D{name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE")


def run_import(shell, old, *words, code=0):
    """The record that `holdfast import --json` prints."""
    task = f"{__name__}.make_report" if old.system == "huey" else "shop.make_report"
    done = shell.run("--json", "import", old.system, old.url, APP, "--task", f"{task}=reports/daily", *words)
    assert done.code == code, done
    return json.loads(done.out)


def counts_of(record):
    """How many wait and are scheduled, over all tasks; and the reasons of those that stay."""
    tasks = record["tasks"].values()
    waiting, scheduled = sum(one["waiting"] for one in tasks), sum(one["scheduled"] for one in tasks)
    return waiting, scheduled, {one["reason"] for one in record["left"]}


def test_jobs_are_taken_over_once_each(shell, old, app):
    """A dry run shows them, an import takes them, and then there are none but those that cannot be taken."""
    old.add_all()
    expected = (2, 1, old.left)
    for _ in range(2):
        assert counts_of(run_import(shell, old, "--dry-run", code=1)) == expected
    assert app.queue.jobs() == []

    assert counts_of(run_import(shell, old, "--keep", code=1)) == expected
    assert counts_of(run_import(shell, old, code=1)) == expected
    assert counts_of(run_import(shell, old, code=1)) == (0, 0, old.left)

    assert len(app.queue.jobs()) == 3
    (later,) = [job for job in app.queue.jobs() if job.run_at > job.created_at + 60_000]
    assert later.run_at == pytest.approx(LATER.timestamp() * 1000, abs=60_000)
    for job in app.queue.claim(limit=9):
        job.run()
    assert sorted(app.ran) == [("report", DAY), ("send", "a", 2)]


def test_a_job_that_was_added_and_not_removed_is_removed_by_the_next_import(shell, old, app):
    """Also where it has run meanwhile: it is not added again."""
    old.send("a")
    assert counts_of(run_import(shell, old, "--keep")) == (1, 0, set())
    app.queue.next().run()

    assert counts_of(run_import(shell, old)) == (1, 0, set())
    assert counts_of(run_import(shell, old)) == (0, 0, set())
    assert app.queue.next() is None
    assert app.ran == [("send", "a", 2)]


def test_a_job_that_a_worker_of_celery_has_is_taken_only_if_asked(shell, url, tmp_path, app):
    """When that worker has ended: what it did not acknowledge is there."""
    old = ByCelery(url, tmp_path)
    old.send("a")
    with old._app.connection() as connection:
        held = connection.SimpleQueue("celery")
        held.get(timeout=10)
        assert counts_of(run_import(shell, old)) == (0, 0, set())
        assert counts_of(run_import(shell, old, "--held")) == (1, 0, set())
        assert counts_of(run_import(shell, old, "--held")) == (0, 0, set())
        held.close()
    old.close()


def test_a_job_that_another_worker_takes_meanwhile_is_left_to_it(shell, url, tmp_path, app, monkeypatch):
    """The one that was added is cancelled."""
    old = ByRq(url, tmp_path)
    old.send("a")
    readers = importlib.import_module("holdfast.cli.foreign")
    monkeypatch.setattr(
        readers, "_rq_removed", lambda client, place, job: bool(client.lpop(place.key)) and False
    )

    record = run_import(shell, old, code=1)

    assert counts_of(record) == (0, 0, {"a worker of the other system has it now"})
    assert app.queue.next() is None
    old.close()


def test_what_cannot_be_taken_says_why_to_people(shell, url, tmp_path, app):
    """Tasks that are unknown, arguments that do not fit, data that cannot be read."""
    old = ByRq(url, tmp_path)
    for _ in range(2):
        rq.Queue("other", connection=old._client).enqueue("shop.unknown")
    old._queue.enqueue("shop.send", copies=7)
    broken = old.send("secret")
    old._client.hset(broken.key, "data", b"\x80nonsense")

    said = shell.run("import", "rq", old.url, APP, "--dry-run")
    assert said.code == 1
    assert said.lines[0] == "0 jobs would be taken over; 4 stay where they are:"
    assert "2 × shop.unknown: the queue has no such task: give --task shop.unknown=NAME" in said.lines
    assert any(line.startswith("1 × shop.send: argument") for line in said.lines)
    assert "1 × unknown: it cannot be read: DeserializationError" in said.lines
    assert shell.run("import", "rq", old.url, APP, "--queue", "empty").lines == ["0 jobs were taken over"]
    for words, complaint in (
        (("--task", "old"), "OLD=NEW"),
        (("--task", "old=new"), "task is 'new', and must be one of reports/daily, send"),
    ):
        refused = shell.run("import", "rq", old.url, APP, *words)
        assert (refused.code, complaint in refused.err) == (2, True), refused
    old.close()


@pytest.mark.parametrize(
    ("system", "address"),
    [
        ("rq", "redis://me:secret@127.0.0.1:1/0"),
        ("huey", "there/is/no.db"),
        ("procrastinate", "postgresql://me:secret@127.0.0.1:1/shop"),
    ],
)
def test_an_address_that_leads_nowhere_is_told(shell, app, system, address):
    """Without its password; and no file is made there."""
    said = shell.run("import", system, address, APP)

    assert said.code == 5
    assert address.replace(":secret", "") in said.err
