"""What a runner gets and returns: a job, how it ended, and the limits of a context."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import asdict, replace

from ...core.handler import RunnerOptions
from ...core.job import Body, Code
from ...core.outcome import code_of

# Exit codes that a runner gives by itself.
OK, RETRY, FAILED, ERROR = 200, 100, 400, 500

# Why a runner ended a job with 500: the first word of its error.
BAD_HANDLER = "BAD_HANDLER"
BATCH_ERROR = "BATCH_ERROR"
CANCELLED = "CANCELLED"
CPU_LIMIT = "CPU_LIMIT"
EXITED = "EXITED"
FOLDER_LIMIT = "FOLDER_LIMIT"
INVALID_RESPONSE = "INVALID_RESPONSE"
MEMORY_LIMIT = "MEMORY_LIMIT"
NO_RESPONSE = "NO_RESPONSE"
OUTPUT_LIMIT = "OUTPUT_LIMIT"
PROCESS_LIMIT = "PROCESS_LIMIT"
RESULT_LIMIT = "RESULT_LIMIT"
TIMEOUT = "TIMEOUT"

# A task and the data of a new job of the same tenant.
FollowOn = tuple[str, bytes]


class HandlerJob(Struct, frozen=True, kw_only=True):
    """A job as a runner needs it. `payload` is its data without the newline that a handler gets after it."""

    id: int
    task: str
    payload: bytes
    attempt: int = 1
    # The job's own time limit; 0: that of its handler alone.
    timeout_ms: int = 0
    # The position of its queue in the list of the worker: ids are unique only within a store.
    queue_index: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """What it is known by in its worker."""
        return self.queue_index, self.id


class RunResult(Struct, frozen=True, kw_only=True):
    """How the run of a job ended, what it wrote, and what it used."""

    exit_code: int
    body: Body | None = None
    # For 500 by the runner: a word such as TIMEOUT, then a sentence.
    error: str = ""
    traceback: str = ""
    lines: tuple[str, ...] = ()
    new_jobs: tuple[FollowOn, ...] = ()
    cpu_ms: float = 0.0
    wall_ms: float = 0.0

    @property
    def code(self) -> Code:
        """The code that the exit code stands for."""
        return code_of(self.exit_code)


class Charge(Struct, frozen=True):
    """CPU and elapsed time, in milliseconds."""

    cpu_ms: float = 0.0
    wall_ms: float = 0.0

    def __add__(self, other: "Charge") -> "Charge":
        return Charge(self.cpu_ms + other.cpu_ms, self.wall_ms + other.wall_ms)

    def share(self, count: int) -> "Charge":
        """The share of one of `count` jobs."""
        return Charge(self.cpu_ms / count, self.wall_ms / count)


def with_charge(result: RunResult, charge: Charge) -> RunResult:
    """A result that is charged for more."""
    return replace(result, cpu_ms=result.cpu_ms + charge.cpu_ms, wall_ms=result.wall_ms + charge.wall_ms)


class RunEvents(Struct, frozen=True):
    """What a runner calls when a job starts and when it has ended, in the thread that runs it.

    `on_started` returns False if the job may not start any more; then it does not run, and has no end.
    """

    on_started: Callable[[HandlerJob], bool]
    on_ended: Callable[[HandlerJob, RunResult], None]


class ContextFailed(Exception):
    """A context can no longer be used; `reason` is one of the words above."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason, self.text = reason, text


# The options of a handler that names none, and the most that it may ask for by default.
DEFAULT_OPTIONS = RunnerOptions(
    batch_size=10,
    timeout_ms=120_000,
    cpu_ms=2_000,
    memory_mb=256,
    output_kb=1_024,
    open_files=128,
    context_jobs=100,
    context_age_ms=600_000,
)
MOST_OPTIONS = RunnerOptions(
    batch_size=1_000,
    timeout_ms=3_600_000,
    cpu_ms=600_000,
    memory_mb=1_024,
    output_kb=16 * 1_024,
    open_files=1_024,
    context_jobs=10_000,
    context_age_ms=3_600_000,
)


def effective_options(options: RunnerOptions, most: RunnerOptions = MOST_OPTIONS) -> RunnerOptions:
    """The options to run with: the handler's, else the defaults, none above the most."""
    defaults, limits = asdict(DEFAULT_OPTIONS), asdict(most)
    chosen = {
        name: min(value or defaults[name], limits[name] or value or defaults[name])
        for name, value in asdict(options).items()
        if not isinstance(value, bool)
    }
    return replace(options, **chosen)
