"""Addresses, what is wrong with some, versions of the schema; and that no password is ever shown."""

import os
import socket
import subprocess
import sys

import pytest

import holdfast
from holdfast.core.errors import BadInput, SchemaMismatch, StoreCorrupt, StoreError, Unavailable
from holdfast.queue.connect import shown_url
from holdfast.store.contract import NOTHING
from holdfast.store.postgres.statements import migrations
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.url import parse
from holdfast.testing.stores.making import a_job, add
from tests.cli.shell import Shell
from tests.store.helpers import SRC, all_ids

SECRET = "s3cr3t-word"


def told(url, kind=StoreError):
    """What the first verb says about an address; without the password."""
    store = PostgresStore(url, patience_s=0.2)
    with pytest.raises(kind) as caught:
        add(store, a_job(1))
    store.close()
    assert SECRET not in f"{caught.value} {caught.value!r} {store!r} {caught.value.__cause__!r}"
    return str(caught.value)


def holdfast_cli(*words):
    """Run a command; its code and all that it printed."""
    said = Shell(SRC).run(*words)
    return said.code, said.out + said.err


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("schema=Upper", "schema"),
        ("schema=a-b", "schema"),
        ("schema=", "schema"),
        ("schema=" + "x" * 41, "schema"),
        ("notify=maybe", "notify"),
        ("prepare=1", "prepare"),
        ("pool=1", "pool"),
        ("pool=many", "pool"),
        ("nonsense=1", "store"),
    ],
)
def test_a_bad_address_is_refused_at_once(query, name):
    """By the name of what is wrong."""
    with pytest.raises(BadInput, match=name) as caught:
        holdfast.connect(f"postgresql://u:{SECRET}@localhost/db?{query}")
    assert SECRET not in str(caught.value)


def test_a_password_that_breaks_the_address_is_not_shown():
    """What is left of it may stand where a port or a host should."""
    for url in (f"postgresql://u:p@host:{SECRET}/db", f"postgresql://u:{SECRET}@[::1/db"):
        with pytest.raises(BadInput, match="must be postgresql://") as caught:
            holdfast.connect(url)
        assert SECRET not in str(caught.value)


def test_a_connection_ends_soon_after_its_server_has_disappeared(postgres, schema, queue):
    """Unless the address says otherwise."""
    store = PostgresStore(postgres.tcp_url(schema) + "&keepalives_count=7")
    with (
        store.pool.connection() as connection,
        socket.socket(fileno=os.dup(connection.pgconn.socket)) as line,
    ):
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        limits = [line.getsockopt(socket.IPPROTO_TCP, name) for name in names]
    store.close()

    assert limits == [15, 5, 7, 30_000]


def test_what_is_shown_of_an_address_has_no_password():
    """Nor has what is shown of a store, or of its address taken apart."""
    url = f"postgresql://user:{SECRET}@db.example:5433/app?schema=jobs&password={SECRET}"

    assert SECRET not in shown_url(url) + repr(parse(url)) + repr(PostgresStore(url))
    assert parse(url).shown == "postgresql://user@db.example:5433/app?schema=jobs"


def test_a_queue_without_tasks_is_refused_without_its_password():
    """`holdfast.work` names the queue that it cannot work for."""
    queue = holdfast.connect(f"postgresql://user:{SECRET}@localhost/app")
    with pytest.raises(BadInput, match="user@localhost") as caught:
        holdfast.work(queue)
    assert SECRET not in str(caught.value)


def test_nobody_there_is_told(postgres):
    """After the patience of the store: it may be about to start."""
    text = told(f"postgresql://u:{SECRET}@127.0.0.1:1/db", Unavailable)

    assert "cannot be reached" in text
    assert "refused" in text


def test_a_wrong_password_a_wrong_user_and_a_wrong_database_are_told_apart(server):
    """With what to do."""
    with server.connect() as connection:
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        connection.execute("CREATE ROLE guest LOGIN")
    hba = server.data / "pg_hba.conf"
    hba.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + hba.read_text())
    server.stop()
    server.start()
    at = f"127.0.0.1:{server.port}"

    assert "user and password" in told(f"postgresql://guarded:{SECRET}@{at}/postgres")
    assert "create the database" in told(f"postgresql://postgres:{SECRET}@{at}/missing")
    assert "needs the right" in told(f"postgresql://guest:{SECRET}@{at}/postgres")


def test_a_database_that_cannot_be_written_is_told(postgres, store, postgres_url):
    """A replica, or one that is set so."""
    add(store, a_job(1))
    text = told(postgres_url + "&options=-c%20default_transaction_read_only%3Don")

    assert "cannot be written" in text
    assert all_ids(store) == [1]


def test_tables_of_another_program_are_left_alone(postgres):
    """A schema that holds them is no place for a store."""
    with postgres.connect() as connection:
        connection.execute("CREATE SCHEMA taken")
        connection.execute("CREATE TABLE taken.orders (id int)")

    assert "1 table of another program" in told(postgres.url("taken"))


@pytest.mark.parametrize(("version", "way"), [(0, ""), (99, "newer Holdfast")])
def test_another_version_of_the_schema_is_refused(postgres, store, postgres_url, schema, version, way):
    """With what to do; nothing in it is touched."""
    add(store, a_job(1))
    with postgres.connect() as connection:
        connection.execute(f"UPDATE {schema}.version SET version = %s, oldest = %s", (version, version))
        try:
            if version:
                assert way in told(postgres_url, SchemaMismatch)
            else:
                assert "is damaged" in told(postgres_url, StoreCorrupt)
        finally:
            connection.execute(f"UPDATE {schema}.version SET version = 1, oldest = 1")
    assert all_ids(store) == [1]


def test_many_who_come_first_make_one_schema(postgres):
    """All at once, in an empty database."""
    from holdfast.testing.stores.making import race

    stores = [PostgresStore(postgres.url("crowded")) for _ in range(8)]
    race([lambda n=n: add(stores[n], a_job(n + 1)) for n in range(8)])  # type: ignore[misc]

    assert all_ids(stores[0]) == list(range(1, 9))
    for store in stores:
        store.close()


def test_the_schema_can_be_made_by_hand(postgres):
    """By the SQL that `migrate --sql` shows; then there is nothing to do for anybody."""
    url = postgres.url("by_hand")
    code, sql = holdfast_cli("migrate", "--sql", "--store", url)
    assert code == 0
    with postgres.connect() as connection:
        connection.execute(sql)

    assert holdfast_cli("migrate", "--store", url) == (0, "it is up to date\n")
    with holdfast.connect(url) as queue:
        queue.add("work")
        assert queue.connection.engine.store.report().complaints == []


def test_migrate_makes_the_schema_and_is_for_servers_only(postgres, tmp_path):
    """A file is brought up to date when it is opened."""
    url = postgres.url("migrated")
    made = ", ".join(map(str, range(1, len(migrations("migrated")) + 1)))
    assert holdfast_cli("migrate", "--store", url) == (0, f"made version {made}\n")

    code, text = holdfast_cli("migrate", "--store", str(tmp_path / "jobs.db"))
    assert (code, "postgresql://" in text) == (2, True)


def test_the_doctor_looks_at_settings_and_indexes(postgres, postgres_url, schema):
    """And says what to do."""
    code, text = holdfast_cli("add", "work", "--store", postgres_url)
    assert code == 0, text
    code, text = holdfast_cli("doctor", "--store", postgres_url)
    assert code == 0, text
    assert "nothing is wrong" in text

    with postgres.connect() as connection:
        connection.execute(f"DROP INDEX {schema}.jobs_children")
        code, text = holdfast_cli("doctor", "--store", postgres_url)
        connection.execute(
            f"CREATE INDEX jobs_children ON {schema}.jobs (parent_id, place, id) WHERE parent_id > 0"
        )

    assert code == 1
    assert "lacks the index jobs_children" in text

    read_only = f"{postgres_url}&options=-c%20default_transaction_read_only%3Don"
    code, text = holdfast_cli("doctor", "--store", read_only)

    assert code == 1
    assert "default_transaction_read_only = on: nothing can be written; set it to off" in text


def test_the_time_is_the_servers(store):
    """In a batch, in a view, and between."""
    add(store, a_job(1))
    times = [store.run(lambda txn: (NOTHING, txn.now_ms)), store.read(lambda txn: txn.now_ms), store.now_ms()]

    assert times == sorted(times)
    assert times[-1] - times[0] < 60_000


def test_without_psycopg_the_way_to_have_it_is_told(postgres_url):
    """By the line that installs it."""
    code = f"""
import sys
sys.modules["psycopg"] = None
import holdfast
try:
    holdfast.connect({postgres_url!r})
except holdfast.StoreError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SRC)}
    )

    assert "pip install 'holdfast-queue[postgres]'" in done.stdout, done.stderr
