"""What a supervisor and its executors say to each other, and how it is written.

    executor ──▶ supervisor    Hello     I am ready: these are the queues, and the tasks that they know
                               Began     I have started this job (until then it can go to somebody else)
                               Ran       I am done with a job: this is its answer, if it needs one
                               Asked     a handler asks something of the queue
                               Returned  these jobs I had not started, and shall not
    supervisor ──▶ executor    Run       do these jobs
                               Told      the reply to what was asked
                               Revoke    give back what you have not started
                               Stop      start nothing more; end when all is done

`at` says which of the worker's queues it is about, counted from 0: numbers of jobs are a store's own.
Frames of four bytes of length and msgpack, over a socket that the executor inherits; a frame of an executor
is a list of messages, since it has many short things to say. The supervisor decodes them into records and
nothing else, so nothing that a handler sends can do anything there.
"""

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from ..core import commands as c
from ..core.defaults import Defaults
from ..core.errors import error_of
from ..core.faults import Fault, as_fault
from ..core.job import Job
from ..core.replies import REPLIES, AnyCommand

HEAD = struct.Struct("!I")


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The base of all messages."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that an executor has imported."""

    url: str
    tenant: str = ""
    tasks: tuple[str, ...] = ()
    # Those of them that need no thread, and those that take several jobs at once, with how many.
    coroutines: tuple[str, ...] = ()
    batches: dict[str, int] = {}
    # What each says of its jobs.
    defaults: dict[str, Defaults] = {}


class Hello(Message, frozen=True, kw_only=True):
    """An executor is ready. `error` says why it never will be.

    `trace` is the traceback of the error, if the user's code was part of it. `files` are those under the
    current folder that it has imported, or met with the error.
    """

    pid: int
    queues: tuple[Found, ...] = ()
    error: str = ""
    trace: str = ""
    files: tuple[str, ...] = ()


class Began(Message, frozen=True, kw_only=True):
    """A job of a hand-over has started."""

    job_id: int
    number: int
    at: int = 0


class Ran(Message, frozen=True, kw_only=True):
    """A job is done, after so long. No answer: its handler has answered, or lost, it."""

    job_id: int
    claim: int
    took_s: float
    answer: c.Answer | None = None
    at: int = 0


class Asked(Message, frozen=True, kw_only=True):
    """A handler asks something of the queue."""

    number: int
    command: AnyCommand
    wait_s: float = 0.0
    at: int = 0


class Returned(Message, frozen=True, kw_only=True):
    """Jobs that were not started, by (at, id) and the number of their hand-over."""

    jobs: tuple[tuple[tuple[int, int], int], ...]


class Run(Message, frozen=True, kw_only=True):
    """Jobs to do.

    `number` is that of the hand-over: a job that was taken back may come again. None is begun after
    `begin_by_s`, by the machine's monotonic clock, which both processes read: after that the supervisor may
    take a job back without a word from an executor that cannot answer.
    """

    jobs: list[c.Claimed]
    number: int
    begin_by_s: float
    at: int = 0


class Told(Message, frozen=True, kw_only=True):
    """The reply to what was asked: msgpack of it, whose type follows from the command."""

    number: int
    reply: bytes = b""
    fault: Fault | None = None
    at: int = 0


class Cancelled(Message, frozen=True, kw_only=True):
    """Somebody asks a running job to stop."""

    job: Job
    at: int = 0


class Revoke(Message, frozen=True, kw_only=True):
    """Give back what was not started, with `Returned`."""


class Stop(Message, frozen=True, kw_only=True):
    """Start nothing more."""


UpMessage = Hello | Began | Ran | Asked | Returned
DownMessage = Run | Told | Cancelled | Revoke | Stop

_encode = msgspec.msgpack.Encoder().encode
read_up = msgspec.msgpack.Decoder(list[UpMessage]).decode
read_down = msgspec.msgpack.Decoder(DownMessage).decode


def frame(message: Message | Sequence[Message]) -> bytes:
    """A message of a supervisor, or several of an executor, as they go over the wire."""
    body = _encode(message)
    return HEAD.pack(len(body)) + body


class Frames:
    """Takes bytes as they come, and gives whole messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[UpMessage]:
        """The messages that are complete now."""
        self._bytes += data
        whole: list[UpMessage] = []
        at, there = 0, len(self._bytes)
        while there - at >= HEAD.size:
            end = at + HEAD.size + HEAD.unpack_from(self._bytes, at)[0]
            if end > there:
                break
            whole += read_up(self._bytes[at + HEAD.size : end])
            at = end
        del self._bytes[:at]
        return whole


def told(number: int, reply: Any, *, at: int = 0) -> Told:
    """A reply, or an error, for the executor that asked."""
    if isinstance(reply, BaseException):
        return Told(number=number, fault=as_fault(reply), at=at)
    return Told(number=number, reply=_encode(reply), at=at)


def read_reply(command: c.Command, message: Told) -> Any:
    """What was replied to a command; an error is raised."""
    if message.fault is not None:
        raise error_of(message.fault.code, message.fault.text)
    return msgspec.msgpack.decode(message.reply, type=REPLIES[type(command)])
