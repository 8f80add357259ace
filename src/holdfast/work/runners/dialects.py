"""How requests to a context are written and its replies are read: JSON lines, or the words of the shell."""

import base64
import json
from typing import Any, Protocol

import msgspec

from ...core.bounds import DATA_BYTES
from ...core.handler import Handler
from ...core.job import Body
from .records import ERROR, FAILED, INVALID_RESPONSE, OK, RESULT_LIMIT, RETRY, ContextFailed, HandlerJob

# What decoding raises; the second for lists in lists in lists.
BAD_JSON = (msgspec.DecodeError, RecursionError)
LEAST_EXIT_CODE, MOST_EXIT_CODE = 100, 599
# Exit statuses of programs, by sysexits.h: EX_OK, EX_DATAERR, EX_TEMPFAIL.
STATUSES = {0: OK, 65: FAILED, 75: RETRY}


class Reply(msgspec.Struct, frozen=True):
    """A reply of a context: how the request ended, and a result."""

    exit_code: int = OK
    body: Body | None = None
    error: str = ""
    traceback: str = ""


class Dialect(Protocol):
    """The requests that a context understands. Each is numbered, and its reply has the same number."""

    def before(self, number: int, text: str) -> list[bytes]:
        """Run the script that prepares a context."""

    def define(self, number: int, key: str, handler: Handler) -> list[bytes]:
        """Keep the scripts of a handler under a key."""

    def around(self, number: int, key: str, script: str) -> bytes:
        """Run `before_each` or `after_each` of a handler."""

    def run(self, number: int, key: str, job: HandlerJob) -> bytes:
        """Run a job."""

    def read(self, number: int, buffer: bytearray, searched: int) -> Reply | None:
        """Take a whole reply off the buffer; None if there is none yet. Raises `ContextFailed`.

        The first `searched` bytes were in the buffer at the last call, which found no reply.
        """


class _JsonReply(msgspec.Struct, frozen=True):
    number: int
    exit_code: int = OK
    result: msgspec.Raw = msgspec.Raw(b"null")
    base64: str = ""
    error: str = ""
    traceback: str = ""


_decode_reply = msgspec.json.Decoder(_JsonReply).decode


class JsonDialect:
    """JSON lines, for interpreters with a bootstrap."""

    def before(self, number: int, text: str) -> list[bytes]:
        """Run the script that prepares a context."""
        return [_line(number=number, do="before", text=text)]

    def define(self, number: int, key: str, handler: Handler) -> list[bytes]:
        """Keep the scripts of a handler under a key."""
        scripts = {name: getattr(handler, name) for name in ("body", "before_each", "after_each")}
        return [_line(number=number, do="define", handler=key, **scripts)]

    def around(self, number: int, key: str, script: str) -> bytes:
        """Run `before_each` or `after_each` of a handler."""
        return _line(number=number, do=script, handler=key)

    def run(self, number: int, key: str, job: HandlerJob) -> bytes:
        """Run a job. A payload that is not UTF-8 is sent as base64."""
        about = {"id": str(job.id), "task": job.task, "attempt": job.attempt}
        try:
            payload = {"payload": job.payload.decode() + "\n"}
        except UnicodeDecodeError:
            payload = {"base64": base64.b64encode(job.payload).decode()}
        return _line(number=number, do="run", handler=key, job=about, **payload)

    def read(self, number: int, buffer: bytearray, searched: int) -> Reply | None:
        """Take a line off the buffer."""
        end = buffer.find(b"\n", searched)
        if end < 0:
            return None
        try:
            found = _decode_reply(buffer[:end])
            raw, text = base64.b64decode(found.base64), bytes(found.result).decode()
        except (*BAD_JSON, ValueError) as error:
            raise ContextFailed(INVALID_RESPONSE, f"a reply that cannot be decoded: {error}") from None
        del buffer[: end + 1]
        _check_number(number, found.number)
        if not is_exit_code(found.exit_code):
            raise ContextFailed(INVALID_RESPONSE, refuse_exit_code(found.exit_code))
        body = raw if found.base64 else None if text == "null" else text
        return _limited(Reply(found.exit_code, body, found.error, found.traceback))


def _line(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _check_number(expected: int, found: int) -> None:
    if expected != found:
        raise ContextFailed(INVALID_RESPONSE, f"a reply to request {found} instead of {expected}")


def is_exit_code(number: int) -> bool:
    """Whether a job may end with this number."""
    return LEAST_EXIT_CODE <= number <= MOST_EXIT_CODE


def refuse_exit_code(found: object) -> str:
    """The error for a number with which no job may end."""
    return f"exit code {found}: a number from {LEAST_EXIT_CODE} to {MOST_EXIT_CODE} is needed"


def _limited(reply: Reply) -> Reply:
    body = reply.body
    if body is not None and len(body) > DATA_BYTES // 4 and len(_as_bytes(body)) > DATA_BYTES:
        return Reply(ERROR, None, f"{RESULT_LIMIT}: a result of more than {DATA_BYTES:,} bytes")
    return reply


def _as_bytes(body: Body) -> bytes:
    return body if isinstance(body, bytes) else body.encode()


class ShellDialect:
    """Lines of words and counted bytes, for the shell."""

    def before(self, number: int, text: str) -> list[bytes]:
        """Store the script that prepares a context, and run it."""
        return [_put(number, "before", text), b"source %d before 0\n" % number]

    def define(self, number: int, key: str, handler: Handler) -> list[bytes]:
        """Keep the scripts of a handler under a key: one request for each."""
        names = ("body", "before_each", "after_each")
        return [_put(number, f"{name}.{key}", text) for name in names if (text := getattr(handler, name))]

    def around(self, number: int, key: str, script: str) -> bytes:
        """Run `before_each` or `after_each` of a handler."""
        return f"source {number} {script}.{key} 0\n".encode()

    def run(self, number: int, key: str, job: HandlerJob) -> bytes:
        """Run a job."""
        payload = job.payload + b"\n"
        head = f"run {number} body.{key} {len(payload)} {job.id} {job.attempt} {job.task}\n"
        return head.encode() + payload

    def read(self, number: int, buffer: bytearray, searched: int) -> Reply | None:
        """Take a line and its counted bytes off the buffer."""
        end = buffer.find(b"\n")
        if end < 0:
            return None
        try:
            found, status, size, code_size = map(int, buffer[:end].split())
        except ValueError:
            raise ContextFailed(INVALID_RESPONSE, "a reply that cannot be read") from None
        first, last = end + 1 + size, end + 1 + size + code_size
        if len(buffer) < last:
            return None
        written, code = bytes(buffer[end + 1 : first]), bytes(buffer[first:last])
        del buffer[:last]
        _check_number(number, found)
        return read_status(status, written, code)


def _put(number: int, name: str, text: str) -> bytes:
    raw = text.encode() if text.endswith("\n") else text.encode() + b"\n"
    return f"put {number} {name} {len(raw)}\n".encode() + raw


def read_status(status: int, written: bytes, code: bytes) -> Reply:
    """The reply for an exit status, the result that a job wrote to descriptor 3, and the exit code in 4.

    The result is JSON, else text or bytes, whatever it looks like. The exit code counts, but for 2xx after an
    exit status that is not 0.
    """
    exit_code = STATUSES.get(status, ERROR)
    error = "" if exit_code == OK else f"exit status {status}"
    if words := code.split():
        last = words[-1].decode(errors="replace")
        chosen = int(last) if last.isdecimal() and len(last) < 10 else 0
        if not is_exit_code(chosen):
            exit_code, error = ERROR, f"{INVALID_RESPONSE}: {refuse_exit_code(last[:100])}"
        elif exit_code == OK or chosen // 100 != OK // 100:
            exit_code, error = chosen, ""
    return _limited(Reply(exit_code, _read_result(written), error))


def _read_result(written: bytes) -> Body | None:
    """JSON as it is, other text as JSON, and other bytes as they are; None: nothing was written."""
    text = written.strip()
    if text in (b"", b"null"):
        return None
    try:
        msgspec.json.decode(text)
        return text.decode()
    except BAD_JSON:
        pass
    try:
        return msgspec.json.encode(written.decode().removesuffix("\n")).decode()
    except UnicodeDecodeError:
        return written
