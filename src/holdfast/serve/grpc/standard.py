"""The standard services of a gRPC server: health, and reflection.

A message may have as many bytes as a batch of jobs, for each call. So those of clients without a token are
not read: their health checks are answered for the server as a whole, and their reflection is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from ...core.errors import HoldfastError, StoreError
from ...proto.conversion import POOL, SERVICE
from ..guard import LOOKUP_S
from ..service import ASK_S, StoreProbe
from .admission import Caller, abort

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
