"""Queues that go along with their store, and those that must not."""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast.cli.app import app
from holdfast.core import commands as c
from holdfast.core import ids
from holdfast.core.indexed import LogItem
from holdfast.queue.addresses import bare_url, with_password
from tests.queue_suite.tools import complaints

FOUR, TWO = "sqlite:///four?shards=4", "sqlite:///two?shards=2"


def move(source: object, target: object) -> None:
    """By the command line."""
    with pytest.raises(SystemExit) as end:
        app(["move", str(source), str(target)])
    assert end.value.code == 0


@pytest.fixture(params=["alone", "spread"])
def urls(request, tmp_path, postgres_url):
    """A file, a schema, a file; or a file, four of them, two."""
    if request.param == "alone":
        return [str(tmp_path / "a.db"), postgres_url, str(tmp_path / "c.db")]
    return [
        str(tmp_path / "a.db"),
        f"sqlite:///{tmp_path / 'b'}?shards=4",
        f"{postgres_url} sqlite:///{tmp_path / 'c.db'}",
    ]


def test_a_queue_goes_along_with_its_claims(urls, caplog):
    """From store to store: what it holds it finishes, what it adds has new ids, and the log says so."""
    with holdfast.connect(urls[0]) as queue, caplog.at_level(logging.WARNING, "holdfast"):
        first, second = queue.add("greet", {"n": 1}), queue.add("greet", {"n": 2})
        job, other = queue.next(["greet"]), queue.next(["greet"])
        assert job is not None
        assert other is not None
        move(urls[0], urls[1])
        job.done("one")
        third = queue.add("greet")
        move(urls[1], urls[2])
        other.extend()
        other.done("two")

        assert [first.result(), second.result()] == ["one", "two"]
        assert third.id not in (first.id, second.id)
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        f"the store has moved to {bare_url(url)}" for url in urls[1:]
    ]
    with holdfast.connect(urls[2], follow=False) as queue:
        assert queue.counts() == {"greet": {"FINISHED": 2, "QUEUED": 1}}


def test_a_process_that_starts_late_finds_its_way_too(urls):
    """From signpost to signpost."""
    with holdfast.connect(urls[0]) as queue:
        added = queue.add("greet")
    move(urls[0], urls[1])
    move(urls[1], urls[2])

    with holdfast.connect(urls[0]) as queue:
        assert queue.get(added).task == "greet"
        assert queue.next(["greet"]) is not None


@pytest.mark.parametrize(("here", "there"), [("a.db", "b.db"), ("a.db", FOUR), (FOUR, TWO)])
def test_a_query_that_meets_a_store_that_has_moved_is_asked_at_the_new_one(
    tmp_path, monkeypatch, here, there
):
    """By a thread and by a coroutine, as the first thing that they ask after the move."""
    monkeypatch.chdir(tmp_path)

    async def awaited():
        async with holdfast.connect_async(here) as queue:
            added = await queue.add("greet", {"n": 1})
            await asyncio.to_thread(move, here, there)
            return await queue.data(added)

    with holdfast.connect(here) as queue:
        added = queue.add("greet")

        assert asyncio.run(awaited()) == {"n": 1}
        assert queue.get(added).task == "greet"
        assert queue.counts() == {"greet": {"QUEUED": 2}}


@pytest.mark.parametrize(("here", "there"), [("a.db", "b.db"), ("a.db", FOUR), (FOUR, "b.db"), (FOUR, TWO)])
def test_whoever_waits_for_a_job_gets_it_at_the_new_address(tmp_path, monkeypatch, here, there):
    """A claim that waits is not forgotten in the old store, nor is who waits for a result."""
    monkeypatch.chdir(tmp_path)

    async def waits() -> holdfast.Job:
        async with holdfast.connect_async(here) as queue:
            other = await queue.add("other")
            waiting = asyncio.create_task(queue.next(["greet"], wait=60))
            result = asyncio.create_task(queue.result(other, wait=60))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(move, here, there)
            await asyncio.to_thread(_add_and_work, there)
            assert await result == "worked"
            job = await waiting
            assert job is not None
            await job.done()
            return job.record

    assert asyncio.run(waits()).task == "greet"


def _add_and_work(url: str) -> None:
    with holdfast.connect(url) as queue:
        queue.add("greet")
        job = queue.next(["other"])
        assert job is not None
        job.done("worked")


@pytest.mark.parametrize(("here", "there"), [("a.db", FOUR), (FOUR, "b.db"), (FOUR, TWO)])
def test_whatever_is_asked_is_asked_there_where_there_are_more_shards_or_fewer(
    tmp_path, monkeypatch, here, there
):
    """Claims are extended and ended, keys are held, what is about all is about all, listeners hear."""
    monkeypatch.chdir(tmp_path)
    heard = threading.Event()
    with holdfast.connect(here) as queue:
        jobs = [queue.add("work", {"n": n}, unique=f"k{n}", domain=f"d{n}") for n in range(8)]
        parent = queue.add("parent", priority=900)
        whole = queue.next(["parent"])
        held = queue.claim(["work"], limit=3)
        queue.connection.listen(heard.set)
        move(here, there)

        assert whole is not None
        child = whole.add("child")
        queue.pause("paused")
        again = [queue.add("work", unique=f"k{n}", domain=f"d{n}") for n in range(8)]
        many = queue.add_many([("many", {"n": n}) for n in range(10)])
        assert [job.id for job in again] == [job.id for job in jobs]
        assert queue.counts()["work"] == {"RUNNING": 3, "QUEUED": 5}
        for job in held:
            job.extend()
            job.done("late")
        whole.done()
        heard.clear()
        queue.connection.ask(c.Append(log="events", items=(LogItem(data="1"),)))
        assert heard.wait(60)
        assert [queue.result(job.id) for job in held] == ["late"] * 3
        assert queue.get(child).parent_id == parent.id
        assert len({*many, *jobs}) == 18
        queue.connection.unlisten(heard.set)
    with holdfast.connect(there, follow=False) as queue:
        assert complaints(queue) == []


def test_a_queue_that_is_not_to_follow_is_told_the_address(tmp_path):
    with holdfast.connect(str(tmp_path / "a.db"), follow=False) as queue:
        queue.add("greet")
        move(tmp_path / "a.db", tmp_path / "b.db")

        with pytest.raises(holdfast.Moved) as told:
            queue.add("greet")

    assert told.value.address == str(tmp_path / "b.db")


def test_nobody_follows_to_a_store_that_is_not_the_one(tmp_path):
    """One that is gone is not made, and another in its place is left alone."""
    with holdfast.connect(str(tmp_path / "a.db")) as queue:
        queue.add("greet")
    move(tmp_path / "a.db", tmp_path / "b.db")
    for file in tmp_path.glob("b.db*"):
        if file.is_file():
            file.unlink()

    with holdfast.connect(str(tmp_path / "a.db")) as queue:
        with pytest.raises(holdfast.Moved):
            queue.add("greet")
        assert not (tmp_path / "b.db").exists()
        with holdfast.connect(str(tmp_path / "b.db")) as another:
            another.add("not yours")
        with pytest.raises(holdfast.Moved):
            queue.add("greet")
        assert queue.url == str(tmp_path / "a.db")


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("postgresql://app:pw@db/shop?schema=x", "postgresql://app@db/shop?schema=x"),
        ("postgresql://app:p@w@db/shop", "postgresql://app@db/shop"),
        ("postgresql://app@db/shop?password=pw&schema=x", "postgresql://app@db/shop?schema=x"),
        ("postgresql://db/shop?sslpassword=pw", "postgresql://db/shop"),
        ("redis://:pw@cache:6379/0", "redis://@cache:6379/0"),
        ("postgresql://a:1@x/d postgresql://b:2@y/d", "postgresql://a@x/d postgresql://b@y/d"),
        ("redis+cluster://:pw@a,b/?shards=16", "redis+cluster://@a,b/?shards=16"),
        ("sqlite:////var/lib/jobs?shards=4", "sqlite:////var/lib/jobs?shards=4"),
        ("/var/lib/jobs.db", "/var/lib/jobs.db"),
        ("redis://:pw@db:1/0?prefix=a@b", "redis://@db:1/0?prefix=a@b"),
        ("redis://db:1/0?prefix=a@b", "redis://db:1/0?prefix=a@b"),
        (
            "postgresql://app:p?w@db/jobs?application_name=a@b",
            "postgresql://app@db/jobs?application_name=a@b",
        ),
        ("sqlite:////data/a:b@c.db", "sqlite:////data/a:b@c.db"),
    ],
)
def test_an_address_is_kept_without_its_password(url, bare):
    assert bare_url(url) == bare
    assert bare_url(bare) == bare


@pytest.mark.parametrize(
    ("address", "own", "used"),
    [
        ("postgresql://app@db/new", "postgresql://app:pw@db/old", "postgresql://app:pw@db/new"),
        ("postgresql://app@db:5433/new", "postgresql://app:pw@db/old", None),
        ("postgresql://app@other/new", "postgresql://app:pw@db/old", None),
        ("postgresql://root@db/new", "postgresql://app:pw@db/old", None),
        ("redis://app@db/0", "postgresql://app:pw@db/old", None),
        ("postgresql://app@/new?host=other", "postgresql://app:pw@/old?host=db", None),
        ("postgresql://app@db/new?host=other", "postgresql://app:pw@db/old", None),
        ("/new.db", "postgresql://app:pw@db/old", None),
        (
            "postgresql://app@db/0 postgresql://app@other/1 sqlite:////x.db",
            "postgresql://app:pw@db/old",
            "postgresql://app:pw@db/0 postgresql://app@other/1 sqlite:////x.db",
        ),
        (
            "postgresql://b@y/0 postgresql://a@x/1",
            "postgresql://a:1@x/old postgresql://b:2@y/old",
            "postgresql://b:2@y/0 postgresql://a:1@x/1",
        ),
        ("postgresql://app@db/new", "/old.db", None),
    ],
)
def test_ones_own_password_is_for_the_same_user_on_the_same_server(address, own, used):
    """And is never sent anywhere else."""
    assert with_password(address, own) == (used or address)


def _elsewhere(parent: Any) -> str:
    """A domain of another of four shards than a job."""
    return next(f"d{n}" for n in range(99) if (ids.slot_of("", f"d{n}".encode()) - parent.id) % 4)


def test_what_the_new_store_refuses_is_refused_and_nothing_else(tmp_path):
    """A child that would belong to two shards, asked for by a coroutine: others still have their replies."""
    source, target = str(tmp_path / "a.db"), f"sqlite:///{tmp_path / 'b'}?shards=4"

    async def run():
        async with holdfast.connect_async(source) as queue:
            await queue.add("crawl")
            parent = await queue.next(["crawl"])
            assert parent is not None
            await asyncio.to_thread(move, source, target)
            child = parent.add("fetch", domain=_elsewhere(parent))
            replies = await asyncio.wait_for(
                asyncio.gather(child, queue.add("plain"), return_exceptions=True), 60
            )
            assert isinstance(replies[0], holdfast.BadInput)
            assert await queue.counts() == {"crawl": {"RUNNING": 1}, "plain": {"QUEUED": 1}}

    asyncio.run(run())


def test_a_refusal_of_the_new_store_does_not_keep_a_neighbour_waiting(tmp_path):
    """Both were committed by one thread, which found that the store has moved."""
    source, target = str(tmp_path / "a.db"), f"sqlite:///{tmp_path / 'b'}?shards=4"
    with holdfast.connect(source) as queue:
        queue.add("crawl")
        parent = queue.next(["crawl"])
        assert parent is not None
        move(source, target)
        (group,) = queue.connection._submitter._groups  # type: ignore[attr-defined]
        with group.turn, ThreadPoolExecutor(2) as pool:
            child = pool.submit(parent.add, "fetch", domain=_elsewhere(parent))
            plain = pool.submit(queue.add, "plain")
            while len(group.waiting) < 2:
                time.sleep(0.001)
            group.turn.release()
            group.wake_next()
            assert isinstance(child.exception(60), holdfast.BadInput)
            assert plain.result(60).id
            group.turn.acquire()
