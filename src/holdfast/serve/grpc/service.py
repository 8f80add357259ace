"""The gRPC server: the queue service, its health and its reflection, on one address.

Health and reflection are standard services. A message may have as many bytes as a batch of jobs, for each
call. So those of clients without a token are not read: their health checks are answered for the server as a
whole, and their reflection is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from ...core.bounds import GRPC_REQUEST_BYTES
from ...core.errors import HoldfastError, StoreError
from ...engine.connection import Connection
from ...proto.conversion import POOL, SERVICE
from ..asking import Decoding
from ..config import Tls
from ..guard import LOOKUP_S, Guard
from ..service import ASK_S, DRAIN_S, ListenAddress, StoreProbe, is_loopback, listen_error
from .admission import Caller, Reservations, abort
from .calls import Calls
from .session import ClientSession
from .stream import Stream
from .work import Work

STREAMS: dict[str, type[Stream]] = {"Session": ClientSession, "Work": Work}
# Headers: a token and what gRPC adds.
METADATA_BYTES = 16 * 1024
# Streams and calls of one connection at once.
CONNECTION_STREAMS = 1_000
# How long a new connection may take until it speaks HTTP/2, and until it confirms our settings.
HANDSHAKE_MS = 10_000
# How often a silent client is asked whether it is there, and how long it may take to say so.
KEEPALIVE_MS, KEEPALIVE_PATIENCE_MS = 20_000, 10_000
# How often a client may ask the same of us.
CLIENT_PING_MS = 5_000

OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", GRPC_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.max_concurrent_streams", CONNECTION_STREAMS),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.http2.settings_timeout", HANDSHAKE_MS),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_PATIENCE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", CLIENT_PING_MS),
    ("grpc.http2.max_ping_strikes", 0),
    # A port that another process uses is an error; do not share it.
    ("grpc.so_reuseport", 0),
]


class GrpcService:
    """`holdfast.v1.Queue` on one address."""

    name = "grpc"

    def __init__(
        self, connection: Connection, guard: Guard, address: ListenAddress, *, tls: Tls | None = None
    ) -> None:
        self._connection, self._guard, self._address = connection, guard, address
        self.where = str(address)
        self._credentials = None if tls is None else _credentials(tls)
        self._loopback = is_loopback(address.host)
        self._reservations, self._decoding = Reservations(), Decoding()
        self._calls = Calls(connection, self._caller, self._reservations)
        self._streams: set[Stream] = set()
        self._standard = StandardServices(self._caller, StoreProbe(connection))
        self._server: Any = None
        # The port that is listened on, once it is.
        self.port = 0

    async def start(self) -> list[str]:
        """Listen; a line that says where."""
        server = self._server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers((_Handlers(self._handlers()),))
        try:
            if self._credentials is None:
                self.port = server.add_insecure_port(str(self._address))
            else:
                self.port = server.add_secure_port(str(self._address), self._credentials)
        except RuntimeError as error:
            raise listen_error(self.name, self.where, error) from None
        await server.start()
        await self._standard.open()
        return [f"grpc on {ListenAddress(self._address.host, self.port)}"]

    async def drain(self) -> None:
        """Take no new calls, answer those that run, and close."""
        if self._server is None:
            return
        await self._standard.drain()
        stopping = asyncio.create_task(self._server.stop(DRAIN_S))
        # Refuse new streams first, so that none starts after the last one was drained.
        await asyncio.sleep(0)
        self._calls.drain()
        for stream in list(self._streams):
            stream.drain()
        await stopping
        self._decoding.close()

    def _handlers(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            # For clients these are unary: the server reads the one message after it has admitted the client.
            name: (
                grpc.stream_stream_rpc_method_handler(call)
                if name in self._calls.senders
                else grpc.stream_unary_rpc_method_handler(call)
            )
            for name, call in self._calls.all.items()
        }
        for name, kind in STREAMS.items():
            found[name] = grpc.stream_stream_rpc_method_handler(self._stream(kind))
        own = {f"/{SERVICE.full_name}/{name}": handler for name, handler in found.items()}
        return own | self._standard.handlers()

    def _caller(self, context: Any) -> Caller:
        return Caller(self._guard, self._reservations, self._decoding, context, loopback=self._loopback)

    def _stream(self, kind: type[Stream]) -> Callable[[Any, Any], Awaitable[None]]:
        async def serve(_requests: Any, context: Any) -> None:
            stream = kind(self._connection, self._caller(context), context)
            self._streams.add(stream)
            try:
                await stream.run()
            finally:
                self._streams.discard(stream)

        return serve


def _credentials(tls: Tls) -> Any:
    key, cert = Path(tls.key).read_bytes(), Path(tls.cert).read_bytes()
    ca = Path(tls.client_ca).read_bytes() if tls.client_ca else None
    return grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=ca is not None)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds a call by its name."""

    def __init__(self, handlers: dict[str, Any]) -> None:
        self._handlers = handlers

    def service(self, details: Any) -> Any:
        """What answers a call; None: there is no such call."""
        return self._handlers.get(details.method)


HealthRequest, HealthReply = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
ReflectionRequest = reflection_pb2.ServerReflectionRequest
ReflectionReply = reflection_pb2.ServerReflectionResponse


class StandardServices:
    """Health and reflection, for the service of the queue."""

    def __init__(self, caller: Callable[[Any], Caller], probe: StoreProbe) -> None:
        self._caller, self._probe, self._is_closing = caller, probe, False
        self._health = health.aio.HealthServicer()
        names = (SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
        for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
            POOL.AddSerializedFile(file.serialized_pb)
        self._reflection = reflection.aio.ReflectionServicer(names, pool=POOL)

    def handlers(self) -> dict[str, Any]:
        """What answers each call, by its name."""
        read, write = HealthRequest.FromString, HealthReply.SerializeToString
        return {
            # For clients these have one message: the server reads it after it has looked at the token.
            f"/{health.SERVICE_NAME}/Check": grpc.stream_unary_rpc_method_handler(self._check, read, write),
            f"/{health.SERVICE_NAME}/Watch": grpc.stream_stream_rpc_method_handler(self._watch, read, write),
            f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
                self._reflect, ReflectionRequest.FromString, ReflectionReply.SerializeToString
            ),
        }

    async def open(self) -> None:
        """Say that the server is alive: `""`. Whether the queue is ready is found out when a client asks."""
        await self._health.set("", HealthReply.SERVING)

    async def drain(self) -> None:
        """Say that it is closing."""
        self._is_closing = True
        await self._health.enter_graceful_shutdown()

    async def _look(self) -> None:
        """Say whether the queue is ready: whether its store answers."""
        is_ready = await self._probe.is_ready()
        if not self._is_closing:
            said = HealthReply.SERVING if is_ready else HealthReply.NOT_SERVING
            await self._health.set(SERVICE.full_name, said)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(ASK_S)
            await self._look()

    async def _asked(self, context: Any) -> Any:
        """What a health check asks about; without a token the server as a whole."""
        try:
            async with asyncio.timeout(LOOKUP_S):
                await self._caller(context).check_token()
        except (StoreError, TimeoutError):
            # Whose token it is cannot be found out, because the store does not answer: that is the answer.
            return HealthRequest(service=SERVICE.full_name)
        except HoldfastError:
            return HealthRequest()
        found = await context.read()
        return HealthRequest() if found is grpc.aio.EOF else found

    async def _check(self, _requests: Any, context: Any) -> Any:
        asked = await self._asked(context)
        if asked.service == SERVICE.full_name:
            await self._look()
        return await self._health.Check(asked, context)

    async def _watch(self, _requests: Any, context: Any) -> None:
        asked = await self._asked(context)
        if asked.service != SERVICE.full_name:
            await self._health.Watch(asked, context)
            return
        await self._look()
        looking = asyncio.create_task(self._keep_looking())
        try:
            await self._health.Watch(asked, context)
        finally:
            looking.cancel()

    async def _reflect(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        try:
            await self._caller(context).check_token()
        except HoldfastError as error:
            await abort(context, error)
        async for reply in self._reflection.ServerReflectionInfo(requests, context):
            yield reply
