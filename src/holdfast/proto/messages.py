"""The classes of the messages, made from the compiled description of `proto/holdfast/v1/queue.proto`.

`queue.binpb` is written by `make proto`, and tests hold it against the source. It is the description and not
the Python code that protoc writes, because that code runs with two major versions of protobuf only.
"""

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Not the pool of the process: that may have stubs which the application has generated from the same file.
POOL = descriptor_pool.DescriptorPool()
DESCRIPTION = Path(__file__).with_name("queue.binpb")


def _load() -> Any:
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTION.read_bytes())
    for file in files.file:
        POOL.AddSerializedFile(file.SerializeToString())
    return POOL.FindFileByName("holdfast/v1/queue.proto")


_file = _load()
SERVICE = _file.services_by_name["Queue"]


def message(name: str) -> Any:
    """The class of a message by its name."""
    return message_factory.GetMessageClass(_file.message_types_by_name[name])


Asks, Replies = message("Asks"), message("Replies")
FromWorker, ToWorker = message("FromWorker"), message("ToWorker")
