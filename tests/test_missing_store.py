"""An address where no store is: what only reads, and a worker, create none unless they are told to."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import holdfast
from tests.cli.shell import Shell
from tests.redis_servers import RedisAddress
from tests.servers import PostgresAddress

ROOT = Path(__file__).parents[1]
KINDS = ["sqlite", "empty file", "folder of shards", "list of shards", "postgres", "redis"]


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that is not there, of each kind."""
    match request.param:
        case "postgres":
            postgres: PostgresAddress = request.getfixturevalue("postgres")
            return postgres.url(f"missing_{uuid.uuid4().hex[:8]}")
        case "redis":
            redis: RedisAddress = request.getfixturevalue("redis_server")
            return redis.url()
        case "folder of shards":
            return f"sqlite:///{tmp_path}/shards?shards=2"
        case "list of shards":
            return f"sqlite:///{tmp_path}/0.db sqlite:///{tmp_path}/1.db"
        case "empty file":
            (tmp_path / "jobs.db").touch()
    return str(tmp_path / "jobs.db")


def contents(folder: Path) -> dict[str, int]:
    """What is in a folder, by name and size."""
    return {entry.name: entry.stat().st_size for entry in folder.rglob("*")}


def test_a_queue_that_must_not_create_its_store_says_that_there_is_none(address, tmp_path):
    """Every verb does, and nothing is there afterwards either."""
    before = contents(tmp_path)

    with holdfast.connect(address, create=False) as queue:
        for verb in (queue.counts, queue.next, lambda: queue.add("work")):
            with pytest.raises(holdfast.StoreMissing, match="there is no store at "):
                verb()

    assert contents(tmp_path) == before


def test_an_async_queue_that_must_not_create_its_store_says_so_too(address, tmp_path):
    """By the same error."""
    before = contents(tmp_path)

    async def add() -> None:
        async with holdfast.connect_async(address, create=False) as queue:
            await queue.add("work")

    with pytest.raises(holdfast.StoreMissing):
        asyncio.run(add())
    assert contents(tmp_path) == before


def test_a_database_of_another_program_holds_no_store_either(tmp_path):
    """It is joined only by a queue that may create."""
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE theirs (x)")
    theirs.close()
    before = path.read_bytes()

    with holdfast.connect(str(path), create=False) as queue, pytest.raises(holdfast.StoreMissing):
        queue.add("work")

    assert path.read_bytes() == before


def test_a_store_that_is_there_is_used_without_creating(address):
    """Once anybody has made it."""
    with holdfast.connect(address) as queue:
        added = queue.add("work")

    with holdfast.connect(address, create=False) as queue:
        assert queue.get(added.id).task == "work"


def test_commands_that_read_create_nothing_unless_told_to(address, tmp_path, monkeypatch):
    """They name the address and the way out."""
    monkeypatch.chdir(tmp_path)
    shell, before = Shell(tmp_path), contents(tmp_path)

    reading = ("counts", "jobs", "top", "doctor", "consumers", "limits", "schedules", "workers", "dashboard")
    for command in reading:
        said = shell.run(command, "--store", address)
        assert said.code == 5, (command, said)
        assert "there is no store at " in said.err
        assert ("--create" in said.err) is (command != "dashboard")
    assert contents(tmp_path) == before

    assert shell.ok("counts", "--store", address, "--create").out == "no jobs\n"
    assert shell.ok("jobs", "--store", address).out == "no jobs\n"


def worker(address: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Have a worker do all there is to do."""
    command = [sys.executable, "-m", "holdfast", "worker", "tests.work.app:queue", "--until-empty", *words]
    places = {"HOLDFAST_TEST_STORE": address}
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | places, capture_output=True, text=True, timeout=60
    )


# What a store of each kind says, the tests above ask in this process.
@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
def test_a_worker_creates_nothing_unless_told_to(address, tmp_path):
    """A mistyped address is no empty queue."""
    before = contents(tmp_path)

    done = worker(address)

    assert done.returncode == 5, done.stderr
    assert "there is no store at " in done.stderr
    assert "check --store, or the address in your module; --create makes a new store" in done.stderr
    assert "HOLDFAST_STORE" not in done.stderr
    assert contents(tmp_path) == before

    done = worker(address, "--create")
    assert done.returncode == 0, done.stderr
    with holdfast.connect(address, create=False) as queue:
        assert queue.counts() == {}


def test_a_shard_that_has_had_nothing_to_keep_is_no_missing_store(tmp_path):
    """One job is in one shard: the queue is there, and a command that reads finds all of it."""
    store = f"sqlite:///{tmp_path}/shards?shards=4"
    with holdfast.connect(store) as queue:
        queue.add("work")
    assert len(list(tmp_path.glob("shards/*.db"))) == 1

    with holdfast.connect(store, create=False) as queue:
        assert queue.counts() == {"work": {"QUEUED": 1}}
