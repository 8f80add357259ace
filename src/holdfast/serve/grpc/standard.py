"""The standard services of a gRPC server: health, and reflection.

A message may have as many bytes as a batch of jobs, for each call. So those of clients without a token are
not read: their health checks are answered for the server as a whole, and their reflection is refused.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from ...core.errors import HoldfastError
from ...proto.messages import POOL, SERVICE
from .admission import Caller, abort

HealthRequest, HealthReply = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
ReflectionRequest = reflection_pb2.ServerReflectionRequest
ReflectionReply = reflection_pb2.ServerReflectionResponse


class StandardServices:
    """Health and reflection, for the service of the queue."""

    def __init__(self, caller: Callable[[Any], Caller]) -> None:
        self._caller = caller
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
        """Say that the server answers."""
        for name in ("", SERVICE.full_name):
            await self._health.set(name, HealthReply.SERVING)

    async def drain(self) -> None:
        """Say that it is closing."""
        await self._health.enter_graceful_shutdown()

    async def _asked(self, context: Any) -> Any:
        """What a health check asks about; without a token the server as a whole."""
        try:
            await self._caller(context).check_token()
        except HoldfastError:
            return HealthRequest()
        found = await context.read()
        return HealthRequest() if found is grpc.aio.EOF else found

    async def _check(self, _requests: Any, context: Any) -> Any:
        return await self._health.Check(await self._asked(context), context)

    async def _watch(self, _requests: Any, context: Any) -> None:
        await self._health.Watch(await self._asked(context), context)

    async def _reflect(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        try:
            await self._caller(context).check_token()
        except HoldfastError as error:
            await abort(context, error)
        async for reply in self._reflection.ServerReflectionInfo(requests, context):
            yield reply
