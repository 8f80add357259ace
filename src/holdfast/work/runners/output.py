"""The output of a job, line by line: lines that begin with `J: ` are new jobs, all others its log."""

from collections import deque

from ...core.bounds import LOG_LINES
from ...core.checks import check_name
from ...core.errors import BadInput, TooLarge
from ...core.notes import lines_of
from .records import OUTPUT_LIMIT, ContextFailed, FollowOn

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
