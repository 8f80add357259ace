"""Tokens in the store, and verbs that name a tenant: jobs of others are not there for them."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.access import Grant, Scope, confine
from holdfast.core.commands import StopWorker
from holdfast.core.errors import BadInput, Forbidden, NotFound
from holdfast.core.token import Token, hash_of
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .fixtures import MakeQueue
from .tools import MINUTE_MS

# Verbs on one job, by its id.
VERBS: list[Callable[[int], c.Command | q.Query]] = [
    lambda job_id: c.Cancel(job_id=job_id, tenant="b"),
    lambda job_id: c.Update(job_id=job_id, tenant="b", priority=1),
    lambda job_id: c.Requeue(job_id=job_id, tenant="b"),
    lambda job_id: c.Delete(job_id=job_id, tenant="b"),
    lambda job_id: q.GetJob(job_id=job_id, tenant="b"),
    lambda job_id: q.GetData(job_id=job_id, tenant="b"),
    lambda job_id: q.GetSteps(job_id=job_id, tenant="b"),
    lambda job_id: q.GetLog(job_id=job_id, tenant="b"),
    lambda job_id: q.Explain(job_id=job_id, tenant="b"),
]


def ask(queue: Queue, asked: c.Command | q.Query) -> Any:
    """The reply of the store."""
    return queue.connection.ask(asked)


def new_token(name: str, secret: str = "a secret", **fields: Any) -> Token:
    """A token as a client asks for it."""
    return Token(name=name, scopes=(Scope.ADD, Scope.READ), hash=hash_of(secret), **fields)


def test_a_token_is_kept_until_it_is_revoked(make_queue: MakeQueue, clock: MovedClock) -> None:
    """Its hash is found by its name alone, and is not in the list."""
    queue, other = make_queue(), make_queue()

    kept = ask(queue, c.CreateToken(token=new_token("shop", tenant="a"), expires_in_ms=MINUTE_MS))

    assert (kept.hash, kept.expires_at) == ("", clock() + MINUTE_MS)
    assert ask(other, q.ListTokens()) == [kept]
    assert ask(other, q.FindToken(name="shop")).hash == hash_of("a secret")
    assert ask(other, q.FindToken(name="shop_2")) is None
    ask(other, c.RevokeToken(name="shop"))
    assert (ask(queue, q.ListTokens()), ask(queue, q.FindToken(name="shop"))) == ([], None)
    with pytest.raises(NotFound):
        ask(queue, c.RevokeToken(name="shop"))


def test_a_tokens_name_is_taken_once(make_queue: MakeQueue) -> None:
    """Also by two processes; the same token again is the same."""
    queue, other = make_queue(), make_queue()
    kept = ask(queue, c.CreateToken(token=new_token("shop")))

    assert ask(other, c.CreateToken(token=new_token("shop"))) == kept
    with pytest.raises(BadInput, match="a name that no token has"):
        ask(other, c.CreateToken(token=new_token("shop", "another secret")))


@pytest.mark.parametrize("name", ["", "a_b", "-a", "a b", "ä", "a" * 65, "a\n"])
def test_a_tokens_name_can_be_part_of_its_secret(queue: Queue, name: str) -> None:
    """And is refused otherwise."""
    with pytest.raises(BadInput, match="letters, digits"):
        ask(queue, c.CreateToken(token=new_token(name)))


@pytest.mark.parametrize("verb", VERBS)
def test_jobs_of_other_tenants_are_not_found(make_queue: MakeQueue, verb: Any) -> None:
    """Waiting, running, failed or archived: the refusal is that of an id which nobody has."""
    queue = make_queue(tenant="a")
    waiting, running, over, failed = (queue.add(task) for task in ("wait", "run", "end", "fail"))
    queue.next(["run"], renew=False)
    ended, sad = queue.next(["end"], renew=False), queue.next(["fail"], renew=False)
    assert ended is not None
    assert sad is not None
    ended.done()
    sad.fail("why")
    before = [queue.get(job.id) for job in (waiting, running, over, failed)]

    for job in before:
        with pytest.raises(NotFound) as refused:
            ask(queue, verb(job.id))
        with pytest.raises(NotFound) as unknown:
            ask(queue, verb(1))
        assert str(refused.value) == str(unknown.value).replace("job 1", f"job {job.id}")

    assert [queue.get(job.id) for job in before] == before


def test_results_families_and_lists_are_those_of_a_tenant(make_queue: MakeQueue) -> None:
    """What names a tenant brings nothing of another."""
    queue = make_queue(tenant="a")
    job = queue.add("mail")

    assert ask(queue, c.Await(job_id=job.id, tenant="b")) == "gone"
    assert ask(queue, q.LoadJobs(job_ids=(job.id,), data=True, tenant="b")) == q.Loaded()
    assert ask(queue, q.LoadFamilies(job_ids=(job.id,), tenant="b")) == {}
    assert ask(queue, q.ListChildren(job_id=job.id, limit=9, tenant="b")) == []
    assert ask(queue, q.LoadJobs(job_ids=(job.id,), tenant="a")).jobs.keys() == {job.id}


def test_a_family_is_one_tenants(make_queue: MakeQueue) -> None:
    """Nobody adds a child to another tenant's job, nor takes the id of one."""
    queue, other = make_queue(tenant="a"), make_queue(tenant="b")
    parent = queue.add("parent")

    with pytest.raises(NotFound, match="parent job"):
        ask(other, c.Add(jobs=(c.NewJob(task="child", tenant="b", parent_id=parent.id),)))
    with pytest.raises(BadInput, match="no other job has"):
        ask(other, c.Add(jobs=(c.NewJob(task="thief", tenant="b", id=parent.id),)))

    assert ask(queue, c.Add(jobs=(c.NewJob(task="parent", tenant="a", id=parent.id),))) == [parent.id]


def test_what_a_tenant_sees_of_workers_and_defaults_is_its_own(make_queue: MakeQueue) -> None:
    """Of a shared worker only that it is there; and a tenant's token replaces nobody else's."""
    from holdfast.core.defaults import Defaults
    from holdfast.core.worker import Served, Worker

    queue, until_ms = make_queue(), 1 << 42
    own = Worker(
        name="own",
        host="h",
        pid=1,
        started_at=1,
        until_ms=until_ms,
        serves=(Served(tenant="a", tasks=("t",)),),
    )
    shared = Worker(
        name="shared",
        host="h",
        pid=2,
        started_at=2,
        until_ms=until_ms,
        serves=(Served(tenant=None, tasks=("t",)),),
    )
    others = Worker(
        name="b's",
        host="h",
        pid=3,
        started_at=3,
        until_ms=until_ms,
        serves=(Served(tenant="b", tasks=("t",)),),
    )
    for worker in (own, shared, others):
        ask(queue, c.Enlist(worker=worker))
    for tenant in ("a", "b", None):
        ask(queue, c.Publish(tasks=((tenant, "t", Defaults(max_attempts=3)),)))

    seen = ask(queue, q.ListWorkers(tenant="a"))
    # Its process is entered by the engine.
    assert (replace(seen[0], owner=0), [one.name for one in seen]) == (own, ["own", "shared"])
    assert (seen[1].host, seen[1].pid, seen[1].serves) == ("", 0, (Served(tenant="a", tasks=("t",)),))
    assert {whose for whose, _, _ in ask(queue, q.ListDefaults(tenant="a"))} == {"a", None}
    overview = ask(queue, q.GetOverview(tenant="a", only_own=True))
    assert [one.name for one in overview.workers] == ["own", "shared"]

    grant = Grant(tenant="a", scopes=tuple(Scope))
    with pytest.raises(Forbidden, match="serves other tenants"):
        ask(queue, confine(grant, StopWorker(name="shared")))
    with pytest.raises(NotFound):
        ask(queue, confine(grant, StopWorker(name="b's")))
    ask(queue, confine(grant, StopWorker(name="own")))
    assert [one.name for one in ask(queue, q.ListWorkers()) if one.stopping] == ["own"]
    with pytest.raises(BadInput, match="a name that no other worker has"):
        ask(queue, confine(grant, c.Enlist(worker=Worker(name="shared", host="x", pid=9, started_at=9))))
    ask(queue, confine(grant, c.Dismiss(name="b's")))
    ask(queue, confine(grant, c.Dismiss(name="own")))
    assert [one.name for one in ask(queue, q.ListWorkers())] == ["b's", "shared"]
