"""The child process of a context: its pipes, its limits, its pause between batches, and its end.

executor ── requests ──▶ fd 3          the request is written while replies and output are read, so that
         ◀── replies ─── fd 4          neither side waits for the other for ever
         ◀── output ──── fd 1, fd 2
"""

import os
import select
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct

from ...core.bounds import LOG_LINES
from ...core.checks import check_name
from ...core.errors import BadInput, TooLarge
from ...core.notes import lines_of
from ...store.common.clock import monotonic_s
from ..thread_pool import DaemonThreadPool
from .isolation import INNER_FOLDER, MB, LaunchPlan
from .records import (
    CANCELLED,
    CPU_LIMIT,
    EXITED,
    FOLDER_LIMIT,
    INVALID_RESPONSE,
    MEMORY_LIMIT,
    OUTPUT_LIMIT,
    PROCESS_LIMIT,
    RESULT_LIMIT,
    TIMEOUT,
    Charge,
    ContextFailed,
    FollowOn,
)
from .usage import Usage, children_of, folder_usage, is_alive, is_busy, measure, process_cpu_ms, processes_of

MARK = b"J: "


class JobOutput:
    """Collects what one job writes to its standard output and standard error."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit, self._bytes = limit_bytes, 0
        self._partial = {False: b"", True: b""}
        self._lines: deque[str] = deque(maxlen=LOG_LINES)
        self._new_jobs: list[FollowOn] = []

    def feed(self, data: bytes, *, is_error: bool = False) -> None:
        """Add output; raises `ContextFailed` above the limit. Standard error has no new jobs."""
        left = self._limit - self._bytes
        self._bytes += len(data)
        self._split(data[: max(left, 0)], is_error)
        if self._bytes > self._limit:
            raise ContextFailed(OUTPUT_LIMIT, f"more than {self._limit:,} bytes of output")

    def _split(self, data: bytes, is_error: bool) -> None:
        *whole, rest = (self._partial[is_error] + data).split(b"\n")
        self._partial[is_error] = rest
        for line in whole:
            self._add(line, is_error)

    def close(self) -> None:
        """Take lines without a newline as they are."""
        for is_error, rest in self._partial.items():
            if rest:
                self._add(rest, is_error)
        self._partial = {False: b"", True: b""}

    def _add(self, line: bytes, is_error: bool) -> None:
        if line.startswith(MARK) and not is_error:
            if (new := parse_new_job(line)) is not None:
                self._new_jobs.append(new)
                return
            line = b"not a job, J: TASK|DATA is needed: " + line
        self._lines.extend(lines_of(line.removesuffix(b"\r").decode(errors="replace")))

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines of the log."""
        return tuple(self._lines)

    @property
    def new_jobs(self) -> tuple[FollowOn, ...]:
        """The task and data of each new job."""
        return tuple(self._new_jobs)


def parse_new_job(line: bytes) -> FollowOn | None:
    """The task and data of a line `J: TASK|DATA`; None if it is none.

    The tenant is not part of it: a new job belongs to the tenant of the job that wrote it.
    """
    task, bar, data = line[len(MARK) :].removesuffix(b"\r").partition(b"|")
    try:
        name = task.decode()
        check_name("task", name)
    except (UnicodeDecodeError, BadInput, TooLarge):
        return None
    return (name, data) if bar and "," not in name else None


R = TypeVar("R")
# Takes a whole reply off the buffer, or returns None; the number of bytes is that of an earlier call.
Read = Callable[[bytearray, int], R | None]

# How often the usage of a context is measured while jobs run; less often if that takes long, by this factor.
MEASURE_S, MEASURE_SHARE = 0.05, 4
# How often the folder is looked through where it is not a file system of its own.
FOLDER_S = 0.5
READ_BYTES = 1 << 16
# The largest reply: a result of 16 MB that is written as base64 or with escapes, and its fields.
REPLY_BYTES = 34 * MB
EXIT_WAIT_S = 5.0
# How often processes of a context are looked for that were started meanwhile.
KILL_ROUNDS = 100
# Processes around the interpreter: bubblewrap itself and the first one behind it, or that of `confine`.
WALL_PROCESSES, BARE_PROCESSES = 2, 1


class Allowance(Struct, frozen=True, kw_only=True):
    """What one request may use."""

    wall_ms: float
    cpu_ms: float
    memory_bytes: int
    processes: int


class ChildProcess:
    """A running child process of one context. Used by one thread at a time; `kill` by any."""

    def __init__(self, plan: LaunchPlan, starter: DaemonThreadPool) -> None:
        self._plan = plan
        self._walls = WALL_PROCESSES if plan.isolation.bwrap else BARE_PROCESSES
        # In a thread that stays: the kernel ends a context with the thread that started it.
        self._process, self._requests, self._replies = starter.submit(lambda: _spawn(plan)).result()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._output, self._errors = self._process.stdout.fileno(), self._process.stderr.fileno()
        for fd in (self._requests, self._replies, self._output, self._errors):
            os.set_blocking(fd, False)
        self._poll = select.poll()
        for fd in (self._replies, self._output, self._errors):
            self._poll.register(fd, select.POLLIN)
        # Reply bytes that were read; the process that runs the handlers, once it has replied.
        self._buffer = bytearray()
        self._interpreter = 0
        # The CPU time that the request has used when it was last measured; and what other processes than the
        # interpreter had used at its first measurement, None before that.
        self.last_cpu_ms = 0.0
        self._others_cpu_ms: float | None = None
        # When its usage and folder are measured next; its processes after `before`, and after `beforeEach`.
        self._measure_s, self._folder_s = monotonic_s() + MEASURE_S, 0.0
        self._kept = self._kept_in_batch = frozenset[int]()
        self._cancelled = False
        self._closed = False
        self._is_usable = True
        # Held while it is stopped, continued or closed: afterwards its process ids may belong to others.
        self._life = threading.Lock()

    def exchange(
        self,
        request: bytes,
        read: Read[R],
        allowance: Allowance,
        output: JobOutput,
    ) -> tuple[R, Charge]:
        """Send a request and return its reply, with the time that it took.

        Raises `ContextFailed` if a limit is exceeded, the process ends, or the reply is too large.
        """
        started_s, cpu_before = monotonic_s(), self._cpu_ms()
        self.last_cpu_ms, self._others_cpu_ms = 0.0, None
        reply = self._converse(request, read, allowance, output, cpu_before)
        self._interpreter = self._interpreter or self._find_interpreter()
        cpu_ms = max(self._cpu_ms() - cpu_before, self.last_cpu_ms)
        charge = Charge(cpu_ms, (monotonic_s() - started_s) * 1000)
        self._read_output(output)
        output.close()
        self._read_more()
        if self._buffer:
            raise ContextFailed(INVALID_RESPONSE, "more than one reply to a request")
        return reply, charge

    def is_usable(self) -> bool:
        """Whether it still runs, and has written and done nothing since its last reply, as it should."""
        return self._is_usable and not self._read_more() and not self._buffer

    def _read_more(self) -> bool:
        """Read bytes after a reply; returns whether the process has ended, or closed its end."""
        data = _read_some(self._replies)
        self._buffer += data or b""
        return data == b""

    def _converse(
        self,
        request: bytes,
        read: Read[R],
        allowance: Allowance,
        output: JobOutput,
        cpu_before: float,
    ) -> R:
        until_s = monotonic_s() + allowance.wall_ms / 1000
        unsent = memoryview(request)
        unsent = unsent[self._write(unsent) :]
        if unsent:
            self._poll.register(self._requests, select.POLLOUT)
        try:
            while True:
                for fd, _ in self._poll.poll(MEASURE_S * 1000):
                    if fd == self._requests:
                        unsent = unsent[self._write(unsent) :]
                        if not unsent:
                            self._poll.unregister(fd)
                    elif fd != self._replies:
                        self._read_output(output)
                    elif (reply := self._read_reply(read)) is not None:
                        return reply
                if (now_s := monotonic_s()) >= self._measure_s:
                    self._check(allowance, cpu_before)
                    self._measure_s = monotonic_s() + max(MEASURE_S, (monotonic_s() - now_s) * MEASURE_SHARE)
                if now_s > until_s:
                    raise ContextFailed(TIMEOUT, f"still running after {allowance.wall_ms / 1000:g} s")
        finally:
            if unsent:
                self._poll.unregister(self._requests)

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self._requests, data)
        except BlockingIOError:
            return 0
        except OSError:
            raise self._ended() from None

    def _read_reply(self, read: Read[R]) -> R | None:
        data = _read_some(self._replies)
        if data == b"":
            raise self._ended()
        searched = len(self._buffer)
        self._buffer += data or b""
        if len(self._buffer) > REPLY_BYTES:
            raise ContextFailed(RESULT_LIMIT, f"a reply of more than {REPLY_BYTES:,} bytes")
        return read(self._buffer, searched)

    def _read_output(self, output: JobOutput) -> None:
        """Read all output that is there now."""
        for fd in (self._output, self._errors):
            while data := _read_some(fd):
                output.feed(data, is_error=fd == self._errors)
            if data == b"":
                # Closed by the handler, or it has ended, which the replies tell.
                self._unregister(fd)

    def _unregister(self, fd: int) -> None:
        try:
            self._poll.unregister(fd)
        except KeyError:
            pass

    def _check(self, allowance: Allowance, cpu_before: float) -> None:
        """Raise `ContextFailed` if the processes use more than they may."""
        usage = self.usage()
        if self._others_cpu_ms is None:
            # Processes that `before` or earlier jobs have left are not this request's.
            self._others_cpu_ms = usage.cpu_ms - self._cpu_ms()
        self.last_cpu_ms = max(usage.cpu_ms - self._others_cpu_ms - cpu_before, 0.0)
        if self.last_cpu_ms > allowance.cpu_ms:
            raise ContextFailed(CPU_LIMIT, f"more than {allowance.cpu_ms / 1000:g} s of CPU time")
        self._check_memory(usage, allowance)
        self._check_folder()
        if usage.processes > allowance.processes:
            raise ContextFailed(PROCESS_LIMIT, f"more than {allowance.processes} processes")

    def _check_memory(self, usage: Usage, allowance: Allowance) -> None:
        # A cgroup has its own limit, which counts the pages of files too.
        if usage.memory_bytes > allowance.memory_bytes and self._plan.cgroup is None:
            raise self._out_of_memory(allowance.memory_bytes)

    def _out_of_memory(self, memory_bytes: int) -> ContextFailed:
        return ContextFailed(MEMORY_LIMIT, f"more than {memory_bytes // MB:,} MB of memory")

    def _check_folder(self) -> None:
        """Raise `ContextFailed` if the folder has too many files; on a disk, also if they are too large."""
        settings = self._plan.isolation.settings
        if self._plan.folder:
            if (now_s := monotonic_s()) < self._folder_s:
                return
            self._folder_s = now_s + FOLDER_S
            size, files = folder_usage(self._plan.folder, settings.folder_files)
            if size > settings.folder_mb * MB:
                raise ContextFailed(FOLDER_LIMIT, f"more than {settings.folder_mb:,} MB in its folder")
        else:
            try:
                found = os.statvfs(
                    f"/proc/{self._interpreter or self._find_interpreter()}/root{INNER_FOLDER}"
                )
            except OSError:
                return  # it has ended, or has not got there
            files = found.f_files - found.f_ffree
        if files > settings.folder_files:
            raise ContextFailed(FOLDER_LIMIT, f"more than {settings.folder_files:,} files in its folder")

    def usage(self) -> Usage:
        """What its processes use now."""
        return measure(self._processes())

    def _processes(self) -> list[int]:
        """The interpreter and all that it has started."""
        return processes_of(self._process.pid)[self._walls :]

    # Between requests

    def keep_processes(self, *, in_batch: bool) -> None:
        """Note the processes that scripts have started: they may stay, or until the end of the batch."""
        self._kept_in_batch = frozenset(self._processes())
        if not in_batch:
            self._kept = self._kept_in_batch

    def has_leftovers(self) -> bool:
        """Whether there are processes that no script has started: a job has, and has ended."""
        kept = self._kept_in_batch
        return any(is_alive(pid) for pid in self._processes() if pid not in kept)

    def is_busy(self) -> bool:
        """Whether it goes on although no request runs."""
        return any(map(is_busy, self._kept))

    def pause(self, memory_bytes: int, is_idle: Callable[[], bool]) -> bool:
        """Stop all processes until `resume`, if it is still idle.

        Returns False if it cannot be used again: it uses too much, or a job has left something that runs.
        """
        with self._life:
            if self._closed or not is_idle():
                return True
            self._kept_in_batch = self._kept
            self._is_usable = not self.has_leftovers() and not self.is_busy()
            _signal_all(self._kept, signal.SIGSTOP)
            try:
                self._folder_s = 0.0
                self._check_folder()
            except ContextFailed:
                self._is_usable = False
            if self._plan.cgroup is None and measure(list(self._kept)).memory_bytes > memory_bytes:
                self._is_usable = False
            # Once more: the last moment may have been enough to start another process.
            if self.has_leftovers():
                self._is_usable = False
            return self._is_usable

    def resume(self) -> None:
        """Have its processes run again."""
        with self._life:
            if not self._closed:
                _signal_all(self._kept, signal.SIGCONT)

    def _find_interpreter(self) -> int:
        """The first process behind the walls; scripts may have started others beside and below it."""
        pid: int = self._process.pid
        for _ in range(self._walls):
            pid = next(iter(children_of(pid)), pid)
        return pid

    def _cpu_ms(self) -> float:
        """The CPU time of the interpreter so far; that of the whole start before its first reply."""
        return process_cpu_ms(self._interpreter) if self._interpreter else 0.0

    def _ended(self) -> ContextFailed:
        """Why the process has ended."""
        if self._cancelled:
            return ContextFailed(CANCELLED, "the job was cancelled")
        try:
            code = self._process.wait(EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            return ContextFailed(EXITED, "the handler closed the control descriptors")
        # A shell and bubblewrap report a signal as 128 and its number.
        number = -code if code < 0 else code - 128
        if self._plan.cgroup is not None and self._plan.cgroup.was_out_of_memory():
            return self._out_of_memory(self._plan.limits["RLIMIT_DATA"])
        if number == signal.SIGXCPU:
            return ContextFailed(CPU_LIMIT, "the CPU time of its context is used up")
        if 0 < number < signal.NSIG:
            return ContextFailed(EXITED, f"the process of the handler ended by {_signal_name(number)}")
        return ContextFailed(EXITED, f"the process of the handler ended with {code}")

    def drain(self, output: JobOutput) -> None:
        """Read the last output of a context that has failed; what is above the limit is dropped."""
        try:
            self._read_output(output)
        except ContextFailed:
            pass
        output.close()

    def cancel(self) -> None:
        """End the job that runs, and with it the context."""
        self._cancelled = True
        self._kill()

    def _kill(self) -> None:
        # The descendants too: without a PID namespace they would live on. Stopped first, to start no more.
        found: list[int] = []
        for _ in range(KILL_ROUNDS):
            if not (new := [pid for pid in self._processes() if pid not in found]):
                break
            _signal_all(new, signal.SIGSTOP)
            found += new
        _signal_all(found, signal.SIGKILL)
        # Without bubblewrap its first process ends what is left.
        self._process.send_signal(signal.SIGKILL if self._plan.isolation.bwrap else signal.SIGTERM)

    def close(self) -> None:
        """Kill the process with all its descendants, and remove its folder."""
        with self._life:
            if self._closed:
                return
            self._closed = True
        if self._process.poll() is None:
            self._kill()
        try:
            self._process.wait(EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for fd in (self._requests, self._replies):
            os.close(fd)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._plan.clean_up()


def _spawn(plan: LaunchPlan) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start the process; returns it and our ends of its control pipes."""
    their_requests, requests = os.pipe()
    replies, their_replies = os.pipe()
    theirs = (their_requests, their_replies)
    try:
        process = subprocess.Popen(
            plan.arguments(*theirs),
            env=plan.environment,
            cwd=plan.folder or "/",
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        for fd in (requests, replies):
            os.close(fd)
        plan.clean_up()
        raise ContextFailed(EXITED, f"no process could be started: {error.strerror}") from None
    finally:
        for fd in theirs:
            os.close(fd)
    return process, requests, replies


def _signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def _read_some(fd: int) -> bytes | None:
    """Bytes that are there now; None if there are none, empty at the end."""
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
