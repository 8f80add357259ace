"""What a supervisor and its executors say to each other, and how it is written.

    executor ──▶ supervisor    Hello   I am ready: this is the store, these are the tasks that I know
                               Began   I have started this job (until then it can go to somebody else)
                               Ran     I am done with a job: this is its answer
                               Left    I am done with a job that was answered otherwise, or is lost
                               Asked   a handler asks something of the queue
    supervisor ──▶ executor    Run     do these jobs
                               Told    the reply to what was asked
                               Stop    start nothing more; end when all is done

Frames of four bytes of length and msgpack, over a socket that the executor inherits. The supervisor
decodes them into records and nothing else, so nothing that a handler sends can do anything there.
"""

import struct
from typing import Any

import msgspec

from ..core import commands as c
from ..core import errors
from ..core.job import Job

HEAD = struct.Struct("!I")
# A frame holds at most what one claim hands out, and a little more.
FRAME_BYTES = 128 * 1024 * 1024


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of all messages."""


class Hello(Message, frozen=True, kw_only=True):
    """An executor is ready. `error` says why it never will be."""

    pid: int
    url: str = ""
    tenant: str = ""
    tasks: tuple[str, ...] = ()
    # Those of them that need no thread, and those that take several jobs at once, with how many.
    coroutines: tuple[str, ...] = ()
    batches: dict[str, int] = {}
    error: str = ""


class Began(Message, frozen=True, kw_only=True):
    """A job has started."""

    job_id: int


class Ran(Message, frozen=True, kw_only=True):
    """A job is done."""

    answer: c.Answer


class Left(Message, frozen=True, kw_only=True):
    """A job is done, and there is nothing to say of it: its handler has answered, or lost, it."""

    job_id: int


class Asked(Message, frozen=True, kw_only=True):
    """A handler asks something of the queue."""

    number: int
    command: c.AnyCommand
    wait_s: float = 0.0


class Run(Message, frozen=True, kw_only=True):
    """Jobs to do."""

    jobs: tuple[c.Claimed, ...]


class Fault(msgspec.Struct, frozen=True):
    """An error on its way to another process."""

    code: str
    text: str


class Told(Message, frozen=True, kw_only=True):
    """The reply to what was asked: msgpack of it, whose type follows from the command."""

    number: int
    reply: bytes = b""
    fault: Fault | None = None


class Cancelled(Message, frozen=True, kw_only=True):
    """Somebody asks a running job to stop."""

    job: Job


class Stop(Message, frozen=True, kw_only=True):
    """Start nothing more."""


UpMessage = Hello | Began | Ran | Left | Asked
DownMessage = Run | Told | Cancelled | Stop

_encoder = msgspec.msgpack.Encoder()
read_up = msgspec.msgpack.Decoder(UpMessage).decode
read_down = msgspec.msgpack.Decoder(DownMessage).decode


def frame(message: Message) -> bytes:
    """A message as it goes over the wire."""
    body = _encoder.encode(message)
    return HEAD.pack(len(body)) + body


def told(number: int, reply: Any) -> Told:
    """A reply, or an error, for the executor that asked."""
    if isinstance(reply, BaseException):
        return Told(number=number, fault=Fault(getattr(reply, "code", "ERROR"), str(reply)))
    return Told(number=number, reply=_encoder.encode(reply))


def read_reply(command: c.Command, message: Told) -> Any:
    """What was replied to a command; an error is raised."""
    if message.fault is not None:
        raise as_error(message.fault)
    return msgspec.msgpack.decode(message.reply, type=c.REPLIES[type(command)])


def as_error(fault: Fault) -> errors.HoldfastError:
    """The error that a fault stands for, of the same kind and with the same text."""
    kind = _KINDS.get(fault.code, errors.HoldfastError)
    error = kind.__new__(kind)
    Exception.__init__(error, fault.text)
    return error


def _all_kinds(kind: type[errors.HoldfastError]) -> dict[str, type[errors.HoldfastError]]:
    found = {kind.code: kind}
    for sub in kind.__subclasses__():
        found |= _all_kinds(sub)
    return found


_KINDS = _all_kinds(errors.HoldfastError)
