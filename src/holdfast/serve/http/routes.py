"""How a request on a path of `core.verbs` becomes the record that is asked for.

Every command and query can also be asked by its name, at `/v1/commands/NAME` and `/v1/queries/NAME`.
"""

from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from ...core import commands as c
from ...core import handler as h
from ...core import queries as q
from ...core.limits import Limit
from ...core.schedule import HISTORY, Schedule
from ...core.verbs import REPLIES, VERBS, Asked, VerbRow, in_path
from .forms import Part, define, fields_of, form_of
from .values import Whole

# The paths whose requests and replies need nothing but their records.
ROUTES = tuple(verb for verb in VERBS if not verb.by_hand)

# Every command and query by its name, but for what a server asks itself.
BY_NAME = tuple(
    VerbRow(
        "POST",
        f"/v1/{'commands' if issubclass(kind, c.Command) else 'queries'}/{kind.__name__}",
        kind,
        reply="reply",
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

    route: VerbRow
    # The type of the body, or of the query; None: there are no fields.
    type: Any
    parts: tuple[Part, ...]


def plan_of(route: VerbRow) -> RoutePlan:
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
