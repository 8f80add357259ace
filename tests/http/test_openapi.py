"""The OpenAPI document is true: what it says is sent and taken by a running server."""

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from holdfast.core.verbs import REPLIES
from holdfast.serve.http.api import PLANS, SPECIAL
from holdfast.serve.http.openapi import document

# Longer than any reply takes, on a busy machine.
PATIENT_S = 120
# Streams do not end, and a server that closes its own token's door proves nothing.
STREAMS = ("/v1/events", "/v1/jobs/{job_id}/events")
OPERATIONS = [
    (method, path)
    for path, methods in document()["paths"].items()
    for method in methods
    if path not in STREAMS
]


@pytest.fixture
def address(served):
    """Where a server is."""
    return "http://{}:{}".format(*served.address)


def test_every_path_is_described():
    """And nothing is that is not there."""
    served = {(plan.route.method, plan.route.path.replace(":path}", "}")) for plan in PLANS}
    served |= {(method, path) for method, path, *_ in SPECIAL}
    served |= {("GET", path) for path in ("/v1/events", "/metrics", "/healthz", "/readyz")}
    described = {
        (method.upper(), path) for path, methods in document()["paths"].items() for method in methods
    }

    assert described == served
    names = [one["operationId"] for methods in document()["paths"].values() for one in methods.values()]
    assert len(set(names)) == len(names)


def test_what_clients_send_is_described_and_bounded():
    """Each operation, parameter and field of the usual paths; each number has its least and most."""
    made = document()
    lacking = []
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            if not operation["description"]:
                lacking.append(where)
            lacking += [
                f"{where} {one['name']}" for one in operation.get("parameters", ()) if not one["description"]
            ]
            body = (
                operation.get("requestBody", {})
                .get("content", {})
                .get("application/json", {})
                .get("schema", {})
            )
            if not path.startswith(("/v1/commands/", "/v1/queries/")):
                lacking += [f"{where} {name}" for name in undescribed(made, body)]

    assert lacking == []


def undescribed(made: Any, schema: Any) -> list[str]:
    """The fields of a request that lack a description, or a number's bounds."""
    if name := schema.get("$ref", "").rpartition("/")[2]:
        schema = made["components"]["schemas"][name]
    return [
        name
        for name, one in schema.get("properties", {}).items()
        if not one.get("description") or (one.get("type") in ("integer", "number") and "maximum" not in one)
    ]


def test_every_command_and_query_has_a_path():
    """By its name, but for the one that is no client's."""
    paths = document()["paths"]

    named = {path.rpartition("/")[2] for path in paths if path.startswith(("/v1/commands/", "/v1/queries/"))}
    assert named == {kind.__name__ for kind in REPLIES} - {"FindToken"}


@cache
def schema() -> Any:
    """The document, read by Schemathesis: imported here, since that takes seconds in each process."""
    import schemathesis

    return schemathesis.openapi.from_dict(document())


def checks() -> list[Any]:
    """What is checked of every reply; the first is left out for one path."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    kinds = (
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    )
    return [not_a_server_error, *kinds]


# Of the paths that are no routes of their own, which all go one way: a few here, the others in `make proof`.
BY_NAME = [one for one in OPERATIONS if one[1].startswith(("/v1/commands/", "/v1/queries/"))]
USUAL = [one for one in OPERATIONS if one not in BY_NAME]


@pytest.mark.long
@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([*USUAL, *BY_NAME[::8]], id="usual"),
        pytest.param(BY_NAME, id="by name", marks=pytest.mark.proof),
    ],
)
def test_the_server_does_what_the_document_says(address, operations):
    """Statuses, types and bodies of all paths, for requests made of the document."""
    for method, path in operations:
        ask_for(method, path, address)


def ask_for(method: str, path: str, address: str) -> None:
    """Send requests to an operation, and check the replies; what fails names it."""

    @given(case=schema()[path][method].as_strategy())
    @settings(max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        asked = checks()
        if (method, path) == ("post", "/schedule/"):
            # It says 500 of a type that is empty, as the document has it.
            del asked[0]
        if isinstance(case.body, dict) and "wait" in case.body:
            case.body["wait"] = 0
        case.query = {name: value for name, value in (case.query or {}).items() if name != "wait"}
        case.call_and_validate(base_url=address, checks=asked, timeout=PATIENT_S)

    ask()
