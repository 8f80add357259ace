"""Logging of a worker: to stderr, as text or as JSON, in the supervisor and in the executors.

                 jobs and the user's own lines (root)    the worker's own (`holdfast.worker`)
    -q           ERROR                                   WARNING
    (default)    WARNING                                 INFO
    -v           INFO                                    INFO
    -vv          DEBUG                                   DEBUG

On a terminal the lines are text in colours, elsewhere JSON, unless an option or the environment says.

An executor configures logging after it has imported the user's modules, and only if these have not given the
root logger a handler.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.units import iso

TEXT, JSON = "text", "json"
FORMAT_VARIABLE, VERBOSITY_VARIABLE = "HOLDFAST_LOG_FORMAT", "HOLDFAST_LOG_VERBOSITY"
ROOT_LEVELS = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG}
WORKER_LEVELS = {-1: logging.WARNING, 0: logging.INFO, 1: logging.INFO, 2: logging.DEBUG}
# Fields of `joblog`, and of the job whose handler logged the line.
JOB_FIELDS = (
    *("event", "job_id", "task", "attempt", "tenant"),
    *("waited_ms", "duration_ms", "exit_code", "cpu_ms", "error", "trace_id"),
)

# Escape sequences of terminals; other levels have the colour of the text.
FAINT, PLAIN = "\x1b[2m", "\x1b[0m"
COLOURS = {
    logging.DEBUG: FAINT,
    logging.INFO: "\x1b[32m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[1;31m",
}

WORKER = logging.getLogger("holdfast.worker")
# The start of a warning about handlers that bubblewrap does not confine.
TRUSTED_ONLY = "for code you trust only"


class LogOptions(NamedTuple):
    """Logging options of the command line; `verbosity` from -1 (quiet) to 2."""

    format: str = TEXT
    verbosity: int = 0

    def variables(self) -> dict[str, str]:
        """The environment variables that pass the options to workers that this process starts."""
        return {FORMAT_VARIABLE: self.format, VERBOSITY_VARIABLE: str(self.verbosity)}


def read_log_options(variables: Mapping[str, str]) -> LogOptions:
    """The options that a process finds in its environment."""
    verbosity = int(variables.get(VERBOSITY_VARIABLE, "0"))
    return LogOptions(variables.get(FORMAT_VARIABLE) or default_format(), verbosity)


def default_format() -> str:
    """Text for people at a terminal, JSON for the programs that read logs elsewhere."""
    return TEXT if sys.stderr.isatty() else JSON


def configure(options: LogOptions, *filters: logging.Filter) -> None:
    """Configure logging to stderr, unless the root logger has a handler already.

    Where handlers run or requests have spans, `filters` has a `JobLogFilter`.
    """
    WORKER.setLevel(WORKER_LEVELS[options.verbosity])
    if logging.root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    is_coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    text = TextFormatter(is_coloured=is_coloured)
    handler.setFormatter(JsonFormatter() if options.format == JSON else text)
    for one in filters:
        handler.addFilter(one)
    logging.root.addHandler(handler)
    logging.root.setLevel(ROOT_LEVELS[options.verbosity])


def warn_blocked(text: str, stack: str) -> None:
    """Log what blocks others, and where it is."""
    words: Any = (WORKER.name, logging.WARNING, __file__, 0, "%s", (text,), None, None, None, stack or None)
    if WORKER.isEnabledFor(logging.WARNING):
        WORKER.handle(WORKER.makeRecord(*words))


class TextFormatter(logging.Formatter):
    """A short line for people: time, level, the logger (unless it is about a job), the job, the message.

    The trace comes last, if there is one. In colours the time is faint, and the level has that of its weight.
    """

    def __init__(self, *, is_coloured: bool = False) -> None:
        time = f"{FAINT}%(time)s{PLAIN}" if is_coloured else "%(time)s"
        super().__init__(f"{time} %(level)s %(source)s%(message)s%(trace)s")
        self._colours = COLOURS if is_coloured else {}

    def format(self, record: logging.LogRecord) -> str:
        """The line, with the traceback below."""
        # In UTC, as in JSON: a program may set the zone of its own process.
        record.time = iso(int(record.created * 1000))
        record.source = _source(record)
        colour = self._colours.get(record.levelno)
        record.level = f"{colour}{record.levelname}{PLAIN}" if colour else record.levelname
        trace_id = getattr(record, "trace_id", None)
        record.trace = f" trace={trace_id}" if trace_id else ""
        return super().format(record)


def _source(record: logging.LogRecord) -> str:
    if record.name == "holdfast.job":
        return ""
    if record.name.startswith("holdfast."):
        return f"{record.name.removeprefix('holdfast.')} "
    job_id = getattr(record, "job_id", None)
    return f"{record.name}{f' [job {job_id}]' if job_id is not None else ''}: "


class JsonFormatter(logging.Formatter):
    """One JSON object for each record. Empty fields are omitted; ids are strings."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields: dict[str, Any] = {
            "time": iso(int(record.created * 1000)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        for name in JOB_FIELDS:
            if (value := getattr(record, name, None)) not in (None, ""):
                fields[name] = str(value) if name == "job_id" else value
        if record.exc_info and record.exc_info[1] is not None:
            fields["traceback"] = self.formatException(record.exc_info)
        elif record.stack_info:
            fields["traceback"] = record.stack_info
        return json.dumps(fields, ensure_ascii=False, default=str)
