r"""The framing of the job-command port: parses bytes to requests, without sockets and commands.

    CreateJob                      the verb is the first word; "CreateJob / HTTP/1.1" is the same
    name: foo                      header names in any case; blanks around name and value do not count
    data: {"a":"x\\ny",            values are unescaped: \\ \n \r \t \b \f \uXXXX, and \c is c
      "b":1}                       a line that begins with a blank continues the value before it
    Content-Length: 3              the body after the blank line has this length; no command uses it
                                   a blank line ends it; lines end in LF or CRLF
    abc

Without Content-Length, or chunks, a request has no body, and the next request begins at once. So requests can
be pipelined, however they are split into packets.

A head is at most 64 KB, apart from the values of `data`, `jobs`, `jobIDs` and `query`, which may be as long
as the largest data. A longer one is refused as soon as that many bytes have arrived, even without a line end.
`begun` tells the headers in the first 64 KB of a longer head: by them a server decides whether it takes more.

A malformed request becomes a `Broken`. After one that is `final` the start of the next request is unknown.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...core.bounds import (
    PORT_BODY_BYTES,
    PORT_CHUNK_LINE_BYTES,
    PORT_HEAD_BYTES,
    PORT_HEADERS,
    PORT_LINES_BYTES,
)


class Request(NamedTuple):
    """One request; the names of headers in lower case."""

    verb: str
    headers: dict[str, str]


class Broken(NamedTuple):
    """What stands where a request should; `final` where nothing after it can be read."""

    status: str
    final: bool = False


TOO_LARGE = Broken("413 Request too large", final=True)
BAD_LENGTH = Broken("400 Malformed Content-Length", final=True)
BAD_CHUNK = Broken("400 Malformed chunk", final=True)
BAD_HEADER = Broken("400 Malformed header")
BAD_TEXT = Broken("400 Malformed text: not UTF-8")

# Headers whose values may be longer than all the rest of a head.
PAYLOADS = frozenset({b"data", b"jobs", b"jobids", b"query"})

_HEAD_END = re.compile(rb"\n\r?\n")
# What may turn out to be the first bytes of a head's end.
_HEAD_END_BEGUN = re.compile(rb"\n\r?\Z")
_LINE_BREAK = re.compile(rb"[\r\n]")
_MEANS_BODY = re.compile(rb"content-length|transfer-encoding", re.IGNORECASE)
# The end of a payload's value: a line break that no blank follows. Its lines are not looked at one by one.
_PAYLOAD_END = re.compile(rb"[\r\n](?=[^ \t\r\n])")
# With the empty lines after it: they mean nothing.
_LINE_END = re.compile(r"[\r\n]++")
# What joins a line with those that continue it. Without the look behind, many blanks would take their square;
# without the last plus, the matcher would keep 120 bytes for each line, to go back to it.
_CONTINUED = re.compile(r"(?<![ \t\r\n])[ \t]*+(?:[\r\n]++[ \t]++)++")
# Parts of a value that can be joined, and unescaped, one after the other. `sub` makes a list of all that it
# leaves and inserts: for a whole value of short lines or escapes it would take twenty times the bytes.
_LINES_PART = re.compile(r"(?s).{1,65536}[ \t\r\n]*+")
_ESCAPES_PART = re.compile(r"(?s).{1,65536}[^\\]*+(?:\\u[dD][c-fC-F][^\\]*+)*+")
_NOT_BLANK = re.compile(rb"[^ \t\r\n]")
_BLANK = re.compile(r"[ \t]")
_DIGITS = re.compile(r"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9a-fA-F]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")
_UNICODE = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})")
_PLAIN = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\b": "\b", "\\f": "\f"}
# Stands for a backslash meanwhile: a half of a character is in no text that was UTF-8.
_BACKSLASH = "\ud800"


class Parser:
    """Takes bytes as they come, gives requests as they are whole, and keeps no more than one that is not."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        # Up to here there is no end of a head; bytes of a body that are still to come; a request whose
        # chunks are still to come.
        self._looked = 0
        self._lines = _LineBytes()
        self._skip = 0
        self._chunked: Request | Broken | None = None
        self._in_trailer = False
        self._body = 0
        self.over = False

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return len(self._buffer)

    @property
    def is_inside(self) -> bool:
        """Whether a request has begun that is not whole."""
        return bool(self._buffer or self._skip) or self._chunked is not None

    @property
    def begun(self) -> Request | None:
        """The request whose head is longer than 64 KB and not whole, as far as these 64 KB tell; or None."""
        if self._skip or self._chunked is not None or len(self._buffer) <= PORT_LINES_BYTES:
            return None
        found = _parsed(bytes(self._buffer[:PORT_LINES_BYTES]).rpartition(b"\n")[0])
        return found if isinstance(found, Request) else Request("", {})

    def end(self) -> None:
        """Forget what is kept, and read no more."""
        self.over = True
        self._buffer.clear()

    def feed(self, data: bytes) -> Iterator[Request | Broken]:
        """The requests that are whole with these bytes. To be used up before the next are fed."""
        if self.over:
            return
        self._buffer += data
        while (found := self._next()) is not None:
            if isinstance(found, Broken) and found.final:
                self.end()
            yield found

    def _next(self) -> Request | Broken | None:
        if self.over:
            return None
        if self._chunked is not None:
            return self._chunks()
        return self._head() if self._skip_body() else None

    def _skip_body(self) -> bool:
        """Drop what has come of a body that is not read; whether that was all of it."""
        cut = min(self._skip, len(self._buffer))
        del self._buffer[:cut]
        self._skip -= cut
        return not self._skip

    def _head(self) -> Request | Broken | None:
        if not self._looked and not self._strip():
            return None
        size = len(self._buffer)
        end = _HEAD_END.search(self._buffer, max(self._looked - 2, 0))
        cut = end or _HEAD_END_BEGUN.search(self._buffer, max(size - 2, 0))
        length = cut.start() if cut else size
        if length > PORT_HEAD_BYTES or self._lines.count(self._buffer, length) > PORT_LINES_BYTES:
            return TOO_LARGE
        if end is None:
            self._looked = size
            return None
        raw = bytes(self._buffer[:length])
        del self._buffer[: end.end()]
        self._looked, self._lines = 0, _LineBytes()
        found = _parsed(raw)
        if isinstance(found, Broken):
            # Its end is known, and so where the next begins: unless it meant to have a body.
            return Broken(found.status, final=_MEANS_BODY.search(raw) is not None)
        return self._with_body(found)

    def _strip(self) -> bool:
        """Take blank lines from the start; whether anything is left."""
        begin = _NOT_BLANK.search(self._buffer)
        del self._buffer[: begin.start() if begin else len(self._buffer)]
        return begin is not None

    def _with_body(self, request: Request) -> Request | Broken | None:
        if request.headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunked, self._body = request, 0
            return self._chunks()
        length = request.headers.get("content-length")
        if length is None:
            return request
        if not _DIGITS.fullmatch(length):
            return BAD_LENGTH
        self._skip = int(length)
        return request if self._skip <= PORT_BODY_BYTES else TOO_LARGE

    def _chunks(self) -> Request | Broken | None:
        """The request, when the last of its chunks has come."""
        while True:
            if not self._skip_body():
                return None
            at = self._buffer.find(b"\n")
            if at < 0:
                return BAD_CHUNK if len(self._buffer) > PORT_CHUNK_LINE_BYTES else None
            line = bytes(self._buffer[: at + 1])
            del self._buffer[: at + 1]
            self._body += len(line)
            if len(line) > PORT_CHUNK_LINE_BYTES:
                return BAD_CHUNK
            if self._body > PORT_BODY_BYTES:
                return TOO_LARGE
            if self._in_trailer:
                if not line.strip():
                    request, self._chunked, self._in_trailer = self._chunked, None, False
                    return request
            elif (problem := self._chunk(line)) is not None:
                return problem

    def _chunk(self, line: bytes) -> Broken | None:
        if not line.strip():  # the end of the chunk before
            return None
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            return BAD_CHUNK
        self._skip = int(size[1], 16)
        self._body += self._skip
        self._in_trailer = not self._skip
        return TOO_LARGE if self._body > PORT_BODY_BYTES else None


class _LineBytes:
    """Counts the bytes of one head, without the values of payload headers, as they come."""

    def __init__(self) -> None:
        # The start of the unfinished line, how far its end was looked for, the bytes of the lines before it.
        self._line_at = self._looked = self._bytes = 0
        self._in_payload = False

    def count(self, head: bytearray, length: int) -> int:
        """The bytes so far, when `length` bytes of the head have come."""
        while (end := self._line_end(head, length)) is not None:
            size, self._in_payload = self._line(head, end.start())
            self._bytes += size
            self._line_at = self._looked = end.end()
        self._looked = max(self._looked, length)
        return self._bytes + self._line(head, length)[0]

    def _line_end(self, head: bytearray, length: int) -> re.Match[bytes] | None:
        """The end of the current line, or of all lines that continue a payload, empty ones too."""
        if self._in_payload and self._line_at < length and head[self._line_at] in b" \t\r\n":
            if (end := _PAYLOAD_END.search(head, self._looked, length)) is not None:
                return end
            # The last byte may be a line break whose next line is yet to come.
            self._looked = max(self._looked, length - 1)
        return _LINE_BREAK.search(head, self._looked, length)

    def _line(self, head: bytearray, end: int) -> tuple[int, bool]:
        """What the current line counts for up to `end`, and whether it belongs to a payload header."""
        at, in_payload, size = self._line_at, self._in_payload, end - self._line_at + 1
        if end > at and head[at] not in b" \t\r\n":
            # The first line is the verb's. A name that is longer than all lines may be is that of no payload.
            colon = head.find(b":", at, min(end, at + PORT_LINES_BYTES)) if at else -1
            in_payload = colon >= 0 and bytes(head[at:colon]).strip(b" \t").lower() in PAYLOADS
            return (colon - at + 2 if in_payload else size), in_payload
        return (0 if in_payload else size), in_payload


def _parsed(raw: bytes) -> Request | Broken:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return BAD_TEXT
    first, *rest = _LINE_END.split(text, maxsplit=1)
    # Lines are joined before they become objects: a value may have millions of them.
    joined = _LINES_PART.sub(lambda part: _CONTINUED.sub(" ", part[0]), rest[0]) if rest else ""
    lines = _LINE_END.split(joined)
    found = [line for line in lines if line.strip(" \t")]
    if len(found) > PORT_HEADERS:
        return BAD_HEADER
    headers: dict[str, str] = {}
    for line in found:
        name, colon, value = line.partition(":")
        if not colon or not name.strip(" \t"):
            return BAD_HEADER
        try:
            headers[name.strip(" \t").lower()] = unescaped(value.strip(" \t"))
        except UnicodeError:
            return BAD_TEXT
    return Request(_BLANK.split(first, maxsplit=1)[0], headers)


def unescaped(value: str) -> str:
    r"""A value as it was meant: \\ \n \r \t \b \f \uXXXX undone, of any other \c the c."""
    if "\\" not in value:
        return value
    # All of a kind at once: a function for each escape would take seconds for a value of the largest size.
    text = value.replace("\\\\", _BACKSLASH)
    for escape, char in _PLAIN.items():
        text = text.replace(escape, char)
    if "\\u" in text:
        text = _ESCAPES_PART.sub(lambda part: _UNICODE.sub(_character, part[0]), text)
    last = "\\" if text.endswith("\\") else ""
    return text.replace("\\", "").replace(_BACKSLASH, "\\") + last


def _character(match: re.Match[str]) -> str:
    """A character by its number, or by its two halves; raises `UnicodeError` for a half alone."""
    if match[3] is None:
        return bytes.fromhex(match[1] + match[2]).decode("utf-16-be")
    char = chr(int(match[3], 16))
    if "\ud800" <= char <= "\udfff":
        raise UnicodeError("half a character")
    return char


def reply_bytes(status: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """A reply as it goes out: the status line, headers, Content-Length last, a blank line, the body."""
    lines = [status, *(f"{name}: {value}" for name, value in headers), f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
