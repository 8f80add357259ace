"""A Django project: the setting, adds in its transactions, its connections around each run, `manage.py`."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, transaction
from django.db.transaction import TransactionManagementError

from holdfast.contrib.django.project import make_queue
from tests.projects import django_connection, run_in
from tests.queue_suite.tools import take
from tests.stores import here_and_in_proof

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples" / "django_shop"


class Undo(Exception):
    """Rolls back whatever it is raised in."""


@contextmanager
def undone():
    """A transaction that is rolled back, or a savepoint in one."""
    with suppress(Undo), transaction.atomic(using="ours"):
        yield
        raise Undo


# ── the setting ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("jobs.db", r"HOLDFAST is 'jobs.db', and must be a dict"),
        ({"databse": "ours"}, "'databse', and must be one of database, url, schema"),
        ({"database": "other"}, "database is 'other', and must be one of DATABASES: .*ours"),
        ({"url": "redis://127.0.0.1", "schema": "a"}, "key is 'schema', and must be absent beside url"),
        ({"url": "ftp://127.0.0.1"}, r"HOLDFAST: store is .*redis://…"),
        ({"database": "ours", "schema": "a"}, "absent: database ours is not of PostgreSQL"),
        ({"database": "ours", "retention": "soon"}, "HOLDFAST: retention is 'soon'"),
    ],
)
def test_a_setting_that_is_wrong_is_named(tmp_path, setting, complaint):
    """With what was found and what is needed, in an error that Django shows without a traceback."""
    with (
        django_connection(ENGINE="django.db.backends.sqlite3", NAME=str(tmp_path / "a.db")),
        pytest.raises(ImproperlyConfigured, match=complaint),
    ):
        make_queue(setting)


def test_a_database_that_cannot_have_a_store_is_refused():
    """Its jobs may be in another store."""
    with (
        django_connection(ENGINE="django.db.backends.dummy", NAME="a"),
        pytest.raises(ImproperlyConfigured, match=r"dummy', and must be .*PostgreSQL or SQLite.*url"),
    ):
        make_queue({"database": "ours"})


def test_the_address_of_a_database_has_all_that_leads_there():
    """Characters that mean something in addresses, options of libpq, and none of Django's own."""
    database = {"NAME": "a b", "USER": "o'me@x", "PASSWORD": "p/w?#&%", "HOST": "::1", "PORT": 5433}
    options = {"sslmode": "require", "pool": True, "isolation_level": 2}
    with django_connection(ENGINE="django.db.backends.postgresql", OPTIONS=options, **database):
        queue = make_queue({"database": "ours", "schema": "jobs"})
    from holdfast.store.postgres.url import parse

    address = parse(queue.url)
    found = {
        key: address.parameters[key] for key in ("dbname", "user", "password", "host", "port", "sslmode")
    }
    assert found == {
        "dbname": "a b",
        "user": "o'me@x",
        "password": "p/w?#&%",
        "host": "::1",
        "port": "5433",
        "sslmode": "require",
    }
    assert (address.schema, address.pool) == ("jobs", 10)
    assert "p/w" not in repr(queue)
    assert "p%2Fw" not in repr(queue)


# ── transactions ─────────────────────────────────────────────────────────────────────────────────


@contextmanager
def on_sqlite(request):
    """A project on a file."""
    path = request.getfixturevalue("tmp_path") / "app.db"
    with django_connection(ENGINE="django.db.backends.sqlite3", NAME=str(path)) as connection:
        yield connection, {}


@contextmanager
def on_postgres(request):
    """A project on a server."""
    server = request.getfixturevalue("postgres")
    where = {"HOST": str(server.folder), "PORT": str(server.port), "USER": "postgres"}
    with (
        request.getfixturevalue("postgres_schemas").one() as schema,
        django_connection(
            ENGINE="django.db.backends.postgresql", NAME=server.database, **where
        ) as connection,
    ):
        yield connection, {"schema": schema}


@pytest.fixture(params=[on_sqlite, on_postgres], ids=["sqlite", "postgres"])
def project(request):
    """Django's connection, and the queue in its database."""
    with (
        request.param(request) as (connection, setting),
        make_queue({"database": "ours", **setting}) as queue,
    ):
        queue.counts()
        yield connection, queue


def test_jobs_come_and_go_with_djangos_transaction(project):
    """Alone or many, also with a savepoint that is rolled back; outside of a transaction at once."""
    connection, queue = project

    @queue.task
    def ship(order: int) -> None: ...

    with undone():
        ship.add(1)
    with transaction.atomic(using="ours"):
        run_in(connection, "CREATE TABLE orders (id int)")
        ship.add(2)
        ship.add_many([(3,), (4,)])
        with undone():
            queue.add("ship", {"order": 5}, unique="five")
        assert queue.jobs() == []
    ship.add(6)

    assert [queue.data(job)["order"] for job in queue.jobs()] == [2, 3, 4, 6]


def test_nothing_is_added_in_a_transaction_that_must_be_rolled_back(project):
    """As Django refuses its own statements after an error that an inner block has let through."""
    connection, queue = project
    with transaction.atomic(using="ours"):
        with pytest.raises(DatabaseError), transaction.atomic(using="ours", savepoint=False):
            run_in(connection, "SELECT FROM nothing")
        with pytest.raises(TransactionManagementError):
            queue.add("ship")

    assert queue.jobs() == []


def test_a_queue_in_another_store_adds_at_once(project):
    """What Django rolls back is then not undone."""
    with make_queue({"url": "memory://"}) as queue:
        with undone():
            queue.add("ship")

        assert len(queue.jobs()) == 1


# ── connections around each run ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_cut_connection_fails_one_job_and_not_the_next(request, is_coroutine):
    """Django keeps a connection of a thread until something closes it: after a restart of the server, say."""

    def ask(sql: str) -> None:
        run_in(connections["ours"], sql)

    def close() -> None:
        connections["ours"].close()

    async def ask_aside(sql: str) -> None:
        await sync_to_async(ask)(sql)

    with on_postgres(request) as (connection, setting):
        # Connections are kept for ever.
        connections.settings["ours"]["CONN_MAX_AGE"] = None
        connection.settings_dict["CONN_MAX_AGE"] = None
        with make_queue({"database": "ours", **setting}) as queue:
            task = queue.task("ask", attempts=1)(ask_aside if is_coroutine else ask)
            ends = []
            for sql in ("SELECT 1", "SELECT pg_terminate_backend(pg_backend_pid())", "SELECT 1", "SELECT 1"):
                task.add(sql)
                ends.append(str(take(queue).run().state))
            async_to_sync(sync_to_async(close))()

    assert ends == ["FINISHED", "FAILED", "FINISHED", "FINISHED"]


# ── manage.py ────────────────────────────────────────────────────────────────────────────────────


class Shop:
    """The example, with its files in a folder of the test's."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("HOLDFAST_", "PG"))}
        # What Django 6.1 has in their place is unknown to Django 5.2.
        warnings = "error,ignore:The EMAIL_,ignore:savepoint() is deprecated"
        self._environment = kept | {"SHOP_FOLDER": str(folder), "PYTHONWARNINGS": warnings} | environment

    def run(self, *words: str) -> str:
        """Run `manage.py` from another folder; returns what it printed."""
        return self._run(str(SHOP / "manage.py"), *words)

    def run_each(self, *commands: tuple[str, ...]) -> str:
        """Run several commands of `manage.py` one after the other, in one process."""
        return self._run("-c", EACH, str(SHOP / "manage.py"), json.dumps(commands))

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


EACH = """
import json, runpy, sys
file, commands = sys.argv[1:]
sys.path.insert(0, file.rpartition("/")[0])
for words in json.loads(commands):
    sys.argv = [file, *words]
    try:
        runpy.run_path(file, run_name="__main__")
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""
ORDER = """
from django.contrib.auth.models import User
from django.test import Client

client = Client()
client.post("/orders/", {"email": "a@example.com", "item": "tea"})
client.force_login(User.objects.create_superuser("ada"))
print(client.get("/jobs/").content.decode())
"""


def test_a_project_runs_its_jobs(tmp_path, postgres, postgres_url):
    """From a request to a receipt, by the commands of `manage.py` alone."""
    name = f"shop_{os.getpid()}"
    with postgres.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            server = {"PGDATABASE": name, "PGHOST": str(postgres.folder), "PGPORT": str(postgres.port)}
            shop = Shop(tmp_path, PGUSER="postgres", **server)
            asked = ("holdfast", "counts", "--settings=shop.settings")
            said = shop.run_each(("migrate",), ("shell", "-c", ORDER), asked)
            assert said.count("send_receipt") >= 2, said  # on the dashboard, and as a count
            assert "1 job" in shop.run("holdfast", "worker", "--until-empty", "--settings", "shop.settings")
            assert "FINISHED" in shop.run("holdfast", "--json", "jobs", "--archived")
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    (receipt,) = (tmp_path / "receipts").iterdir()
    assert "Thank you for ordering tea." in receipt.read_text()


@pytest.mark.parametrize("database", here_and_in_proof(["sqlite"], ["postgres"]))
def test_djangos_tests_have_the_queue_in_their_database(tmp_path, request, database):
    """Those of the example, harder ones (`inside_tests`), and those of the backend (`chores`)."""
    server = {}
    if database == "postgres":
        address = request.getfixturevalue("postgres")
        server = {"PGDATABASE": address.database, "PGHOST": str(address.folder), "PGPORT": str(address.port)}
    shop = Shop(tmp_path, PGUSER="postgres", PYTHONPATH=str(ROOT), **server)

    ours = ("tests.contrib.inside_tests", "tests.contrib.chores.checks")
    said = shop.run("test", "--noinput", "--settings=tests.contrib.chores.settings", "orders", *ours)

    assert "Ran 21 tests" in said
    assert [path.name for path in tmp_path.iterdir()] == []


def test_nothing_is_opened_before_it_is_needed(tmp_path):
    """By checks, migrations, imports and help: the tables come with the first use."""
    shop = Shop(tmp_path)
    shop.run_each(("check",), ("migrate",), ("makemigrations", "--check"), ("help", "holdfast"))

    with sqlite3.connect(tmp_path / "shop.db") as connection:
        names = "SELECT name FROM sqlite_schema WHERE name LIKE 'holdfast%'"
        assert connection.execute(names).fetchall() == []
        shop.run("holdfast", "sync")
        assert connection.execute(names).fetchall() != []
    connection.close()


def test_the_dashboard_without_its_extra_names_it():
    """Django alone is enough for all else."""
    program = "import sys; sys.modules['starlette'] = None; import holdfast.contrib.django.dashboard"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stderr.endswith("the dashboard needs starlette: pip install 'holdfast-queue[django]'\n")
