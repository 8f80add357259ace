"""Scopes and tenants: every command and query there is has a rule, and none leads to another tenant."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.access import EVERYTHING, RULES, Grant, Scope, confine
from holdfast.core.commands import TakeSysid
from holdfast.core.defaults import Defaults
from holdfast.core.errors import Forbidden
from holdfast.core.handler import FindHandlers, Handler, KnownHandler
from holdfast.core.indexed import LogItem
from holdfast.core.job import Job
from holdfast.core.queries import GetRetention
from holdfast.core.schedule import Schedule
from holdfast.core.token import Token, grant_of, hash_of, name_in, secret_of
from holdfast.core.verbs import REPLIES
from holdfast.core.worker import Served, Worker

OWN = Grant(tenant="own")
HOLD = c.Hold(job_id=1, owner=2, claim=3)
# What each needs beside its defaults.
NEEDED: dict[str, Any] = {
    "hold": HOLD,
    "job_id": 1,
    "job_ids": (1,),
    "jobs": (c.NewJob(task="t", then=c.NewJob(task="u")),),
    "answers": (c.Answer(hold=c.Hold(job_id=1, owner=1)),),
    "lease_ms": 1_000,
    "retention_ms": 1_000,
    "fraction": 0.5,
    "name": "n",
    "log": "l",
    "result": "1",
    "lines": ("x",),
    "domain": b"d",
    "schedule": Schedule(name="s", every_ms=1_000),
    "job": c.NewJob(task="t"),
    "before_ms": 1,
    "to": 1,
    "items": (LogItem(data="1"),),
    "worker": Worker(name="w", host="h", pid=1, started_at=1, serves=(Served(tenant=None, tasks=("t",)),)),
    "tasks": ((None, "t", Defaults()),),
    "token": Token(name="t", scopes=(Scope.ADD,)),
    "limit": 1,
    "count": 1,
    "for_ms": 1_000,
    "text": "SELECT 1",
    "tenant": "",
    "task": "t",
    "handler": Handler(task="t", lang="python", body="pass"),
    "pairs": (KnownHandler("", "t"),),
}


def one_of(kind: type[c.Command | q.Query]) -> Any:
    """A command or query of a kind, with what it needs."""
    fields = msgspec.structs.fields(kind)
    needed = NEEDED | ({"token": "t"} if kind is TakeSysid else {})
    return kind(**{field.name: needed[field.name] for field in fields if field.required})


def tenants_in(value: Any) -> list[Any]:
    """All tenants that a record names, in whatever part of it."""
    if isinstance(value, msgspec.Struct):
        found = [value.tenant] if hasattr(value, "tenant") else []
        return found + [one for field in value.__struct_fields__ for one in tenants_in(getattr(value, field))]
    if isinstance(value, q.JobFilter | KnownHandler):
        return [value.tenant]
    if isinstance(value, tuple):
        if len(value) == 3 and isinstance(value[2], Defaults):
            return [value[0]]
        return [one for part in value for one in tenants_in(part)]
    return []


def named(asked: Any, tenant: str) -> Any:
    """The same with another tenant named wherever one may be; None: nowhere."""

    def renamed(value: Any) -> Any:
        if isinstance(value, msgspec.Struct):
            changed = {field: renamed(getattr(value, field)) for field in value.__struct_fields__}
            if "tenant" in changed:
                changed["tenant"] = tenant
            return type(value)(**changed)
        if isinstance(value, q.JobFilter | KnownHandler):
            return value._replace(tenant=tenant)
        if type(value) is not tuple:
            return value
        return (
            (tenant, *value[1:]) if value and isinstance(value[-1], Defaults) else tuple(map(renamed, value))
        )

    return renamed(asked)


def test_a_worker_of_one_tenant_still_serves_handlers():
    """Only the tenant is filled in."""
    worker = Worker(name="w", host="h", pid=1, started_at=1, serves=(Served(tenant=None, handlers=True),))

    kept = confine(OWN, c.Enlist(worker=worker))

    assert kept.worker.serves == (Served(tenant="own", handlers=True),)


def test_every_command_and_query_has_a_rule():
    """A new one is not reachable by chance: this fails until somebody has thought of it."""
    assert RULES.keys() == REPLIES.keys()


@pytest.mark.parametrize(
    "kind", [kind for kind, (_, keep) in RULES.items() if keep], ids=lambda k: k.__name__
)
def test_what_a_tenants_token_asks_is_about_that_tenant(kind):
    """Its tenant is put in everywhere; another one is refused, in whatever part of the record it is named."""
    asked = one_of(kind)
    kept = confine(OWN, asked)

    if kind not in (q.GetTime, GetRetention, c.ReserveIds):
        found = tenants_in(kept) + list(getattr(kept, "tenants", None) or ())
        assert found
        assert set(found) == {"own"}
        assert confine(OWN, named(asked, "own")) == named(kept, "own")
    if tenants_in(asked):
        with pytest.raises(Forbidden, match="not for 'other'"):
            confine(OWN, named(asked, "other"))


@pytest.mark.parametrize(
    "asked",
    [
        c.Claim(tenants=("other",)),
        c.Claim(tenants=("own", "other")),
        c.Claim(picks=(("other", "t", 1),)),
        c.Add(jobs=(c.NewJob(task="t", then=c.NewJob(task="t", tenant="other")),)),
        c.Add(jobs=(c.NewJob(task="t"), c.NewJob(task="t", tenant="other"))),
        c.Publish(tasks=(("other", "t", Defaults()),)),
        c.SetSchedule(schedule=Schedule(name="s"), job=c.NewJob(task="t", tenant="other")),
        q.LoadJobs(job_ids=(), holder_of=c.NewJob(task="t", tenant="other")),
        FindHandlers(pairs=(KnownHandler("own", "t"), KnownHandler("other", "t"))),
        q.HasUnfinished(tenants=("other",)),
        q.ListWaiting(tenants=("own", "other"), limit=1),
    ],
    ids=str,
)
def test_another_tenant_is_refused_wherever_it_stands(asked):
    """Also in lists, in what follows a job, in what a schedule adds."""
    with pytest.raises(Forbidden, match="not for 'other'"):
        confine(OWN, asked)


@pytest.mark.parametrize(
    "kind", [kind for kind, (_, keep) in RULES.items() if not keep], ids=lambda k: k.__name__
)
def test_what_tells_of_all_tenants_is_refused(kind):
    """A token for all tenants may ask it; what a server asks itself nobody may."""
    with pytest.raises(Forbidden):
        confine(OWN, one_of(kind))

    if kind is not q.FindToken:
        assert confine(EVERYTHING, one_of(kind)) == one_of(kind)
    else:
        with pytest.raises(Forbidden, match="not for clients"):
            confine(EVERYTHING, one_of(kind))


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_each_scope_allows_what_it_says(kind):
    """And nothing else; a token without scopes allows nothing."""
    scopes, asked = RULES[kind][0], one_of(kind)
    for scope in Scope:
        grant = Grant(tenant=None, scopes=(scope,))
        if scope in scopes and kind is not c.CreateToken:
            kept = confine(grant, asked)
            # Tokens that may only read get data without its secrets.
            is_redacted = hasattr(asked, "redacted") and scope is Scope.READ
            assert kept == (replace(asked, redacted=True) if is_redacted else asked)
        else:
            with pytest.raises(Forbidden):
                confine(grant, asked)
    with pytest.raises(Forbidden):
        confine(Grant(scopes=()), asked)


def test_a_holder_updates_by_its_claim():
    """Which is work, and managing is not needed for it."""
    held = c.Update(job_id=1, hold=HOLD, priority=1)

    assert confine(Grant(scopes=(Scope.WORK,)), held) == held
    with pytest.raises(Forbidden):
        confine(Grant(scopes=(Scope.MANAGE,)), held)


def test_a_worker_reads_its_own_entry():
    """By its name; to list all needs `read`."""
    worker = Grant(scopes=(Scope.WORK,))

    assert confine(worker, q.ListWorkers(name="w")) == q.ListWorkers(name="w")
    with pytest.raises(Forbidden):
        confine(worker, q.ListWorkers())


def test_a_token_cannot_give_more_than_it_has():
    """Else the scope to manage would be all scopes."""
    grant = Grant(scopes=(Scope.MANAGE, Scope.READ))

    for scopes, allowed in (((Scope.READ,), True), ((Scope.READ, Scope.ADD), False)):
        asked = c.CreateToken(token=Token(name="t", scopes=scopes))
        if allowed:
            assert confine(grant, asked) == asked
        else:
            with pytest.raises(Forbidden, match="scope add"):
                confine(grant, asked)


def test_what_a_client_says_it_holds_is_not_believed():
    """A forged record would be written over the job by whoever guesses its version."""
    forged = c.Answer(hold=HOLD, held=Job(id=1, tenant="own", task="t"))

    assert confine(EVERYTHING, forged).held is None
    assert confine(OWN, forged).held is None


def test_ids_of_new_jobs_are_chosen_by_those_they_were_given_to():
    """A guessed id would keep out the job of somebody who is given it later."""
    asked = c.Add(jobs=(c.NewJob(task="t", id=5),))

    with pytest.raises(Forbidden, match="ids"):
        confine(OWN, asked)
    assert confine(OWN, asked, ids_are_own=True).jobs[0].id == 5
    assert confine(EVERYTHING, asked) == asked


def test_a_secret_opens_what_its_token_says_until_it_expires():
    """A wrong secret, another token's, or a name without a token open nothing."""
    secret = secret_of("shop-1", bytes(24))
    token = Token(name="shop-1", tenant="own", scopes=(Scope.ADD,), hash=hash_of(secret), expires_at=100)

    assert name_in(secret) == "shop-1"
    assert grant_of(token, secret, now_ms=99) == Grant(tenant="own", scopes=(Scope.ADD,), name="shop-1")
    assert grant_of(token, secret, now_ms=100) is None
    assert grant_of(token, secret[:-1] + "1", now_ms=99) is None
    assert grant_of(None, secret, now_ms=99) is None
    assert [
        name_in(text) for text in ("", "hf_", "hf_a", "hf_a_b_c", "xx_a_b", "hf_ä_b", f"hf_{'a' * 65}_b")
    ] == [None] * 7
