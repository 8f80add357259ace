"""The parameters of commands: each is parsed and checked, with the error texts of the protocol.

The errors of the rules have their replies here too.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from ...core.bounds import (
    CLAIM_JOBS,
    DATA_BYTES,
    GLOB_BYTES,
    HTTP_VALUES,
    MAX_DURATION_MS,
    MAX_TIME_MS,
    PORT_BATCH_JOBS,
    PORT_MOST_WAIT_MS,
    PORT_WAIT_MS,
)
from ...core.checks import check_name, check_numbers
from ...core.errors import BadInput, HoldfastError, NotFound, Refused
from ...core.glob import is_wild
from ...core.ids import MAX_ID
from ...core.repeat import check_retry_after, parse_repeat
from ..http.values import decode_elements

Headers = Mapping[str, str]

PRIORITIES = {"0": 0, "500": 500, "1000": 1000}
# Fields that this port adds to the data of a job, and does not store.
RESERVED = ("mockRequest", "retryAfterCount")

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_LEADING = re.compile(r"[+-]?[0-9]{1,18}")
_DATE = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,3})[0-9]*)?)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PortRefusal(Exception):
    """An error reply: its status line, and a `detail` for people."""

    def __init__(self, status: str, *, detail: str = "") -> None:
        super().__init__(status)
        self.status, self.detail = status, detail


def malformed(name: str) -> PortRefusal:
    """The refusal of an invalid value."""
    return PortRefusal(f"402 Malformed {name}")


def required(headers: Headers, name: str) -> str:
    """A required parameter."""
    value = headers.get(name.lower(), "")
    if not value:
        raise PortRefusal(f"402 Missing {name}")
    return value


def job_id(headers: Headers) -> int:
    """`jobID`: a 64-bit integer as text; a number that no job can have is not found."""
    number = _whole(required(headers, "jobID"))
    if number is None:
        raise malformed("jobID")
    return number


def job_ids(headers: Headers) -> list[int]:
    """`jobIDs`: a list, perhaps empty."""
    text = headers.get("jobids", "")
    if text.count(",") > 2 * PORT_BATCH_JOBS:
        raise malformed("jobIDs")
    pieces = [piece.strip(" ") for piece in text.split(",")]
    numbers = [_whole(piece) for piece in pieces if piece]
    if None in numbers or len(numbers) > PORT_BATCH_JOBS:
        raise malformed("jobIDs")
    return [number for number in dict.fromkeys(numbers) if number is not None]


def _whole(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def may_exist(number: int) -> bool:
    """Whether any job can have this number."""
    return 0 < number <= MAX_ID


def job_name(headers: Headers, *, needed: bool = True) -> str:
    """`name` of a new job."""
    name = required(headers, "name") if needed else headers.get("name", "")
    if name:
        try:
            check_name("name", name)
        except BadInput:
            raise malformed("name") from None
    return name


class Wanted(NamedTuple):
    """The names of GetJob: one pattern, or exact names."""

    glob: str | None = None
    tasks: tuple[str, ...] | None = None


def wanted(headers: Headers) -> Wanted:
    """`name` of GetJob: a pattern, or with commas a list of exact names."""
    text = required(headers, "name")
    if len(text.encode()) > GLOB_BYTES:
        raise malformed("name")
    pieces = tuple(dict.fromkeys(piece.lstrip(" \t") for piece in text.split(",")))
    pieces = tuple(piece for piece in pieces if piece)
    if not pieces:
        raise PortRefusal("402 Missing name")
    if len(pieces) == 1 and is_wild(pieces[0]):
        return Wanted(glob=pieces[0])
    return Wanted(tasks=pieces)


def num_results(headers: Headers, *, many: bool) -> int:
    """`numResults`, which GetJobs needs and GetJob must not have."""
    if not many:
        if "numresults" in headers:
            raise PortRefusal("402 Cannot use numResults with GetJob; try GetJobs")
        return 1
    text = required(headers, "numResults")
    number = int(text) if _LEADING.fullmatch(text) else 1
    return min(max(number, 1), CLAIM_JOBS)


def priority(headers: Headers, name: str = "jobPriority") -> int | None:
    """A priority, or None if none is given."""
    text = headers.get(name.lower(), "")
    if not text:
        return None
    if text not in PRIORITIES:
        raise PortRefusal("402 Invalid priority value")
    return PRIORITIES[text]


def flag(headers: Headers, name: str) -> bool:
    """A yes or no: `true` in any case, or a whole number other than zero."""
    text = headers.get(name.lower(), "")
    return text.lower() == "true" or number_flag(headers, name)


def number_flag(headers: Headers, name: str) -> bool:
    """A yes or no of which only a whole number other than zero is a yes."""
    text = headers.get(name.lower(), "")
    return bool(_LEADING.fullmatch(text)) and int(text) != 0


def moment(headers: Headers, name: str) -> int | None:
    """A time such as `2026-11-15`, `2026-11-15 13:00:00` or with `.250`, UTC; None: none given."""
    text = headers.get(name.lower(), "")
    if not text:
        return None
    match = _DATE.fullmatch(text)
    if match is None:
        raise malformed(name)
    *parts, fraction = match.groups()
    try:
        at = datetime(*(int(part or 0) for part in parts), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError:
        raise malformed(name) from None
    ms = (at - _EPOCH) // _MS + int((fraction or "").ljust(3, "0"))
    if ms > MAX_TIME_MS:
        raise malformed(name)
    # 0 would mean "no time". A time before 1970 is due at once.
    return max(ms, 1)


_MS = datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC) - _EPOCH


def repeat(headers: Headers) -> str:
    """`repeat`, as it was typed; empty: none."""
    text = headers.get("repeat", "")
    if text:
        try:
            parse_repeat(text)
        except BadInput:
            raise malformed("repeat") from None
    return text


def retry_after(headers: Headers) -> str:
    """`retryAfter`, as it was typed; empty: none. It goes with neither a repeat nor unique."""
    text = headers.get("retryafter", "")
    if not text:
        return ""
    try:
        check_retry_after(text)
    except BadInput:
        raise malformed("retryAfter") from None
    if headers.get("repeat", ""):
        raise PortRefusal("402 retryAfter cannot be combined with repeat")
    if headers.get("unique") == "true":
        raise PortRefusal("402 retryAfter cannot be combined with unique")
    return text


def duration_ms(headers: Headers, name: str) -> int:
    """A number of milliseconds; 0: none given."""
    text = headers.get(name.lower(), "")
    if not text:
        return 0
    number = _whole(text)
    if number is None or not 0 <= number <= MAX_DURATION_MS:
        raise malformed(name)
    return number


def delay_ms(headers: Headers) -> int:
    """`delay` of RetryJob, in seconds."""
    text = headers.get("delay", "") or "0"
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise malformed("delay")
    if text.startswith("-") and int(text[:20]) != 0:
        raise PortRefusal("402 Must specify a non-negative delay when retrying")
    if len(text.lstrip("+-")) > 8:
        raise malformed("delay")
    return abs(int(text)) * 1000


def wait_ms(headers: Headers) -> int:
    """How long a GetJob waits: not at all, unless `Connection` says so."""
    if "wait" not in connection(headers):
        return 0
    if not headers.get("timeout", ""):
        return PORT_WAIT_MS
    return min(duration_ms(headers, "timeout"), PORT_MOST_WAIT_MS)


def connection(headers: Headers) -> set[str]:
    """The words of `Connection`."""
    return {word.strip(" \t").lower() for word in headers.get("connection", "").split(",")}


class DataHeader(NamedTuple):
    """Data as it is stored, and the flags in it: mocked, and that a repeat ends."""

    text: str
    mock: bool = False
    delete: bool = False


class DataFlags(msgspec.Struct):
    """The flags in data. Of all the rest no objects are made: it may have millions of values."""

    mockRequest: msgspec.Raw | UnsetType = UNSET  # noqa: N815
    retryAfterCount: msgspec.Raw | UnsetType = UNSET  # noqa: N815
    delete: msgspec.Raw | UnsetType = UNSET


NO_DATA = DataHeader("{}")


def data(headers: Headers, *, most: int = DATA_BYTES) -> DataHeader | None:
    """`data`, which must be a JSON object; None: none given."""
    text = headers.get("data")
    if text is None:
        return None
    if len(text) > most or (not text.isascii() and len(text.encode()) > most):
        raise malformed("data")
    try:
        found = msgspec.json.decode(text, type=DataFlags)
        check_numbers("data", text)
    except (msgspec.DecodeError, UnicodeError, RecursionError, BadInput):
        raise PortRefusal("402 Data is not a valid JSON Object") from None
    mock, delete = found.mockRequest, found.delete
    said = DataHeader(
        text,
        mock=mock is not UNSET and bytes(mock) != b"null",
        delete=delete is not UNSET and bytes(delete) == b"true",
    )
    if mock is UNSET and found.retryAfterCount is UNSET:
        return said
    if text.count(",") > HTTP_VALUES:
        raise malformed("data")
    # The rest as raw JSON: decoding and encoding could change numbers.
    raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    kept = {key: value for key, value in raw.items() if key not in RESERVED}
    return said._replace(text=msgspec.json.encode(kept).decode())


def jobs(headers: Headers) -> list[dict[str, str]]:
    """`jobs` of CreateJobs: a JSON array of objects, each with the parameters of CreateJob as headers."""
    try:
        elements = decode_elements(headers.get("jobs", "").encode())
        if elements is None:
            raise malformed("jobs")
        found = [msgspec.json.decode(one, type=dict[str, msgspec.Raw]) for one in elements]
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise PortRefusal("401 Invalid JSON") from None
    if not found or not all(found):
        raise PortRefusal("401 Invalid JSON")
    return [_as_headers(one) for one in found]


def _as_headers(job: dict[str, msgspec.Raw]) -> dict[str, str]:
    headers = {name.lower(): _as_text(bytes(value)) for name, value in job.items()}
    # Other parameters refuse the text "null"; as a name it would be valid.
    if any(name.lower() == "name" and bytes(value) == b"null" for name, value in job.items()):
        headers["name"] = ""
    return headers


def _as_text(value: bytes) -> str:
    if value.startswith(b'"'):
        return msgspec.json.decode(value, type=str)
    return msgspec.json.format(value, indent=-1).decode()


NO_JOB = "404 No job with this jobID"
NOTHING = "404 No job found"

PARENT_GONE = "404 parentJobID does not exist"
PARENT_STATE = "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED"
OTHER_PARENT = "404 Trying to create a child that already exists, but it is tied to a different parent"
GRANDCHILD = "405 Cannot create grandchildren"
MOCK_PARENT = "405 Parent and child jobs must have matching mockRequest setting"

NOT_OUT = "405 Can only retry/finish RUNNING and RUNQUEUED jobs"
PARENT_NOT_PAUSED = "405 Can only retry/finish child job when parent is PAUSED"
OUTSTANDING = "405 Failed to delete a job with outstanding children"
NOT_OUT_TO_FAIL = "405 Can only fail RUNNING or RUNQUEUED jobs"
MOCK_MISMATCH = "500 Mock Mismatch"

WITH_CHILDREN = "404 Invalid jobID - Cannot cancel a job with children"
WITHOUT_PARENT = "404 Invalid jobID - Cannot cancel a job without a parent"

RUNNING = "405 Can't delete a RUNNING job"
CHILDREN_RUNNING = "405 Can't delete a parent jobs with children running"
KEY_TAKEN = "405 Cannot requeue: another job has its unique name"


def creating(error: HoldfastError) -> PortRefusal | None:
    """CreateJob(s)."""
    if isinstance(error, NotFound):
        return PortRefusal(PARENT_GONE)
    if isinstance(error, Refused):
        if error.verb == "add again":
            return PortRefusal(OTHER_PARENT)
        return PortRefusal(GRANDCHILD if error.because == "generation" else PARENT_STATE)
    return None


def answering(error: HoldfastError) -> PortRefusal | None:
    """FinishJob and RetryJob."""
    if isinstance(error, NotFound):
        return PortRefusal(NO_JOB)
    if isinstance(error, Refused):
        return PortRefusal(
            {"parent": PARENT_NOT_PAUSED, "outstanding": OUTSTANDING}.get(error.because, NOT_OUT)
        )
    return None


def failing(error: HoldfastError) -> PortRefusal | None:
    """FailJob."""
    if isinstance(error, NotFound):
        return PortRefusal(NO_JOB)
    return PortRefusal(NOT_OUT_TO_FAIL) if isinstance(error, Refused) else None


def deleting(error: HoldfastError) -> PortRefusal | None:
    """DeleteJob."""
    if isinstance(error, NotFound):
        return PortRefusal(NO_JOB)
    if isinstance(error, Refused):
        return PortRefusal(RUNNING if error.found == "RUNNING" else CHILDREN_RUNNING)
    return None


def gone(error: HoldfastError) -> PortRefusal | None:
    """Commands that any live job allows: other jobs are not found."""
    return PortRefusal(NO_JOB) if isinstance(error, NotFound | Refused) else None


def otherwise(error: HoldfastError, verb: str) -> PortRefusal:
    """Errors without a specific reply."""
    if isinstance(error, BadInput):
        return PortRefusal(f"402 Malformed {error.name}")
    return PortRefusal(f"502 {verb} failed")
