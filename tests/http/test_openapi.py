"""The OpenAPI document is true: what it says is sent and taken by a running server."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.core.replies import REPLIES
from holdfast.serve.http.api import PLANS, SPECIAL
from holdfast.serve.http.openapi import document

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
SCHEMA = schemathesis.openapi.from_dict(document())
# Longer than any reply takes, on a busy machine.
PATIENT_S = 120
# Streams do not end, and a server that closes its own token's door proves nothing.
STREAMS = ("/v1/events", "/v1/jobs/{job_id}/events")


@pytest.fixture
def address(served):
    """Where a server is."""
    return "http://{}:{}".format(*served.address)


def test_every_path_is_described():
    """And nothing is that is not there."""
    served = {(plan.route.method, plan.route.path.replace(":path}", "}")) for plan in PLANS}
    served |= {(method, path) for method, path, _ in SPECIAL} | {("GET", "/v1/events")}
    described = {
        (method.upper(), path) for path, methods in document()["paths"].items() for method in methods
    }

    assert described == served
    names = [one["operationId"] for methods in document()["paths"].values() for one in methods.values()]
    assert len(set(names)) == len(names)


def test_every_command_and_query_has_a_path():
    """By its name, but for the one that is no client's."""
    paths = document()["paths"]

    named = {path.rpartition("/")[2] for path in paths if path.startswith(("/v1/commands/", "/v1/queries/"))}
    assert named == {kind.__name__ for kind in REPLIES} - {"FindToken"}


@SCHEMA.exclude(path=list(STREAMS)).parametrize()
@settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, *HealthCheck],
)
def test_the_server_does_what_the_document_says(case, address):
    """Statuses, types and bodies of all paths, for requests made of the document."""
    if (case.method, case.path) == ("POST", "/schedule/"):
        # It says 500 of a type that is empty, as the document has it.
        case.call_and_validate(base_url=address, checks=CHECKS[1:], timeout=PATIENT_S)
        return
    if isinstance(case.body, dict) and "wait" in case.body:
        case.body["wait"] = 0
    case.query = {name: value for name, value in (case.query or {}).items() if name != "wait"}
    case.call_and_validate(base_url=address, checks=CHECKS, timeout=PATIENT_S)
