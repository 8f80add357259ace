"""The OpenAPI document, made of the paths and of the forms that read and write them: so it is true."""

import sys
from functools import cache
from typing import Any

import msgspec

from ...core import bounds as b
from ...core import commands as c
from ...core.bounds import HTTP_KEY_BYTES, HTTP_WAIT_S
from ...core.ids import SYSIDS
from ...core.incoming import MOST_AT_ONCE
from ...core.job import Job
from ...core.verbs import FIELDS, in_path
from . import documents, jobs, tokens
from .exchange import BYTES, EVENTS, JSON, NDJSON
from .forms import Part, form_of, reply_form
from .problems import TYPE, Problem
from .routes import BY_NAME, ROUTES, RoutePlan, plan_of
from .values import Id, Name

Json = dict[str, Any]
ABOUT = """Jobs over HTTP. Times are milliseconds since 1970 in UTC; 0 means none. Ids are text. Every command
and query has a path of its own name; the usual ones have shorter paths too. Errors are RFC 9457 problems."""
TEXT = "text/plain"
_TEXT: Json = {"type": "string"}
_WAIT: Json = {"type": "number", "minimum": 0, "maximum": HTTP_WAIT_S}


@cache
def document() -> Json:
    """The whole document."""
    schemas = _Schemas()
    paths: Json = {}
    for plan in (plan_of(route) for route in (*ROUTES, *BY_NAME)):
        _put(paths, plan.route.method, plan.route.path, _operation(schemas, plan))
    for method, path, operation in _special(schemas):
        _put(paths, method, path, operation)
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": sys.modules["holdfast"].__version__,
            "description": " ".join(ABOUT.split()),
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.components(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    describe_all(made)
    return made


def _put(paths: Json, method: str, path: str, operation: Json) -> None:
    path = path.replace(":path}", "}")
    fields = [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(name)} for name in in_path(path)
    ]
    if fields:
        operation["parameters"] = fields + operation.get("parameters", [])
    for field in operation.get("parameters", ()):
        field["schema"] = dict(field["schema"])
        describe_field(field["name"], field["schema"])
        field.setdefault("description", field["schema"].pop("description", ""))
    operation["responses"] |= {"4XX": _PROBLEM, "5XX": _PROBLEM}
    paths.setdefault(path, {})[method.lower()] = operation


def _path_schema(name: str) -> Json:
    if name == "domain":
        return _TEXT
    return msgspec.json.schema(Id if name == "job_id" else Name)


class _Schemas:
    """Types as they are met, and the schemas of all of them in the end."""

    def __init__(self) -> None:
        self._types: list[Any] = [Problem, form_of(Job).type]

    def of(self, kind: Any) -> Json:
        """The schema of a type, which may refer to others."""
        self._types.append(kind)
        (found,), _ = msgspec.json.schema_components((kind,), ref_template="#/components/schemas/{name}")
        return found

    def components(self) -> Json:
        """All schemas that are referred to."""
        return msgspec.json.schema_components(self._types, ref_template="#/components/schemas/{name}")[1]


_PROBLEM: Json = {
    "description": "What went wrong",
    "content": {TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def _operation(schemas: _Schemas, plan: RoutePlan) -> Json:
    route = plan.route
    operation: Json = {"operationId": route.name, "summary": route.summary, "description": route.description}
    if route.method in ("GET", "DELETE"):
        operation["parameters"] = [_parameter(schemas, part) for part in plan.parts]
    elif plan.type is not None:
        needed = any(part.required for part in plan.parts)
        operation["requestBody"] = {"required": needed, "content": {JSON: {"schema": schemas.of(plan.type)}}}
    operation["responses"] = {str(route.status): _reply(schemas, plan)}
    return operation


def _parameter(schemas: _Schemas, part: Part) -> Json:
    return {"name": part.name, "in": "query", "required": part.required, "schema": schemas.of(part.type)}


def _reply(schemas: _Schemas, plan: RoutePlan) -> Json:
    if plan.route.status == 204:
        return {"description": "Done"}
    schema = schemas.of(reply_form(plan.route.kind).type)
    if name := plan.route.reply:
        schema = {"type": "object", "required": [name], "properties": {name: schema}}
    return _content("The reply", schema)


def _content(about: str, schema: Json, kind: str = JSON) -> Json:
    return {"description": about, "content": {kind: {"schema": schema}}}


def _query(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _named(name: str, about: str, responses: Json, **more: Any) -> Json:
    return {"operationId": name, "summary": about, "description": about, "responses": responses, **more}


def _body(schema: Json) -> Json:
    return {"required": True, "content": {JSON: {"schema": schema}}}


def _special(schemas: _Schemas) -> list[tuple[str, str, Json]]:
    """The paths that `api.SPECIAL` answers."""
    children = [_parameter(schemas, part) for part in (*jobs.PAGE, Part("tenant", Name, False))]
    filters = [_parameter(schemas, part) for part in (*jobs.JOB_QUERY, *jobs.PAGE)]
    listed = {"200": _content("A page of jobs", schemas.of(jobs.JobList))}
    listed["200"]["content"][NDJSON] = {"schema": _TEXT}
    data = {"200": {"description": "The data", "content": {JSON: {"schema": {}}, BYTES: {"schema": {}}}}}
    ended = {"200": _content("How it ended", schemas.of(form_of(c.Ended).type))}
    ended["202"] = _content("It has not ended", {"type": "null"})
    events = {"200": _content("Events", _TEXT, EVENTS)}
    job = "/v1/jobs/{job_id}"
    healthy = {"200": _content("It does", _object(["status"], status=_TEXT))}
    return [
        ("POST", "/v1/jobs", _add(schemas)),
        ("GET", "/v1/jobs", _named("listJobs", "List jobs by id.", listed, parameters=filters)),
        ("GET", f"{job}/data", _named("getData", "The data of a job.", data)),
        (
            "GET",
            f"{job}/result",
            _named("getResult", "Wait for a job.", ended, parameters=[_query("wait", _WAIT)]),
        ),
        ("GET", f"{job}/children", _named("listChildren", "List children.", listed, parameters=children)),
        ("GET", f"{job}/events", _named("jobEvents", "A job at each change.", events)),
        ("POST", f"{job}/signals/{{name}}", _signal()),
        ("GET", "/v1/events", _named("events", "Counts.", events, parameters=[_query("tenant", _TEXT)])),
        ("POST", "/v1/tokens", _token(schemas)),
        (
            "GET",
            "/metrics",
            _named("metrics", "Metrics for Prometheus.", {"200": _content("Text", _TEXT, TEXT)}),
        ),
        ("GET", "/healthz", _named("healthz", "Whether the server is alive. Needs no token.", healthy)),
        ("GET", "/readyz", _named("readyz", "Whether the store answers too. Needs no token.", healthy)),
        *_documents(schemas),
    ]


def _key(about: str) -> Json:
    key: Json = {"name": "Idempotency-Key", "in": "header", "required": False, "description": about}
    return key | {
        "schema": {"type": "string", "minLength": 1, "maxLength": HTTP_KEY_BYTES, "pattern": "^[ -~]+$"}
    }


def _signal() -> Json:
    """Sending a signal, whose body is its data."""
    about = "Send a signal to a job that waits for it, now or later. The body is its data: any JSON."
    key = _key("A signal that the job was sent with the same key is not sent again.")
    fields = [key, _query("tenant", msgspec.json.schema(Name))]
    sent = {"204": {"description": "Done"}}
    return _named("sendSignal", about, sent, parameters=fields, requestBody=_body({}) | {"required": False})


def _add(schemas: _Schemas) -> Json:
    """Adding jobs: one in JSON, or many in NDJSON."""
    key = _key("Jobs that were added with the same key are not added again.")
    added = {"201": _content("The job's id", schemas.of(jobs.AddedJob))}
    added["201"]["content"][NDJSON] = {"schema": _TEXT}
    added["200"] = _content("The id of the job that had the unique key before", schemas.of(jobs.AddedJob))
    body = _body(schemas.of(form_of(c.NewJob).type))
    body["content"][NDJSON] = {"schema": _TEXT}
    about = "Add a job; of NDJSON one for each line."
    return _named("addJob", about, added, parameters=[key], requestBody=body)


def _token(schemas: _Schemas) -> Json:
    made = {"201": _content("The token and its secret", schemas.of(tokens.NewSecret))}
    return _named("createToken", "Create a token.", made, requestBody=_body(schemas.of(tokens.NewToken)))


def _documents(schemas: _Schemas) -> list[tuple[str, str, Json]]:
    """The paths of the documents."""
    job_type: Json = {"type": "string", "pattern": "\\S", "maxLength": 255}
    seconds: Json = {"type": "number", "minimum": 0}
    job = _body(_object(["type"], type=job_type, payload={}))
    planned = _body(_object(["job_type"], job_type=job_type, payload={}, run_after_secs=seconds))
    payload = _body(_object(["payload"], payload={}))
    uuid = {
        "201": _content("Its id", _object(["job-id"], **{"job-id": {"type": "string", "format": "uuid"}}))
    }
    number = {"201": _content("Its id", _object(["job_id"], job_id=_TEXT))}
    done: Json = {"204": {"description": "Done"}}
    return [
        *_serverless(schemas),
        ("POST", "/jobber/queue", _named("jobberQueue", "Queue a job.", uuid, requestBody=job)),
        ("POST", "/schedule/", _named("schedule", "Run a job later.", number, requestBody=planned)),
        ("PUT", "/schedule/{job_id}", _named("reschedule", "Change it.", dict(done), requestBody=payload)),
        ("DELETE", "/schedule/{job_id}", _named("unschedule", "Remove it.", dict(done))),
    ]


def _serverless(schemas: _Schemas) -> list[tuple[str, str, Json]]:
    """The paths of the serverless document."""
    lines = {"required": True, "content": {TEXT: {"schema": _TEXT}}}
    script = {"required": True, "content": {TEXT: {"schema": {"type": "string", "minLength": 1}}}}
    language: Json = {"name": "method", "in": "query", "required": True}
    language["schema"] = {"type": "string", "pattern": "^[a-z][a-z0-9+._-]{0,31}$"}
    ids = {"201": _content("Their ids", schemas.of(documents.AddedIds))}
    kept, found = (
        {status: _content("The handler", schemas.of(documents.ServerlessHandler))}
        for status in ("201", "200")
    )
    done: Json = {"204": {"description": "Done"}}
    add, add_to = "Add a job for each line.", "/{client}/job/{type}/add"
    put, put_to = "Set a handler.", "/{client}/handler/add/{type}/add"
    get, get_from = "Get a handler.", "/{client}/handler/get/{type}"
    delete, path = "Delete a handler.", "/{client}/handler/del/{type}/delete"
    return [
        ("POST", add_to, _named("clientJobAdd", add, ids, requestBody=lines)),
        ("POST", put_to, _named("clientHandlerAdd", put, kept, parameters=[language], requestBody=script)),
        ("GET", get_from, _named("clientHandlerGet", get, found)),
        ("POST", path, _named("clientHandlerDelPost", delete, dict(done))),
        ("DELETE", path, _named("clientHandlerDel", delete, dict(done))),
    ]


def _object(required: list[str], **properties: Json) -> Json:
    return {"type": "object", "required": required, "properties": properties}


_TIME, _DURATION, _INDEX = (0, b.MAX_TIME_MS), (0, b.MAX_DURATION_MS), (0, b.MAX_INDEX)
BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("run_at", "expires_at", "before_ms", "created_at", "started_at", "finished_at"), _TIME),
    **dict.fromkeys(("lease_until", "scheduled_at", "again_at", "next_at", "last_run"), _TIME),
    **dict.fromkeys(("delay_ms", "expires_in_ms", "timeout_ms", "unique_for_ms", "ran_ms"), _DURATION),
    **dict.fromkeys(("every_ms", "jitter_ms", "retention_ms", "wall_ms", "cpu_ms"), _DURATION),
    **dict.fromkeys(("to", "up_to", "resets", "keep_keys", "processed", "head"), _INDEX),
    "priority": (0, b.MAX_PRIORITY),
    "max_attempts": (0, b.MAX_ATTEMPTS),
    "max_losses": (0, b.MAX_ATTEMPTS),
    "limit": (0, MOST_AT_ONCE),
    "owner": (0, SYSIDS - 1),
    "exit_code": (-(1 << 31), (1 << 31) - 1),
    "rate": (b.MIN_RATE_PER_S, b.MAX_RATE_PER_S),
    "burst": (0, b.MAX_BURST),
    "concurrency": (0, b.MAX_CONCURRENCY),
    "fraction": (0, 1),
    "jitter": (0, 1),
    "wait": (0, b.HTTP_WAIT_S),
    "run_after_secs": (0, b.MAX_DURATION_MS / b.SECOND_MS),
    **dict.fromkeys(("forgive", "crowd"), _INDEX),
}


def describe_field(name: str, schema: dict[str, Any]) -> None:
    """Add the description and the bounds of a field to its schema."""
    if name in FIELDS:
        schema.setdefault("description", FIELDS[name])
    for one in (schema, *schema.get("anyOf", ())):
        if name in BOUNDS and one.get("type") in ("integer", "number"):
            one["minimum"], one["maximum"] = BOUNDS[name]


def describe_all(found: Any) -> None:
    """Add the descriptions and bounds of all fields to the schemas in a part of the document."""
    if isinstance(found, dict):
        for name, schema in found.get("properties", {}).items():
            describe_field(name, schema)
        for value in found.values():
            describe_all(value)
    elif isinstance(found, list):
        for value in found:
            describe_all(value)
