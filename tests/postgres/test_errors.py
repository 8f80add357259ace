"""What a server may have against us, each told with what to do; and nothing is made by looking."""

import os
import secrets
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.core.errors import StoreError, StoreFull
from holdfast.store.postgres import open as postgres_open
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.stores.making import a_job, add
from tests.postgres.test_address import holdfast_cli
from tests.servers import postgres_or_skip
from tests.store.helpers import all_ids

# A table's page is 8 kB, so this is room for some hundred jobs of a page each.
SMALL_DISK = "6m"
RAISE = """CREATE FUNCTION {schema}.fails() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'as it is said' USING ERRCODE = '{code}'; END $$;
CREATE TRIGGER fails BEFORE INSERT ON {schema}.jobs EXECUTE FUNCTION {schema}.fails()"""
NO_MORE = "DROP FUNCTION {schema}.fails CASCADE"


@pytest.fixture
def failing(postgres, store, schema):
    """Has the server itself raise an error of some class whenever a job is added."""
    add(store, a_job(1))
    with postgres.connect() as connection:
        connection.execute("SET client_min_messages = warning")
        yield lambda code: connection.execute(RAISE.format(schema=schema, code=code))
        connection.execute(NO_MORE.format(schema=schema))


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        ("53200", StoreFull, "no space or memory left on its server .* make room"),
        ("53100", StoreFull, "no space or memory left on its server .* make room"),
        ("42501", StoreError, "needs the right to use and write"),
        ("25006", StoreError, "cannot be written .* use the primary"),
        ("25P04", holdfast.Unavailable, "cannot be reached"),
        ("57014", holdfast.Unavailable, "took too long .* try again"),
        ("22003", holdfast.BadInput, "must be one that it can store"),
        ("XX001", holdfast.StoreCorrupt, "is damaged .* restore a backup"),
    ],
)
def test_each_error_of_a_server_says_what_to_do(store, failing, code, kind, told):
    """By its class, as a server raises it; what was there stays as it was, and later all goes on."""
    failing(code)
    store._patience_s = 1.0
    with pytest.raises(kind, match=told):
        add(store, a_job(2))

    assert all_ids(store) == [1]


@pytest.fixture
def small_disk(server):
    """A file system of a few megabytes, that a tablespace lies on."""
    folder = server.folder / "small"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK},mode=777", "tmpfs", str(folder)]
    )
    if mount.returncode:
        pytest.skip("no file system can be made here; the error itself is tested by its class")
    try:
        (folder / "space").mkdir(mode=0o700)
        _give_to_server(folder / "space", server.data)
        with server.connect() as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}/space'")
        yield "small"
        server.stop(immediately=True)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _give_to_server(folder: Path, like: Path) -> None:
    stat = like.stat()
    os.chown(folder, stat.st_uid, stat.st_gid)


def test_a_full_disk_is_told_and_what_was_accepted_stays(server, small_disk):
    """Until there is room again; then all goes on."""
    url = server.url(options=f"-c%20default_tablespace%3D{small_disk}")
    accepted: list[int] = []
    with holdfast.connect(url) as queue:
        with pytest.raises(StoreFull, match="make room"):
            _add_until_it_is_full(queue, accepted)

        assert len(accepted) > 10
        assert [job.id for job in _all(queue)] == accepted
        with server.connect() as connection:
            connection.execute("DROP TABLE IF EXISTS holdfast.log_items CASCADE")
            connection.execute("ALTER TABLE holdfast.data_apart SET TABLESPACE pg_default")
            connection.execute("ALTER TABLE holdfast.jobs SET TABLESPACE pg_default")
            connection.execute("ALTER INDEX holdfast.data_apart_pkey SET TABLESPACE pg_default")
        queue.add("work")


def _add_until_it_is_full(queue, accepted):
    for _ in range(10_000):
        # What cannot be made smaller.
        accepted.append(queue.add("work", secrets.token_hex(2_000)).id)


def _all(queue):
    found: list[holdfast.Job] = []
    while page := queue.jobs(after=found[-1] if found else None, limit=1_000):
        found += page
    return found


def test_a_replica_is_told_to_be_one():
    """At the first verb; and where the server that we were on has become one."""
    with closing(postgres_or_skip(wal_level="replica", restore_command="false")) as server:
        store = PostgresStore(server.url(), patience_s=1.0)
        add(store, a_job(1))
        server.stop()
        (server.data / "standby.signal").touch()
        server.start()

        with pytest.raises(StoreError, match=r"cannot be written .*(replica|primary)"):
            add(store, a_job(2))
        store.close()
        with pytest.raises(StoreError, match="it is a replica; use the primary"):
            add(PostgresStore(server.url()), a_job(2))


def test_a_server_that_is_too_old_is_told(postgres_url, postgres, monkeypatch):
    """By its version and the one that is needed."""
    monkeypatch.setattr(postgres_open, "OLDEST", 990_000)
    with (
        closing(PostgresStore(postgres_url)) as store,
        pytest.raises(StoreError, match="must be 14 or newer"),
    ):
        add(store, a_job(1))


@pytest.mark.parametrize(
    "words",
    [
        ("counts",),
        ("jobs",),
        ("show", "1"),
        ("why", "1"),
        ("limits",),
        ("schedules",),
        ("workers",),
        ("consumers",),
        ("doctor",),
        ("cancel", "1"),
        ("purge", "--before", "1d"),
        ("resume", "--task", "work"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_looks_makes_no_schema(postgres, words):
    """It says that there is none, and what to do."""
    code, text = holdfast_cli(*words, "--store", postgres.url("nobody"))

    assert code == 5, text
    assert "there is no store at postgresql://" in text
    assert "schema=nobody" in text
    with postgres.connect() as connection:
        assert connection.execute("SELECT to_regnamespace('nobody')").fetchone() == (None,)


def test_a_command_that_adds_makes_the_schema(postgres):
    """Whoever comes first does."""
    url = postgres.url("somebody")
    assert holdfast_cli("add", "work", "--store", url)[0] == 0

    code, text = holdfast_cli("counts", "--store", url)
    assert (code, "work" in text) == (0, True)
