"""Handlers kept in the store: versions, rolling back, and which jobs a worker that runs them may claim."""

import asyncio
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core import handler as h
from holdfast.core import queries as q
from holdfast.core.bounds import HANDLER_BYTES
from holdfast.core.errors import BadInput, NotFound, TooLarge
from holdfast.core.why import UNLISTED
from holdfast.core.worker import Served, Worker
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .fixtures import MakeAsyncQueue, MakeQueue
from .tools import MINUTE_MS

# Names that JSON, SQL and sorted sets must each keep apart.
ODD_NAMES = ("a", 'a"', "a\\", "ä", "a,b", "a b", "A", "%", "\N{GRINNING FACE}", "['x']")


def claim(queue: Queue, **fields: Any) -> list[tuple[str, str]]:
    """The tenants and tasks of the jobs that a worker gets which runs handlers."""
    found = queue.connection.ask(c.Claim(handled=True, lease_ms=MINUTE_MS, limit=100, start=False, **fields))
    return sorted((one.job.tenant, one.job.task) for one in found)


def waiting(queue: Queue, limit: int = 9) -> list[tuple[str, str]]:
    """Whose turn it is, of those that have a handler."""
    found = queue.connection.ask(q.ListWaiting(handled=True, limit=limit))
    return [(one.tenant, one.task) for one in found]


def test_versions_of_a_handler_are_kept_until_it_is_deleted(make_queue: MakeQueue, clock: MovedClock) -> None:
    """The newest is the one that is found; each has its number and an id that no other has."""
    queue, other = make_queue(tenant="a"), make_queue(tenant="a")

    first = queue.handlers.set("resize", "one()", lang="node", eid="e", before="let x", timeout="2s")
    clock.advance(1000)
    second = other.handlers.set("resize", "two()", lang="node", memory_mb=64, batch=True)

    assert (first.version, second.version) == (1, 2)
    assert second.created_at == first.created_at + 1000
    assert (first.eid, first.before, first.options.timeout_ms) == ("e", "let x", 2000)
    assert queue.handlers.get("resize") == second
    assert queue.handlers.get("resize", 1) == first
    assert [one.version for one in queue.handlers.versions("resize")] == [2, 1]
    assert [one.version for one in queue.handlers.versions("resize", before=2)] == [1]
    assert list(queue.handlers) == [h.without_scripts(second)]

    queue.handlers.delete("resize")
    third = queue.handlers.set("resize", "two()", lang="node")

    assert third.version == 1
    assert len({first.id, second.id, third.id}) == 3
    with pytest.raises(NotFound, match="version 2 of the handler 'resize' of tenant 'a'"):
        queue.handlers.get("resize", 2)


def test_what_the_newest_version_says_already_changes_nothing(make_queue: MakeQueue) -> None:
    """So a call whose reply was lost may be made again, by any process."""
    queue, other = make_queue(), make_queue()
    kept = queue.handlers.set("t", "pass", lang="python", cpu=1)

    assert other.handlers.set("t", "pass", lang="python", cpu=1) == kept
    assert other.handlers.set("t", "pass", lang="python", cpu=2).version == 2


def test_a_rollback_is_a_new_version(queue: Queue) -> None:
    """As the one before; and rolled back again, as the one before that. By a number, as that one."""
    for body in ("one", "two", "three"):
        queue.handlers.set("t", body, lang="shell")

    back = [queue.handlers.roll_back("t") for _ in range(2)]

    assert [(one.version, one.restores, one.body) for one in back] == [(4, 2, "two"), (5, 1, "one")]
    with pytest.raises(NotFound, match="handler 't'"):
        queue.handlers.roll_back("t")
    assert queue.handlers.roll_back("t", 3).body == "three"
    assert queue.handlers.get("t").version == 6
    with pytest.raises(NotFound):
        queue.handlers.roll_back("t", 9)
    with pytest.raises(NotFound):
        queue.handlers.roll_back("other")


def test_old_versions_go_where_there_are_too_many(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest stay, and deleting leaves nothing."""
    monkeypatch.setattr("holdfast.engine.commands.handlers.HANDLER_VERSIONS", 3)
    for n in range(1, 6):
        queue.handlers.set("t", f"v{n}", lang="shell")

    assert [one.version for one in queue.handlers.versions("t")] == [5, 4, 3]
    with pytest.raises(NotFound):
        queue.handlers.get("t", 2)

    queue.handlers.delete("t")

    assert list(queue.handlers) == []
    with pytest.raises(NotFound):
        queue.handlers.delete("t")


def test_what_is_no_handler_is_refused(queue: Queue) -> None:
    """By an error that names the thing; nothing is kept."""
    for lang, body in (("", "x"), ("node", ""), ("", "")):
        with pytest.raises(BadInput, match="lang and body required"):
            queue.handlers.set("t", body, lang=lang)
    for lang in ("Node", "-c", "a b", "x" * 33):
        with pytest.raises(BadInput, match="lang"):
            queue.handlers.set("t", "x", lang=lang)
    with pytest.raises(TooLarge, match="1,048,576 bytes"):
        queue.handlers.set("t", "x" * HANDLER_BYTES, lang="node", before="y")
    with pytest.raises(BadInput, match="memory_mb"):
        queue.handlers.set("t", "x", lang="node", memory_mb=-1)
    with pytest.raises(BadInput, match="option"):
        queue.handlers.set("t", "x", lang="node", speed=1)  # type: ignore[call-arg]

    assert list(queue.handlers) == []


def test_handlers_of_tenants_are_apart_whatever_their_names(make_queue: MakeQueue) -> None:
    """They are listed, found and claimed by their exact names."""
    queues = {name: make_queue(tenant=name) for name in ("", *ODD_NAMES)}
    queue = queues[""]
    for tenant, own in queues.items():
        for task in ODD_NAMES:
            own.add(task)
        own.handlers.set(tenant or "a", tenant or "a", lang="shell")
    own_tasks = sorted((tenant, tenant or "a") for tenant in queues)

    assert {tenant: [one.task for one in own.handlers] for tenant, own in queues.items()} == {
        tenant: [task] for tenant, task in own_tasks
    }
    assert sorted(waiting(queue, limit=50)) == own_tasks
    assert claim(queue, tenants=("ä", "A")) == [("A", "A"), ("ä", "ä")]
    assert claim(queue) == [pair for pair in own_tasks if pair[0] not in ("ä", "A")]


def test_handlers_are_listed_page_by_page(queue: Queue) -> None:
    """Each once, whatever the size of a page."""
    names = sorted(f"task{n}" for n in range(10))
    for name in names:
        queue.handlers.set(name, "x", lang="shell")

    paged = q.ask_all(queue.connection.ask, h.ListHandlers(limit=3))
    assert sorted(one.task for one in paged) == names
    assert sorted(one.task for one in queue.handlers) == names


def test_a_worker_that_has_a_version_is_not_sent_it_again(queue: Queue) -> None:
    """Only what is new comes with its scripts; what does not exist does not come."""
    one, two = (queue.handlers.set(task, "body", lang="shell") for task in ("one", "two"))
    pairs = (h.KnownHandler("", "one", one.id), h.KnownHandler("", "two"), h.KnownHandler("", "three"))

    found = queue.connection.ask(h.FindHandlers(pairs=pairs))

    assert sorted(found, key=lambda one: one.task) == [h.without_scripts(one), two]


def test_only_jobs_whose_task_has_a_handler_are_claimed(make_queue: MakeQueue) -> None:
    """However many others stand in front; those that come due are promoted first."""
    queue, own = make_queue(), make_queue(tenant="b")
    for n in range(70):
        queue.add(f"python{n:02}", priority=900)
    own.add("x")
    queue.add("x")
    own.handlers.set("x", "true", lang="shell")

    assert waiting(queue) == [("b", "x")]
    assert queue.connection.ask(q.CountReady(handled=True)) == 1
    assert claim(queue) == [("b", "x")]
    assert (claim(queue), waiting(queue)) == ([], [])
    assert queue.connection.ask(q.HasUnfinished(handled=True))
    assert not queue.connection.ask(q.HasUnfinished(tenants=("",), handled=True))


def test_tasks_without_a_handler_do_not_hold_up_others_of_their_tenant(make_queue: MakeQueue) -> None:
    """They are never served, and so stand in front of them for ever."""
    for tenant, tasks in (("a", "pqrstuvwx"), ("b", "x"), ("c", "yz")):
        own = make_queue(tenant=tenant)
        for task in tasks:
            own.add(task)
        own.handlers.set("x", "true", lang="shell")

    assert waiting(own, limit=2) == [("a", "x"), ("b", "x")]
    assert waiting(own, limit=1) == [("a", "x")]


def test_a_claim_that_waits_is_woken_by_a_new_handler(make_queue: MakeQueue) -> None:
    """The job was there before."""
    queue, other = make_queue(), make_queue()
    job = queue.add("x")

    async def wait() -> Any:
        asked = c.Claim(handled=True, lease_ms=MINUTE_MS)
        claiming = asyncio.create_task(queue.connection.ask_async(asked, wait_s=60))
        await asyncio.to_thread(other.handlers.set, "x", "true", lang="shell")
        return await claiming

    assert [one.job.id for one in asyncio.run(wait())] == [job.id]


def test_why_tells_of_a_missing_handler(queue: Queue, clock: MovedClock) -> None:
    """And of a missing worker, where there is a handler."""
    job = queue.add("x")
    assert queue.why(job).endswith(f"No live worker knows the task 'x'. {UNLISTED}")

    serves = (Served(tenant=None, handlers=True),)
    worker = Worker(
        name="w", host="h", pid=1, started_at=clock(), serves=serves, until_ms=clock() + MINUTE_MS
    )
    queue.connection.ask(c.Enlist(worker=worker))
    assert "No live worker knows the task 'x', and it has no stored handler." in queue.why(job)

    queue.handlers.set("x", "true", lang="shell")
    assert queue.why(job).endswith("1 live worker knows its task.")

    queue.connection.ask(c.Dismiss(name="w"))
    assert queue.why(job).endswith("has a stored handler, but no live worker runs stored handlers.")


def test_handlers_for_asyncio(make_async_queue: MakeAsyncQueue) -> None:
    """The same verbs, to await."""

    async def go() -> None:
        queue = make_async_queue(tenant="a")
        try:
            for body in ("one", "two"):
                await queue.handlers.set("t", body, lang="python")
            assert (await queue.handlers.roll_back("t")).body == "one"
            assert (await queue.handlers.get("t", 2)).body == "two"
            assert len(await queue.handlers.versions("t")) == 3
            assert [one.task async for one in queue.handlers] == ["t"]
            await queue.handlers.delete("t")
            assert [one async for one in queue.handlers] == []
        finally:
            await queue.close()

    asyncio.run(go())
