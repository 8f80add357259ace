"""Checks of input, before anything is written. The error names the argument."""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from math import inf
from operator import attrgetter, is_
from typing import Any

import msgspec

from . import bounds
from .commands import (
    Add,
    Answer,
    AnswerAll,
    Claim,
    Command,
    NewJob,
    NewStep,
    Report,
    Requeue,
    ReserveIds,
    SendSignal,
    Step,
    Suspension,
    TakeSysid,
    Update,
    WriteLog,
)
from .defaults import Defaults
from .errors import BadInput, TooLarge, Unquoted
from .family import FAILED_JOB
from .glob import check_glob
from .ids import MAX_ID, SYSIDS
from .job import Backoff, Body, Code, Unreadable, size_of
from .repeat import check_retry_after, parse_repeat
from .units import counted

# A number that may be larger than any double, or the same characters in a text. Linear in the length.
_LARGE_NUMBER = (
    r"(?<![\d.])(?<![eE][+-])(?<![eE])-?(?:\d[\d.]*+[eE]\+?\d{3,}+|\d{300}[\d.]*+(?:[eE][+-]?\d++)?)"
)
# Few numbers are like those, and these are found ten times as fast.
_EXPONENT, _MANY_DIGITS = re.compile(r"[eE]\+?[0-9]{3}"), re.compile(r"[0-9](?<![0-9][0-9])[0-9]{299}")
# By default Python reads no whole numbers that are longer; a sign counts as a digit.
INT_DIGITS = 4_300
_TRACEPARENT = "00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"


def check_name(what: str, name: str, *, empty: bool = False) -> None:
    """Check the name of a task, tenant or schedule: text of 1 to 255 bytes without control characters."""
    if not isinstance(name, str):
        # Of other things only the kind: they may have the data of a job.
        found = name if isinstance(name, int | float | bytes | None) else type(name).__name__
        raise BadInput(what, found, needed="text")
    _check_text(what, name, empty)


@lru_cache(maxsize=4096)
def _check_text(what: str, name: str, empty: bool) -> None:
    if not name and not empty:
        raise BadInput(what, name, needed="text of at least one byte")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BadInput(what, name, needed="text that can be written as UTF-8") from None
    if size > bounds.NAME_BYTES:
        raise TooLarge(what, name, needed=f"at most {bounds.NAME_BYTES} bytes long")
    if any(ord(char) < 32 or ord(char) == 127 for char in name):
        raise BadInput(what, name, needed="text without control characters")


def check_key(what: str, key: bytes, most_bytes: int) -> None:
    """Check a domain or a unique key: any bytes, not empty and not too long."""
    if not isinstance(key, bytes):
        raise BadInput(what, key, needed="text or bytes")
    if not key:
        raise BadInput(what, Unquoted("empty"), needed=f"1 to {most_bytes:,} bytes long")
    if not 1 <= len(key) <= most_bytes:
        raise TooLarge(what, key, needed=f"1 to {most_bytes:,} bytes long")


def check_whole(what: str, value: object, least: int, most: int) -> None:
    """Check an integer and its limits; a bool is refused."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadInput(what, value, needed=f"a whole number from {least:,} to {most:,}")


def check_body(what: str, body: Body | None) -> None:
    """Check data or a result: JSON text or bytes up to 16 MB."""
    if body is None:
        return
    if not isinstance(body, (str, bytes)):  # isinstance of a union would be slower, for every job
        raise BadInput(what, body, needed="JSON text or bytes")
    try:
        size = size_of(body)
    except UnicodeEncodeError:
        raise BadInput(
            what, "text with lone surrogates", needed="text that can be written as UTF-8"
        ) from None
    if size > bounds.DATA_BYTES:
        raise TooLarge(what, f"{size:,} bytes", needed=f"at most {bounds.DATA_BYTES:,} bytes")
    if isinstance(body, str) and "\0" in body:
        raise BadInput(what, "text with NUL", needed="JSON, which has it as \\u0000, or bytes")


def check_json(what: str, body: Body | None) -> None:
    """Check that a body from another process is JSON if it is text: servers put it into JSON as it is."""
    if isinstance(body, Unreadable):
        raise BadInput(what, "damaged, or empty", needed="JSON text or bytes")
    if not isinstance(body, str):
        return
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        fault = json_fault(error, body.encode(errors="replace"))
        raise BadInput(what, "text", needed=f"JSON ({fault})") from None
    check_numbers(what, body)


# Near the end of a text msgspec takes the first half of a surrogate pair without the second for the end.
_HALF_PAIR = rb'\\u[dD][89abAB][0-9a-fA-F]{2}[^"]{0,4}"[\s\]}]{0,4}$'


def json_fault(error: Exception, raw: bytes) -> str:
    """What is wrong with text that is not JSON."""
    text = str(error).removeprefix("JSON is malformed: ")
    if "truncated" in text and re.search(_HALF_PAIR, raw[-20:]):
        return "a lone surrogate, such as \\ud800, is half of a character"
    return text


def check_numbers(what: str, text: str) -> None:
    """Check that JSON has no number that is too large to be read, such as 1e400: no handler could get it.

    Makes no objects of the JSON, which may have millions of values.
    """
    if _EXPONENT.search(text) is None and _MANY_DIGITS.search(text) is None:
        return
    plain = text.replace("\\\\", "").replace('\\"', "") if "\\" in text else text
    quotes = last = 0
    for match in re.finditer(_LARGE_NUMBER, plain):
        quotes, last = quotes + plain.count('"', last, match.start()), match.start()
        # After an odd number of quotes it is inside of a text.
        if not quotes % 2 and not _can_be_read(match[0]):
            raise BadInput(what, "JSON", needed="JSON without numbers out of range, such as 1e400")


def _can_be_read(number: str) -> bool:
    if number.lstrip("-").isdigit():
        return len(number) <= INT_DIGITS
    return abs(float(number)) != inf


def json_body(what: str, text: str | bytes) -> str:
    """Return JSON from outside as text, after a check."""
    try:
        msgspec.json.decode(text)
        return text if isinstance(text, str) else text.decode()
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadInput(what, text, needed=f"JSON ({error})") from None


def check_add(command: Add) -> None:
    """Check all jobs of a batch. If only the data differs from the job before, check only the data."""
    last: tuple[Any, ...] | None = None
    for new in command.jobs:
        said = _OPTIONS(new) if len(command.jobs) > 1 else None
        if said is not None and said == last:
            check_body("data", new.data)
        else:
            check_new(new)
            last = said
    if command.ids:
        _check_ids(command)
    if command.more and (not command.jobs or command.jobs[-1].id):
        raise BadInput("more", counted(len(command.more), "job"), needed="preceded by one that they are like")
    for data in command.more:
        # The same as `check_body`, whose calls for thousands of jobs would take longer than all other checks.
        if type(data) is not str or not data.isascii() or len(data) > bounds.DATA_BYTES or "\0" in data:
            check_body("data", data)


def _check_ids(command: Add) -> None:
    ids = command.ids
    if len(ids) != command.count or len(set(ids)) != len(ids):
        raise BadInput("ids", counted(len(ids), "id"), needed="one for each job, and none twice")
    if min(ids) < 1 or max(ids) > MAX_ID:
        raise BadInput("ids", min(ids), needed=f"whole numbers from 1 to {MAX_ID}")
    if any(new.id for new in command.jobs):
        raise BadInput("id", "given", needed="absent where the ids are given for all")


def check_new(new: NewJob) -> None:
    """Check a new job, except for what depends on the store."""
    check_name("task", new.task)
    if new.tenant != "":
        check_name("tenant", new.tenant)
    check_body("data", new.data)
    values = _FIELDS(new)
    if all(map(is_, values, _DEFAULTS)):
        # Most jobs.
        return
    for value, default, (field, check) in zip(values, _DEFAULTS, _FIELD_CHECKS, strict=False):
        if value is not default:
            check(field, value)
    if new.retry_after and (new.repeat or new.unique is not None) and new.strict:
        with_what = "repeat" if new.repeat else "unique"
        raise BadInput(
            "retry_after", new.retry_after, needed=f"absent: it cannot be combined with {with_what}"
        )
    if new.unique_for_ms and new.unique is None:
        raise BadInput("unique_for", new.unique_for_ms, needed="absent without unique")
    if new.then is not None:
        _check_follower("then", new.then, new.into)
    elif new.into:
        raise BadInput("into", new.into, needed="absent without then")
    if new.on_failure is not None:
        _check_follower("on_failure", new.on_failure, FAILED_JOB)


def _check_follower(option: str, new: NewJob, into: str) -> None:
    """Check a follow-up job, which is stored as JSON in the record of the job before it."""
    check_new(new)
    if new.id or new.parent_id:
        found = "a job with an id or a parent"
        raise BadInput(option, found, needed="without: it is made when this one is done")
    if isinstance(new.data, bytes):
        raise BadInput(f"data of {option}", "bytes", needed="JSON")
    if into and not new.data.lstrip().startswith("{"):
        needed = f"an object: {into!r} is added to it"
        raise BadInput(f"data of {option}", "not an object", needed=needed)
    size = len(msgspec.json.encode(new))
    if size > bounds.THEN_BYTES:
        raise TooLarge(option, f"{size:,} bytes", needed=f"at most {bounds.THEN_BYTES:,} bytes")


def check_defaults(defaults: Defaults) -> None:
    """Check the defaults of a task: each is as in a new job."""
    for field, check in _FIELD_CHECKS:
        value = getattr(defaults, field, None)
        if value is not None and value != "":
            check(field, value)
    _check_stored("then", defaults.then, defaults.into)
    _check_stored("on_failure", defaults.on_failure, FAILED_JOB)


def _check_stored(option: str, text: str | None, into: str) -> None:
    if not text:
        return
    if len(text) > bounds.THEN_BYTES:
        found = f"{len(text):,} characters"
        raise TooLarge(option, found, needed=f"at most {bounds.THEN_BYTES:,} bytes")
    try:
        new = msgspec.json.decode(text, type=NewJob)
        _check_follower(option, new, into)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(option, "text", needed=f"a job as JSON ({error})") from None
    for data in data_of(new):
        check_json(f"data of {option}", data)


def data_of(new: NewJob) -> Iterator[Body]:
    """The data of a new job, and of the jobs that follow it."""
    yield new.data
    for follower in new.followers:
        yield from data_of(follower)


def check_command(command: Command) -> None:
    """Refuse bad input before it goes anywhere: check the fields of a command that have limits."""
    kind = type(command)
    if kind is not Add:
        for field, check in _checked_fields(kind):
            if (value := getattr(command, field)) is not None:
                check(field, value)
    if (check_kind := _KIND_CHECKS.get(kind)) is not None:
        check_kind(command)


def _check_answers(command: AnswerAll) -> None:
    if command.held and len(command.held) != len(command.answers):
        raise BadInput("held", f"{len(command.held)} records", needed=f"{len(command.answers)}, or none")
    called = sum([len(answer.suspend.jobs) for answer in command.answers if answer.suspend])
    if called > bounds.BATCH_JOBS:
        raise TooLarge("jobs", called, needed=f"at most {bounds.BATCH_JOBS:,} in all answers together")
    for answer in command.answers:
        check_command(answer)


def _check_step(command: Step) -> None:
    if command.kind not in ("step", "undo"):
        raise BadInput("kind", command.kind, needed="step or undo")
    own = () if command.is_note else (NewStep(name=command.name, result=command.result),)
    _check_steps((*command.before, *own))


def _check_update(command: Update) -> None:
    for field, check in _FIELD_CHECKS:
        value = getattr(command, field, None)
        # An empty `repeat` ends the repeats.
        if value is not None and (field, value) != ("repeat", ""):
            check(field, value)


def _check_requeue(command: Requeue) -> None:
    if command.from_step:
        check_name("from_step", command.from_step)


def _check_answer(answer: Answer) -> None:
    check_lines(answer.lines)
    if answer.priority is not None:
        check_whole("priority", answer.priority, 0, bounds.MAX_PRIORITY)
    for field in ("cpu_ms", "wall_ms"):
        # Not NaN or infinite either: the record of a job could not be read again with these.
        if not 0 <= (value := getattr(answer, field)) < inf:
            raise BadInput(field, value, needed="0 or more")
    if (answer.code is Code.SUSPEND) != (answer.suspend is not None):
        raise BadInput(
            "suspend", "given" if answer.suspend else "absent", needed="with the code suspend only"
        )
    if answer.suspend is not None:
        _check_steps(answer.suspend.steps)
        _check_suspension(answer.suspend)


def _check_steps(steps: tuple[NewStep, ...]) -> None:
    if len(steps) > bounds.STEPS_KEPT:
        raise TooLarge("steps", len(steps), needed=f"at most {bounds.STEPS_KEPT:,}")
    for new in steps:
        check_name("step", new.name)
        check_body("result of a step", new.result)
        check_whole("took_ms", new.took_ms, 0, bounds.MAX_DURATION_MS)
        if new.kind not in ("step", "error", "version"):
            raise BadInput("kind", new.kind, needed="step, error or version")


def _check_suspension(wait: Suspension) -> None:
    if wait.delay_ms is not None:
        _duration("delay_ms", wait.delay_ms)
    _moment("until", wait.until)
    check_whole("step", wait.step, 0, bounds.STEPS_KEPT)
    if wait.kind == "signal":
        check_name("signal", wait.name)
    if wait.kind == "sleep" and not wait.step and wait.delay_ms is None and not wait.until:
        raise BadInput("sleep", "without an end", needed="delay_ms or until")
    if bool(wait.jobs) != (wait.kind == "call" and not wait.step):
        raise BadInput("jobs", counted(len(wait.jobs), "job"), needed="at least one in a call, else none")
    if len(wait.jobs) > bounds.BATCH_JOBS:
        raise TooLarge("jobs", len(wait.jobs), needed=f"at most {bounds.BATCH_JOBS:,} in a call")
    for new in wait.jobs:
        check_new(new)
        for option in ("id", "parent_id", "strict", "mock", "schedule", "repeat", "retry_after"):
            if getattr(new, option):
                raise BadInput(option, getattr(new, option), needed="absent in a job that is called")


def _check_signal(command: SendSignal) -> None:
    check_name("signal", command.name)
    if not command.data:
        raise BadInput("data", command.data, needed="JSON")
    check_body("data", command.data)
    check_signal_size(command.name, size_of(command.data))
    if command.key:
        check_key("key", command.key.encode(errors="replace"), bounds.UNIQUE_KEY_BYTES)


def check_signal_size(name: str, size: int) -> None:
    """Refuse a signal whose data are too large."""
    if size > bounds.SIGNAL_BYTES:
        found, needed = f"{size:,} bytes", f"at most {bounds.SIGNAL_BYTES:,} bytes"
        raise TooLarge(f"signal {name!r}", found, needed=needed)


def _check_sysid(command: TakeSysid) -> None:
    check_name("token", command.token)
    if command.previous:
        check_name("previous", command.previous)
    check_whole("number", command.number, 0, SYSIDS - 1)
    check_whole("used_until", command.used_until_ms, 0, bounds.MAX_TIME_MS)
    check_whole("for", command.for_ms, 0, bounds.JOURNAL_LEASE_MS)


def _check_report(command: Report) -> None:
    if not isinstance(command.fraction, int | float) or not 0 <= command.fraction <= 1:
        raise BadInput("progress", command.fraction, needed="a fraction from 0 to 1")
    if not isinstance(command.note, str) or len(command.note.encode(errors="replace")) > bounds.NOTE_BYTES:
        raise TooLarge("note", command.note, needed=f"text of at most {bounds.NOTE_BYTES} bytes")


@cache
def _checked_fields(kind: type[Command]) -> tuple[tuple[str, Any], ...]:
    """The fields of a type of command that are checked wherever they occur."""
    return tuple(part for part in _COMMAND_CHECKS if part[0] in kind.__struct_fields__)


def check_lines(lines: tuple[str, ...]) -> None:
    """Check log lines, as made by `notes.lines_of`."""
    if len(lines) > bounds.LOG_LINES:
        raise TooLarge("log", f"{len(lines):,} lines", needed=f"at most {bounds.LOG_LINES:,} at once")
    for line in lines:
        try:
            size = len(line.encode())
        except UnicodeEncodeError:
            raise BadInput("line of a log", "text with lone surrogates", needed="UTF-8") from None
        if size > bounds.LOG_LINE_BYTES:
            found = f"{size:,} bytes"
            raise TooLarge("line of a log", found, needed=f"at most {bounds.LOG_LINE_BYTES:,} bytes")


def _check_claim(claim: Claim) -> None:
    check_whole("limit", claim.limit, 1, bounds.CLAIM_JOBS)
    if claim.picks:
        _check_picks(claim)
    if claim.glob is not None:
        check_glob(claim.glob)
        if claim.picks or claim.tenants is not None:
            # A glob selects tasks by name; picks and tenants name them.
            raise BadInput("glob", claim.glob, needed="absent: a claim has picks or tenants, or a glob")


def _check_picks(claim: Claim) -> None:
    if len(claim.picks) > bounds.CLAIM_JOBS:
        raise TooLarge("picks", f"{len(claim.picks):,}", needed=f"at most {bounds.CLAIM_JOBS:,}")
    if claim.mock:
        raise BadInput("mock", claim.mock, needed="absent: a claim with picks passes mocked jobs by")
    for tenant, task, most in claim.picks:
        check_name("tenant", tenant, empty=True)
        check_name("task", task)
        check_whole("pick", most, 1, bounds.CLAIM_JOBS)
    if len({(tenant, task) for tenant, task, _ in claim.picks}) < len(claim.picks):
        raise BadInput("picks", claim.picks, needed="each task of a tenant once")


def _whole(least: int, most: int) -> Any:
    return lambda name, value: check_whole(name, value, least, most)


def _duration(name: str, value: object) -> None:
    check_whole(name.removesuffix("_ms"), value, 0, bounds.MAX_DURATION_MS)


def _moment(name: str, value: object) -> None:
    check_whole(name, value, 0, bounds.MAX_TIME_MS)


def _retry_after(name: str, value: object) -> None:
    if isinstance(value, str):
        check_retry_after(value)
    else:
        _duration(name, value)


def _backoff(_name: str, backoff: Backoff) -> None:
    # The types of its numbers too: a record with others, such as 500.0 ms, could not be read again.
    check_whole("backoff most_ms", backoff.most_ms, 0, bounds.MAX_DURATION_MS)
    check_whole("backoff first_ms", backoff.first_ms, 0, backoff.most_ms)
    jitter = backoff.jitter
    if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
        raise BadInput("backoff jitter", jitter, needed="a number from 0 to 1")


def _on_conflict(name: str, value: object) -> None:
    if value not in ("keep", "merge", "replace"):
        raise BadInput(name, value, needed="keep, merge or replace")


def _repeat(_name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise BadInput("repeat", value, needed="text such as 'FINISHED, +1 HOUR'")
    if value:
        parse_repeat(value)


def is_traceparent(text: str) -> bool:
    """Whether this is a W3C traceparent of version 00, with a trace and a span."""
    return bool(re.fullmatch(_TRACEPARENT, text))


def _traceparent(name: str, value: object) -> None:
    if not isinstance(value, str) or not is_traceparent(value):
        raise BadInput(name, value, needed="a W3C traceparent, such as 00-<32 hex>-<16 hex>-01")


_FIELD_CHECKS: tuple[tuple[str, Any], ...] = (
    ("id", _whole(0, (1 << 63) - 1)),
    ("priority", _whole(0, bounds.MAX_PRIORITY)),
    ("run_at", _moment),
    ("delay_ms", _duration),
    ("expires_at", _moment),
    ("expires_in_ms", _duration),
    ("max_attempts", _whole(0, bounds.MAX_ATTEMPTS)),
    ("max_losses", _whole(0, bounds.MAX_ATTEMPTS)),
    ("backoff", _backoff),
    ("timeout_ms", _duration),
    ("retry_after", _retry_after),
    ("repeat", _repeat),
    ("unique", lambda name, value: check_key(name, value, bounds.UNIQUE_KEY_BYTES)),
    ("unique_for_ms", _duration),
    ("on_conflict", _on_conflict),
    ("domain", lambda name, value: check_key(name, value, bounds.DOMAIN_BYTES)),
    ("parent_id", _whole(0, (1 << 63) - 1)),
    ("into", check_name),
    ("schedule", check_name),
    ("traceparent", _traceparent),
)
_KIND_CHECKS: dict[type[Command], Any] = {
    Add: check_add,
    Answer: _check_answer,
    AnswerAll: _check_answers,
    Claim: _check_claim,
    Report: _check_report,
    Requeue: _check_requeue,
    ReserveIds: lambda command: check_whole("count", command.count, 1, bounds.BATCH_JOBS),
    SendSignal: _check_signal,
    Step: _check_step,
    TakeSysid: _check_sysid,
    Update: _check_update,
    WriteLog: lambda command: check_lines(command.lines),
}
_COMMAND_CHECKS: tuple[tuple[str, Any], ...] = (
    ("data", check_body),
    ("result", check_body),
    ("lease_ms", lambda _, value: check_whole("lease", value, 1, bounds.MAX_DURATION_MS)),
    ("delay_ms", _duration),
    ("retention_ms", _duration),
    ("run_at", _moment),
    ("task", check_name),
)
_FIELDS = attrgetter(*(field for field, _ in _FIELD_CHECKS), "then", "on_failure")
_DEFAULTS = _FIELDS(NewJob(task="-"))
_OPTIONS = attrgetter(*(field for field in NewJob.__struct_fields__ if field != "data"))
