"""Replies that a client cannot read, as a server of another version may send."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from holdfast import HoldfastError, StoreError
from holdfast.proto.conversion import SERVICE, Asks, Replies
from holdfast.queue.connect import connect


@contextmanager
def server_that_replies(reply: Callable[[Any], bytes]) -> Iterator[str]:
    """A server that answers each message of asks with these bytes; its address."""

    def session(messages: Iterator[Any], _context: grpc.ServicerContext) -> Iterator[bytes]:
        for asks in messages:
            yield reply(asks)

    method = grpc.stream_stream_rpc_method_handler(session, request_deserializer=Asks.FromString)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(SERVICE.full_name, {"Session": method})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def a_job_nowhere(asks: Any) -> bytes:
    """Each ask is answered by a job in a place that does not exist."""
    job = {"id": 1, "task": "t", "place": 99}
    replies = [{"number": ask.number, ask.WhichOneof("asked"): job} for ask in asks.asks]
    raw: bytes = Replies(replies=replies).SerializeToString()
    return raw


def test_a_reply_that_cannot_be_read_is_an_error_of_its_call():
    """The queue goes on: the next call gets its own."""
    with server_that_replies(a_job_nowhere) as url, connect(url) as queue:
        for _ in range(2):
            with pytest.raises(HoldfastError, match=r"reply to GetJob cannot be read.*99"):
                queue.get(1)


def test_a_message_that_cannot_be_read_is_an_error_of_all_calls():
    """Also of those after it."""
    with server_that_replies(lambda _: b"\xff\xff\xff") as url, connect(url) as queue:
        for _ in range(2):
            with pytest.raises(StoreError, match="no server of Holdfast, or of another version"):
                queue.counts()
