"""The paths of `/v1`: which command or query each asks, and what its reply is called.

Fields in the path are named there; the others are in the query of a GET or DELETE, and in the JSON body of
all else. A holder's verbs have `owner` and `claim` instead of a `hold`. Every command and query can also be
asked by its name, at `/v1/commands/NAME` and `/v1/queries/NAME`.
"""

from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from ...core import commands as c
from ...core import handler as h
from ...core import queries as q
from ...core.bounds import DEFAULT_LEASE_MS
from ...core.limits import Limit
from ...core.managing import GetRetention, RunSchedule, SetRetention, StopWorker
from ...core.replies import REPLIES
from ...core.schedule import HISTORY, Schedule
from .forms import Part, define, fields_of, form_of
from .values import Whole

Asked = type[c.Command | q.Query]


class Route(NamedTuple):
    """One path. `reply` names what is replied, in an object; "": it is an object itself, or nothing."""

    method: str
    path: str
    kind: Asked
    reply: str = ""
    # Fields that the path settles.
    fixed: dict[str, Any] = {}
    # Fields that have another default here than in the record.
    defaults: dict[str, Any] = {}
    status: int = 200
    # It may wait: `wait`, in seconds.
    waits: bool = False

    @property
    def name(self) -> str:
        """What it is called in the OpenAPI document."""
        words = (
            self.path.replace("{", "by/")
            .replace("}", "")
            .removeprefix("/v1/")
            .replace(":path", "")
            .split("/")
        )
        return self.method.lower() + "".join(word.capitalize() for word in words)


ROUTES = (
    Route("GET", "/v1/jobs/{job_id}", q.GetJob),
    Route("PATCH", "/v1/jobs/{job_id}", c.Update, fixed={"hold": None}),
    Route("DELETE", "/v1/jobs/{job_id}", c.Delete, status=204),
    Route("POST", "/v1/jobs/{job_id}/cancel", c.Cancel),
    Route("POST", "/v1/jobs/{job_id}/requeue", c.Requeue),
    Route("GET", "/v1/jobs/{job_id}/steps", q.GetSteps, "steps"),
    Route("GET", "/v1/jobs/{job_id}/log", q.GetLog),
    Route("GET", "/v1/jobs/{job_id}/why", q.Explain, "why"),
    Route("POST", "/v1/jobs/{job_id}/answer", c.Answer),
    Route("POST", "/v1/jobs/{job_id}/release", c.Release),
    Route("POST", "/v1/jobs/{job_id}/extend", c.Extend),
    Route("POST", "/v1/jobs/{job_id}/progress", c.Report),
    Route("POST", "/v1/jobs/{job_id}/steps", c.Step),
    Route("POST", "/v1/jobs/{job_id}/log", c.WriteLog),
    # Not a lease without an end: a client that dies would keep its jobs forever.
    Route("POST", "/v1/claims", c.Claim, "jobs", defaults={"lease_ms": DEFAULT_LEASE_MS}, waits=True),
    Route("POST", "/v1/ids", c.ReserveIds, "ranges"),
    Route("POST", "/v1/purge", c.Purge, "purged"),
    Route("GET", "/v1/retention", GetRetention, "retention_ms"),
    Route("PUT", "/v1/retention", SetRetention, status=204),
    Route("GET", "/v1/counts", q.CountJobs, "counts"),
    Route("GET", "/v1/overview", q.GetOverview),
    Route("GET", "/v1/time", q.GetTime, "now_ms"),
    Route("GET", "/v1/workers", q.ListWorkers, "workers"),
    Route("POST", "/v1/workers/{name}/stop", StopWorker, status=204),
    Route("GET", "/v1/limits", q.ListLimits, "limits"),
    Route("PUT", "/v1/limits/{domain:path}", c.SetLimit, status=204),
    Route("DELETE", "/v1/limits/{domain:path}", c.SetLimit, fixed={"limit": None}, status=204),
    Route("GET", "/v1/pauses", q.ListPauses, "pauses"),
    Route("POST", "/v1/pauses", c.Pause, status=204),
    Route("GET", "/v1/schedules", q.ListSchedules, "schedules"),
    Route("PUT", "/v1/schedules/{name}", c.SetSchedule),
    Route("DELETE", "/v1/schedules/{name}", c.DeleteSchedule, status=204),
    Route("POST", "/v1/schedules/{name}/pause", c.PauseSchedule, fixed={"on": True}),
    Route("POST", "/v1/schedules/{name}/run", RunSchedule, "ids"),
    Route("POST", "/v1/schedules/{name}/resume", c.PauseSchedule, fixed={"on": False}),
    Route("GET", "/v1/handlers", h.ListHandlers, "handlers"),
    Route("GET", "/v1/handlers/{task}", h.GetHandler),
    Route("PUT", "/v1/handlers/{task}", h.SetHandler),
    Route("DELETE", "/v1/handlers/{task}", h.DeleteHandler, status=204),
    Route("GET", "/v1/handlers/{task}/versions", h.ListHandlerVersions, "versions"),
    Route("POST", "/v1/handlers/{task}/rollback", h.RollBackHandler),
    Route("GET", "/v1/consumers", q.ListConsumers, "consumers"),
    Route("GET", "/v1/consumers/{name}", q.GetProgress),
    Route("PUT", "/v1/consumers/{name}", c.SetProgress),
    Route("GET", "/v1/logs/{log}", q.ReadLog),
    Route("POST", "/v1/logs/{log}", c.Append, "appended"),
    Route("GET", "/v1/tokens", q.ListTokens, "tokens"),
    Route("DELETE", "/v1/tokens/{name}", c.RevokeToken, status=204),
)

# Every command and query by its name, but for what a server asks itself.
BY_NAME = tuple(
    Route(
        "POST",
        f"/v1/{'commands' if issubclass(kind, c.Command) else 'queries'}/{kind.__name__}",
        kind,
        "reply",
        waits=kind in (c.Claim, c.Await),
    )
    for kind in REPLIES
    if kind is not q.FindToken
)

WAIT = Part("wait", float, required=False)
# Fields of a schedule that clients do not send: its history, and its name, which is in the path.
_LIFE = {*HISTORY, "name"}
# What the store says of a handler, and the path.
_KEPT = {"task", "id", "version", "created_at", "restores"}


class RoutePlan(NamedTuple):
    """How the fields of a request become the record that is asked for."""

    route: Route
    # The type of the body, or of the query; None: there are no fields.
    type: Any
    parts: tuple[Part, ...]


def in_path(path: str) -> list[str]:
    """The fields that stand in a path."""
    return [word[1:-1].removesuffix(":path") for word in path.split("/") if word.startswith("{")]


def plan_of(route: Route) -> RoutePlan:
    """The plan of a path."""
    given = in_path(route.path)
    parts: list[Part] = []
    for field in fields_of(route.kind):
        if field.name in route.fixed or field.name in given:
            continue
        if field.name == "hold" and "job_id" in given:
            parts += [Part("owner", Whole, True), Part("claim", Whole, True)]
        elif route.kind is c.SetSchedule and field.name == "schedule" and given:
            parts += [part for one in fields_of(Schedule) if one.name not in _LIFE for part in one.parts]
        elif route.kind is h.SetHandler and given:
            parts += [part for one in fields_of(h.Handler) if one.name not in _KEPT for part in one.parts]
        elif route.kind is c.SetLimit and field.name == "limit" and given:
            # Without one it would be removed, which is another method.
            parts.append(Part("limit", form_of(Limit).type, True))
        else:
            parts += [_with_default(part, route.defaults) for part in field.parts]
    if route.waits:
        parts.append(WAIT)
    made = define(f"{route.name[0].upper()}{route.name[1:]}Body", parts, "", ()) if parts else None
    return RoutePlan(route, made, tuple(parts))


def _with_default(part: Part, defaults: dict[str, Any]) -> Part:
    """The field as the OpenAPI document describes it, with its default here."""
    if part.name not in defaults:
        return part
    shown = Meta(extra_json_schema={"default": defaults[part.name]})
    return part._replace(type=Annotated[part.type, shown])


def wire_fields(plan: RoutePlan, said: dict[str, Any], path: dict[str, str]) -> dict[str, Any]:
    """The fields of the record's own form, of what was sent and of what the path says."""
    route, said = plan.route, dict(said)
    said.pop("wait", None)
    if "owner" in said and "claim" in said and "job_id" in path and _has(route.kind, "hold"):
        hold = {"job_id": path["job_id"], "owner": said.pop("owner"), "claim": said.pop("claim")}
        said["hold"] = form_of(c.Hold).type(**hold)
        if _has(route.kind, "job_id"):
            said["job_id"] = path["job_id"]
    elif route.kind is c.SetSchedule and path:
        schedule = {name: said.pop(name) for name in list(said) if name != "job"}
        said["schedule"] = form_of(Schedule).type(name=path["name"], **schedule)
    elif route.kind is h.SetHandler and path:
        said = {"handler": form_of(h.Handler).type(task=path["task"], **said)}
    else:
        said |= path
    return route.defaults | said | route.fixed


def _has(kind: Asked, name: str) -> bool:
    return name in kind.__struct_fields__
