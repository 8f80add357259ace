"""Access rules: the scope that each command and query needs, and how it is confined to one tenant.

A server passes each decoded request to `confine(grant, asked)` and executes what that returns:

    no scope of the grant allows it            Forbidden
    it names another tenant                    Forbidden
    it names none, or ""                       the grant's tenant is filled in
    it names jobs by their ids                 the grant's tenant is filled in: jobs of others are not found
    its reply would concern all tenants        Forbidden, unless the grant is for all tenants

A test checks that every command and query has a rule here. The claimed record that a client sends (`held`) is
dropped, because a client can send anything; a server that has kept the record fills it in.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from . import commands as c
from . import handler as h
from . import queries as q
from .commands import RunSchedule, SetRetention, StopWorker, TakeSysid
from .errors import Forbidden
from .history import GetHistory
from .queries import GetRetention, ListTasks, SearchJobs
from .token import Grant as Grant
from .token import Scope as Scope

Asked = c.Command | q.Query
A = TypeVar("A", bound=c.Command | q.Query)
Confine = Callable[[str, Any], Any]

ADD, WORK, READ, MANAGE = (Scope.ADD,), (Scope.WORK,), (Scope.READ,), (Scope.MANAGE,)
HANDLERS = (Scope.HANDLERS,)
# What workers need to read about the jobs that they run.
READ_OR_WORK = (Scope.READ, Scope.WORK)
ANY = tuple(Scope)
# Queries that only a server itself may make.
SERVER_ONLY: tuple[Scope, ...] = ()

# The audit logs of the dashboard, to which only the server writes: of each tenant's tokens, and of tokens for
# all tenants. Both are kept under a tenant, the second under "", whose tokens may not read it.
AUDIT_LOG, OPERATORS_LOG = "holdfast.audit", "holdfast.audit.operators"
# The sessions of the dashboard that a sign-out has ended.
SESSIONS_LOG = "holdfast.sessions"

# Everything that a client without a token may do.
EVERYTHING = Grant()


def confine(grant: Grant, asked: A, *, ids_are_own: bool = False) -> A:
    """Return the command or query, confined to what the grant allows; raise `Forbidden`.

    `ids_are_own`: the ids of new jobs were reserved by this client. Otherwise a client of one tenant may not
    name ids, because another process may be about to use the id for a job of another tenant.
    """
    kind = type(asked)
    scopes, keep = RULES[kind]
    if kind in _SCOPES_BY_CONTENT:
        scopes = _SCOPES_BY_CONTENT[kind](asked)
    _check_scopes(grant, kind, scopes)
    if kind in _SCREENS:
        asked = _SCREENS[kind](grant, asked)
    if grant.tenant is None:
        return asked
    if keep is None:
        raise Forbidden(
            f"{kind.__name__} is about all tenants, and this token is for tenant {grant.tenant!r}"
        )
    if isinstance(asked, c.Add) and not ids_are_own and (asked.ids or any(new.id for new in asked.jobs)):
        raise Forbidden("a token of one tenant cannot choose the ids of jobs")
    kept: A = keep(grant.tenant, asked)
    return kept


def check_kind(grant: Grant, kind: type[Asked]) -> None:
    """Raise `Forbidden` if the grant allows no command or query of this type.

    A server calls it before it reads a request: without the scope a client must not have its message decoded.
    """
    _check_scopes(grant, kind, _SCOPES_OF_ANY.get(kind) or RULES[kind][0])


def _check_scopes(grant: Grant, kind: type, scopes: tuple[Scope, ...]) -> None:
    for scope in scopes:
        if scope in grant.scopes:
            return
    if not scopes:
        raise Forbidden(f"{kind.__name__} is not for clients")
    raise Forbidden(f"{kind.__name__} needs a token with scope {' or '.join(scopes)}")


def _screen_token(grant: Grant, asked: c.CreateToken) -> c.CreateToken:
    """Refuse a token that allows more than the grant of its creator."""
    if more := [scope for scope in asked.token.scopes if scope not in grant.scopes]:
        raise Forbidden(f"this token cannot give scope {', '.join(more)}, which it does not have")
    return asked


def _screen_log(_grant: Grant, asked: Any) -> Any:
    if asked.log in (AUDIT_LOG, OPERATORS_LOG, SESSIONS_LOG):
        raise Forbidden(f"only the server writes to the log {asked.log}")
    return asked


def _screen_read_log(grant: Grant, asked: q.ReadLog) -> q.ReadLog:
    if asked.log in (OPERATORS_LOG, SESSIONS_LOG) and grant.tenant is not None:
        raise Forbidden(f"the log {asked.log} is for tokens of all tenants")
    return _screen_data(grant, asked)  # type: ignore[no-any-return]


def _screen_handler(grant: Grant, asked: h.SetHandler) -> h.SetHandler:
    """Refuse code where the server says so; a URL is none."""
    if grant.no_code and asked.handler.lang != h.HTTP:
        raise Forbidden(grant.no_code)
    return asked


def _screen_answer(grant: Grant, asked: c.Answer) -> c.Answer:
    if asked.suspend is not None and asked.suspend.jobs:
        # The jobs that a job calls are new ones.
        _check_scopes(grant, c.Add, ADD)
    return asked if asked.held is None else replace(asked, held=None)


def _screen_step(_grant: Grant, asked: c.Step) -> c.Step:
    return asked if asked.held is None else replace(asked, held=None)


def _screen_answers(grant: Grant, asked: c.AnswerAll) -> c.AnswerAll:
    return replace(asked, answers=tuple(_screen_answer(grant, one) for one in asked.answers), held=())


# What a client of any tenant may not say, refused or dropped.
def sees_secrets(grant: Grant) -> bool:
    """Whether data is shown whole: to workers, to clients that may change it, and with scope `data`."""
    return any(scope in grant.scopes for scope in (Scope.DATA, Scope.WORK, Scope.MANAGE))


def _screen_data(grant: Grant, asked: Any) -> Any:
    return asked if sees_secrets(grant) else replace(asked, redacted=True)


_SCREENS: dict[type, Callable[[Grant, Any], Any]] = {
    **dict.fromkeys((q.GetData, q.GetSteps, q.LoadJobs, q.LoadFamilies, q.LoadEnded), _screen_data),
    **dict.fromkeys((SearchJobs, c.Await), _screen_data),
    c.Answer: _screen_answer,
    c.AnswerAll: _screen_answers,
    c.Step: _screen_step,
    c.Append: _screen_log,
    c.TrimLog: _screen_log,
    q.ReadLog: _screen_read_log,
    c.CreateToken: _screen_token,
    h.SetHandler: _screen_handler,
}
# Where the scopes depend on more than the type. A worker updates the job that it holds, and looks whether it
# is to stop.
_SCOPES_BY_CONTENT: dict[type, Callable[[Any], tuple[Scope, ...]]] = {
    c.Update: lambda asked: MANAGE if asked.hold is None else WORK,
    q.ListWorkers: lambda asked: READ if asked.name is None else READ_OR_WORK,
}
# Of these types, the scopes of which one is needed whatever the content.
_SCOPES_OF_ANY: dict[type, tuple[Scope, ...]] = {
    c.Update: (Scope.MANAGE, Scope.WORK),
    q.ListWorkers: READ_OR_WORK,
}


# How each is confined to a tenant


def _own(tenant: str, named: str | None) -> str:
    """Return the tenant of the token; raise if the client named another. "" counts as naming none."""
    if named in (None, "", tenant):
        return tenant
    raise Forbidden(f"this token is for tenant {tenant!r}, not for {named!r}")


def _tenant(tenant: str, asked: Any) -> Any:
    return replace(asked, tenant=_own(tenant, asked.tenant))


def _as_is(_tenant: str, asked: Any) -> Any:
    return asked


def _hold(tenant: str, asked: Any) -> Any:
    return replace(asked, hold=_own_hold(tenant, asked.hold))


def _answer(tenant: str, asked: c.Answer) -> c.Answer:
    if asked.suspend is not None and asked.suspend.jobs:
        jobs = tuple(_new(tenant, new) for new in asked.suspend.jobs)
        asked = replace(asked, suspend=replace(asked.suspend, jobs=jobs))
    return _hold(tenant, asked)  # type: ignore[no-any-return]


def _holds(tenant: str, asked: c.AnswerAll) -> c.AnswerAll:
    return replace(asked, answers=tuple(_answer(tenant, one) for one in asked.answers))


def _own_hold(tenant: str, hold: c.Hold) -> c.Hold:
    return replace(hold, tenant=_own(tenant, hold.tenant))


def _new(tenant: str, new: c.NewJob) -> c.NewJob:
    then, on_failure = (one and _new(tenant, one) for one in (new.then, new.on_failure))
    return replace(new, tenant=_own(tenant, new.tenant), then=then, on_failure=on_failure)


def _add(tenant: str, asked: c.Add) -> c.Add:
    hold = None if asked.hold is None else _own_hold(tenant, asked.hold)
    return replace(asked, jobs=tuple(_new(tenant, new) for new in asked.jobs), hold=hold)


def _claim(tenant: str, asked: c.Claim) -> c.Claim:
    for named in (*(asked.tenants or ()), *(whose for whose, _, _ in asked.picks)):
        _own(tenant, named)
    picks = tuple((tenant, task, most) for _, task, most in asked.picks)
    return replace(asked, tenant=_own(tenant, asked.tenant), tenants=None, picks=picks)


def _update(tenant: str, asked: c.Update) -> c.Update:
    return _tenant(tenant, asked if asked.hold is None else _hold(tenant, asked))  # type: ignore[no-any-return]


def _set_schedule(tenant: str, asked: c.SetSchedule) -> c.SetSchedule:
    schedule = replace(asked.schedule, tenant=_own(tenant, asked.schedule.tenant))
    return replace(asked, schedule=schedule, job=_new(tenant, asked.job))


def _enlist(tenant: str, asked: c.Enlist) -> c.Enlist:
    serves = tuple(replace(one, tenant=_own(tenant, one.tenant)) for one in asked.worker.serves)
    return _tenant(tenant, replace(asked, worker=replace(asked.worker, serves=serves)))  # type: ignore[no-any-return]


def _publish(tenant: str, asked: c.Publish) -> c.Publish:
    return replace(asked, tasks=tuple((_own(tenant, whose), *rest) for whose, *rest in asked.tasks))


def _tenants(tenant: str, asked: Any) -> Any:
    for named in asked.tenants or ():
        _own(tenant, named)
    return replace(asked, tenants=(tenant,))


def _list_jobs(tenant: str, asked: Any) -> Any:
    return replace(asked, filter=asked.filter._replace(tenant=_own(tenant, asked.filter.tenant)))


def _load_jobs(tenant: str, asked: q.LoadJobs) -> q.LoadJobs:
    holder_of = None if asked.holder_of is None else _new(tenant, asked.holder_of)
    return _tenant(tenant, replace(asked, holder_of=holder_of))  # type: ignore[no-any-return]


def _overview(tenant: str, asked: q.GetOverview) -> q.GetOverview:
    return _tenant(tenant, replace(asked, only_own=True))  # type: ignore[no-any-return]


def _set_handler(tenant: str, asked: h.SetHandler) -> h.SetHandler:
    return replace(asked, handler=replace(asked.handler, tenant=_own(tenant, asked.handler.tenant)))


def _find_handlers(tenant: str, asked: h.FindHandlers) -> h.FindHandlers:
    return replace(asked, pairs=tuple(one._replace(tenant=_own(tenant, one.tenant)) for one in asked.pairs))


# For each type: the scopes of which one is needed, and how it is confined to a tenant; None: it cannot be.
RULES: dict[type, tuple[tuple[Scope, ...], Confine | None]] = {
    c.Add: (ADD, _add),
    c.Append: (ADD, _tenant),
    c.ReserveIds: (ADD, _as_is),
    # The holder of a sysid makes ids for jobs of any tenant.
    TakeSysid: (ADD, None),
    c.Claim: (WORK, _claim),
    c.AnswerAll: (WORK, _holds),
    c.Answer: (WORK, _answer),
    **dict.fromkeys((c.Release, c.Extend, c.Report, c.Step, c.WriteLog), (WORK, _hold)),
    c.SendSignal: ((Scope.MANAGE, Scope.SIGNAL), _tenant),
    **dict.fromkeys((c.StartProgress, c.MoveProgress, c.TrimLog, c.Dismiss), (WORK, _tenant)),
    c.Enlist: (WORK, _enlist),
    c.Publish: (WORK, _publish),
    c.Upkeep: (WORK, None),
    c.Update: (MANAGE, _update),
    **dict.fromkeys((c.Cancel, c.Requeue, c.RequeueAll, c.Delete, c.Purge), (MANAGE, _tenant)),
    **dict.fromkeys((c.SetLimit, c.Pause, c.SetProgress), (MANAGE, _tenant)),
    c.SetSchedule: (MANAGE, _set_schedule),
    **dict.fromkeys((c.DeleteSchedule, c.PauseSchedule, RunSchedule, StopWorker), (MANAGE, _tenant)),
    **dict.fromkeys((c.CreateToken, c.RevokeToken, q.ListTokens), (MANAGE, None)),
    SetRetention: (MANAGE, None),
    GetRetention: (READ, _as_is),
    q.FindToken: (SERVER_ONLY, None),
    # The scripts may contain secrets: only their owner and the workers that run them may read them.
    h.SetHandler: (HANDLERS, _set_handler),
    **dict.fromkeys((h.RollBackHandler, h.DeleteHandler, h.GetHandler), (HANDLERS, _tenant)),
    h.FindHandlers: (WORK, _find_handlers),
    **dict.fromkeys((h.ListHandlers, h.ListHandlerVersions), ((Scope.READ, Scope.HANDLERS), _tenant)),
    c.Await: (READ, _tenant),
    **dict.fromkeys((q.GetJob, q.GetData, q.GetSteps, q.LoadFamilies, q.LoadEnded), (READ_OR_WORK, _tenant)),
    q.LoadJobs: (READ_OR_WORK, _load_jobs),
    **dict.fromkeys((q.GetLog, q.Explain, q.ListChildren, q.CountJobs), (READ, _tenant)),
    # It can read all data.
    q.SelectJobs: ((Scope.DATA, Scope.MANAGE), _tenant),
    **dict.fromkeys((q.ListJobs, SearchJobs), (READ, _list_jobs)),
    **dict.fromkeys((q.HasUnfinished, q.CountReady, q.ListWaiting), (READ_OR_WORK, _tenants)),
    q.ListSchedules: (READ, _tenant),
    # Who sets a limit that code declares reads the one before it.
    q.ListLimits: ((Scope.READ, Scope.MANAGE), _tenant),
    **dict.fromkeys((q.ListPauses, q.ListDefaults), (READ_OR_WORK, _tenant)),
    **dict.fromkeys((q.ListWorkers, GetHistory, ListTasks), (READ, _tenant)),
    q.GetOverview: (READ, _overview),
    **dict.fromkeys((q.ListConsumers, q.GetProgress, q.ReadLog), (READ_OR_WORK, _tenant)),
    q.CheckCounts: (READ, None),
    q.GetReport: (READ, None),
    q.GetNextMoment: (READ_OR_WORK, None),
    q.GetTime: (ANY, _as_is),
}
