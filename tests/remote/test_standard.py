"""Health and reflection of a server that asks for tokens."""

import threading
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from holdfast.core.token import Scope
from holdfast.proto.conversion import SERVICE
from tests.queue_suite.tools import LONG_S
from tests.remote.test_access import TokenServer

SERVING = health_pb2.HealthCheckResponse.SERVING
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"


@pytest.fixture
def guarded() -> Iterator[TokenServer]:
    """A server that asks for tokens."""
    made = TokenServer()
    yield made
    made.close()


@pytest.fixture
def channel(guarded: TokenServer) -> Iterator[grpc.Channel]:
    """A connection to it."""
    with grpc.insecure_channel(f"127.0.0.1:{guarded.port}") as made:
        yield made


def said(secret: str) -> list[tuple[str, str]]:
    """The metadata of a client with a token."""
    return [("authorization", f"Bearer {secret}")]


def test_a_health_check_without_a_token_is_answered_and_not_read(channel):
    """Its message could have a hundred megabytes: here it never comes."""
    leave = threading.Event()

    def messages() -> Iterator[bytes]:
        leave.wait(LONG_S)
        yield b""

    read = health_pb2.HealthCheckResponse.FromString
    try:
        once = channel.stream_unary(CHECK, response_deserializer=read)(messages(), timeout=LONG_S)
        watched = channel.stream_stream(WATCH, response_deserializer=read)(messages(), timeout=LONG_S)
        first = next(watched)
        watched.cancel()
    finally:
        leave.set()

    assert (once.status, first.status) == (SERVING, SERVING)


def test_a_health_check_with_a_token_is_about_its_service(guarded, channel):
    """As the standard has it."""
    stub, token = health_pb2_grpc.HealthStub(channel), said(guarded.token("probe", Scope.READ, tenant="a"))
    for name in ("", SERVICE.full_name):
        asked = health_pb2.HealthCheckRequest(service=name)
        assert stub.Check(asked, metadata=token).status == SERVING

    with pytest.raises(grpc.RpcError) as refused:
        stub.Check(health_pb2.HealthCheckRequest(service="other"), metadata=token)

    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_reflection_needs_a_token(guarded, channel):
    """Any that holds."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")

    with pytest.raises(grpc.RpcError) as refused:
        list(stub.ServerReflectionInfo(iter([asked])))
    (reply,) = stub.ServerReflectionInfo(iter([asked]), metadata=said(guarded.token("any", Scope.ADD)))

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert SERVICE.full_name in [one.name for one in reply.list_services_response.service]
