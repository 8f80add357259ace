"""Messages between a supervisor and its executors, and their encoding.

    executor ──▶ supervisor    Hello           ready: the queues, and the tasks that they know
                               JobStarted      a job has started (`start_locks` decides whether it may)
                               JobEnded        a job has ended, with its answer, if it needs one
                               CommandRequest  a handler has a command for the queue
                               JobsReturned    these jobs will not start here
                               Pong            the reply to a `Ping`
                               RequestSize     how many jobs of a stored handler one request takes
                               JobStack        the reply to a `ShowStack`
    supervisor ──▶ executor    Begin           import these queues
                               RunJobs         run these jobs
                               CommandReply    the reply to a `CommandRequest`
                               CancelJob       a running job should stop
                               Ping            asks whether the event loop is blocked
                               ShowStack       asks where the handler of a job is
                               Stop            start nothing more; exit when all jobs have ended

`queue_index` is the position of a queue in the worker's list: job ids are unique only within a store.
A frame is four bytes of length and msgpack, over a socket that the executor inherits. A frame of an executor
is a list of messages, because it has many short ones to send. The supervisor decodes messages into records
and nothing else, so nothing that a handler sends can run code there.
"""

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from ..core import commands as c
from ..core.defaults import Defaults
from ..core.errors import BadInput, Fault, as_fault, error_of
from ..core.job import Job
from ..core.verbs import REPLIES, AnyCommand
from ..core.worker import Blocker
from .files import Stamp
from .logs import LogOptions
from .options import WorkerOptions

HEAD = struct.Struct("!I")


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The base of all messages."""


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that an executor has imported."""

    url: str
    tenant: str = ""
    tasks: tuple[str, ...] = ()
    # The tasks that are coroutines, and the batch size of those that take several jobs at once.
    coroutines: tuple[str, ...] = ()
    batches: dict[str, int] = {}
    defaults: dict[str, Defaults] = {}
    # The schedules and limits that its modules have declared.
    declared: tuple[c.SetSchedule | c.SetLimit, ...] = ()
    # Whether it stands for the handlers in its store, and how these are walled off.
    handlers: bool = False
    isolation: str = ""


class Hello(Message, frozen=True, kw_only=True):
    """An executor is ready, or, with `error`, could not start.

    `trace` is the traceback of the error, if the user's code was part of it. `files` are the files below the
    current folder that the executor has imported, or that the error passed through; see `project_files`.
    """

    pid: int
    # The thread of its event loop.
    loop_thread: int = 0
    queues: tuple[QueueInfo, ...] = ()
    error: str = ""
    trace: str = ""
    files: dict[str, Stamp] = {}


class JobStarted(Message, frozen=True, kw_only=True):
    """The handler of a job has started, at this moment of the machine's monotonic clock.

    Sent a moment later, and not at all if the job ends before; at once if it has a time limit.
    """

    job_id: int
    number: int
    started_s: float
    # The thread that starts it.
    thread: int
    queue_index: int = 0


class JobEnded(Message, frozen=True, kw_only=True):
    """A job has ended. Without `answer` its handler has answered it, or lost its claim."""

    job_id: int
    claim: int
    duration_s: float
    answer: c.Answer | None = None
    queue_index: int = 0


class CommandRequest(Message, frozen=True, kw_only=True):
    """A handler has a command for the queue; number 0: it needs no reply."""

    number: int
    command: AnyCommand
    wait_s: float = 0.0
    queue_index: int = 0


class RequestSize(Message, frozen=True, kw_only=True):
    """How many jobs of a tenant's task one request of its stored handler takes."""

    tenant: str
    task: str
    size: int


class JobsReturned(Message, frozen=True, kw_only=True):
    """Jobs that the executor has dropped, by (queue index, job id) and number.

    The supervisor had taken them back already, or their stored handler could not be had.
    """

    jobs: tuple[tuple[tuple[int, int], int], ...]


class Pong(Message, frozen=True, kw_only=True):
    """The reply to a `Ping`: for how long the event loop has been blocked, by what, and where that is."""

    blocked_s: float = 0.0
    blocker: Blocker | None = None
    stack: str = ""


class JobStack(Message, frozen=True, kw_only=True):
    """Where the handler of a job is; "": not known."""

    number: int
    stack: str


class Begin(Message, frozen=True, kw_only=True):
    """Import these queues. The first message to a process, whose fields are those of `WorkerOptions`."""

    names: tuple[str, ...]
    threads: int = 1
    handler_slots: int = 0
    stores: tuple[str, ...] = ()
    runners: str = ""
    private_hosts: bool = False
    log: LogOptions = LogOptions()
    reload: bool = False


def begin_of(options: WorkerOptions) -> Begin:
    """The first message of a supervisor with these options."""
    return Begin(
        names=options.executor_names,
        threads=options.threads,
        handler_slots=options.slots_for_handlers,
        stores=options.stores,
        runners=options.runners,
        private_hosts=options.private_hosts,
        log=options.log,
        reload=options.reload,
    )


class RunJobs(Message, frozen=True, kw_only=True):
    """Jobs to run. They have consecutive numbers, unique in the executor: a job may be delivered again."""

    jobs: list[c.Claimed]
    first_number: int
    queue_index: int = 0


class CommandReply(Message, frozen=True, kw_only=True):
    """The reply to a `CommandRequest`, as msgpack; its type follows from the command."""

    number: int
    reply: bytes = b""
    fault: Fault | None = None
    queue_index: int = 0


class CancelJob(Message, frozen=True, kw_only=True):
    """A running job should stop: it was cancelled, or its claim is lost."""

    job: Job
    queue_index: int = 0


class Ping(Message, frozen=True, kw_only=True):
    """Reply with `Pong`."""


class ShowStack(Message, frozen=True, kw_only=True):
    """Reply with `JobStack`: a running job is about to exceed its time limit."""

    job_id: int
    number: int
    queue_index: int = 0


class Stop(Message, frozen=True, kw_only=True):
    """Start nothing more, and exit when all jobs have ended."""


ExecutorMessage = (
    Hello | JobStarted | JobEnded | CommandRequest | JobsReturned | Pong | RequestSize | JobStack
)
SupervisorMessage = Begin | RunJobs | CommandReply | CancelJob | Ping | ShowStack | Stop

_encode = msgspec.msgpack.Encoder().encode
_decode_command = msgspec.msgpack.Decoder(AnyCommand).decode
decode_executor_messages = msgspec.msgpack.Decoder(list[ExecutorMessage]).decode
decode_supervisor_message = msgspec.msgpack.Decoder(SupervisorMessage).decode


def encode_frame(message: Message | Sequence[Message]) -> bytes:
    """The frame of one message of a supervisor, or of several of an executor."""
    body = _encode(message)
    return HEAD.pack(len(body)) + body


def check_fields(command: c.Command) -> None:
    """Refuse a command with a field of a wrong type: its frame would end the connection to the supervisor."""
    try:
        _decode_command(_encode(command))
    except (msgspec.DecodeError, TypeError, ValueError, OverflowError) as error:
        needed = f"one with valid fields ({error})"
        raise BadInput("command", type(command).__name__, needed=needed) from None


class FrameReader:
    """Collects received bytes and decodes whole frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[ExecutorMessage]:
        """Add bytes; returns the messages that are complete now."""
        self._bytes += data
        messages: list[ExecutorMessage] = []
        start, size = 0, len(self._bytes)
        while size - start >= HEAD.size:
            end = start + HEAD.size + HEAD.unpack_from(self._bytes, start)[0]
            if end > size:
                break
            messages += decode_executor_messages(self._bytes[start + HEAD.size : end])
            start = end
        del self._bytes[:start]
        return messages


def make_reply(number: int, reply: Any, *, queue_index: int = 0) -> CommandReply:
    """The message that carries a reply, or an error, to the executor."""
    if isinstance(reply, BaseException):
        return CommandReply(number=number, fault=as_fault(reply), queue_index=queue_index)
    return CommandReply(number=number, reply=_encode(reply), queue_index=queue_index)


def read_reply(command: c.Command, message: CommandReply) -> Any:
    """The reply to a command; an error is raised."""
    if message.fault is not None:
        raise error_of(message.fault.code, message.fault.text)
    return msgspec.msgpack.decode(message.reply, type=REPLIES[type(command)])
