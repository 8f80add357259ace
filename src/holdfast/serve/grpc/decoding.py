"""How the messages of clients are read: their parts are counted on the wire before any becomes an object.

    bytes ──▶ parts counted, refused at the first too many ──▶ message ──▶ lengths of lists ──▶ record

Two bytes on the wire can be an empty job, which as an object takes a thousand. The count reads the tag and
the length of each field, and stops at its limit, however long the message is. Small messages need none.
"""

import re
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

from ...core.access import Grant, check_kind
from ...core.bounds import BATCH_JOBS, GRPC_FIELDS, GRPC_NUMBERS, GRPC_PARTS, READ_AT_ONCE_BYTES
from ...core.errors import BadInput, TooLarge
from ...proto.conversion import Verb

# The kind of a field, by the lower three bits of its tag.
_VARINT, _SIZED, _FIXED = 0, 2, {1: 8, 5: 4}
# The bytes that are not the last of a varint: deleted, one byte of each number is left.
_NOT_LAST = bytes(range(0x80, 0x100))


def parse(kind: Any, raw: bytes) -> Any:
    """A message as it came; `TooLarge` if it has too many parts."""
    if len(raw) > READ_AT_ONCE_BYTES:
        count_parts(raw, kind.DESCRIPTOR)
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise _malformed(raw, kind.DESCRIPTOR) from None


def decode(verb: Verb, sent: Any, grant: Grant) -> Any:
    """The command or query of a message, if the client may ask for any of its type and no list is too long.

    It is still to be checked and confined, which needs the record.
    """
    check_kind(grant, verb.kind)
    for name in _lists_of(verb.request.DESCRIPTOR):
        if (count := len(getattr(sent, name))) > BATCH_JOBS:
            raise TooLarge(name, f"{count:,}", needed=f"at most {BATCH_JOBS:,}")
    return verb.decode(sent)


def count_parts(raw: bytes, descriptor: Any) -> None:
    """Raise `TooLarge` at the first part of a message that is too many, `BadInput` if it cannot be walked."""
    outline, at, end = _outline_of(descriptor), 0, len(raw)
    around: list[tuple[int, Outline]] = []
    fields, parts, numbers = GRPC_FIELDS, GRPC_PARTS, GRPC_NUMBERS
    try:
        while fields and parts and numbers >= 0:
            while at >= end:
                if not around:
                    return
                end, outline = around.pop()
            fields -= 1
            tag, at = (raw[at], at + 1) if raw[at] < 0x80 else _varint(raw, at)
            if tag & 7 != _SIZED:
                at = _varint(raw, at)[1] if tag & 7 == _VARINT else at + _FIXED[tag & 7]
                continue
            size, at = (raw[at], at + 1) if raw[at] < 0x80 else _varint(raw, at)
            if (inside := outline.inside.get(tag)) is not None:
                parts -= 1
                if inside.may_have_parts(raw, at, at + size):
                    around.append((end, outline))
                    end, outline = at + size, inside
                    continue
            elif tag in outline.packed:
                numbers -= len(raw[at : at + min(size, 10 * GRPC_NUMBERS)].translate(None, _NOT_LAST))
            at += size
    except (LookupError, ValueError):
        raise _malformed(raw, descriptor) from None
    needed = f"at most {GRPC_FIELDS:,} fields, {GRPC_PARTS:,} messages inside and {GRPC_NUMBERS:,} numbers"
    raise TooLarge(descriptor.name, f"{len(raw):,} bytes with more parts", needed=needed)


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A number of up to 64 bits, and where it ends."""
    value = raw[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in range(7, 70, 7):
        at += 1
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
    raise ValueError("a number with more than ten bytes")


def _malformed(raw: bytes, descriptor: Any) -> BadInput:
    return BadInput("message", f"{len(raw):,} bytes", needed=f"a {descriptor.name}")


@cache
def _lists_of(descriptor: Any) -> tuple[str, ...]:
    return tuple(field.name for field in descriptor.fields if is_list(field))


def is_list(field: Any) -> bool:
    """Whether a field is repeated; in all versions of protobuf an empty one has a default that is a list."""
    return isinstance(field.default_value, list)


class Outline:
    """The fields of a message that can multiply: messages and lists. Others are passed over."""

    def __init__(self) -> None:
        # By the tag the outline of a message; the tags of packed numbers; the first bytes of all such tags.
        self.inside: dict[int, Outline] = {}
        self.packed: set[int] = set()
        self.may_have_parts: Any = _is_plain

    def fill(self, descriptor: Any, around: dict[str, "Outline"]) -> "Outline":
        """Make the tables. Plain messages that are no list are passed over too."""
        around, tags = around | {descriptor.full_name: self}, set()
        for field in descriptor.fields:
            tag, kind = field.number << 3 | _SIZED, field.message_type
            if kind is not None:
                inside = around.get(kind.full_name) or Outline().fill(kind, around)
                if is_list(field) or inside.may_have_parts is not _is_plain or kind.full_name in around:
                    self.inside[tag] = inside
                    tags.add(tag)
            elif is_list(field):
                tags.add(tag)
                if field.cpp_type != field.CPPTYPE_STRING:
                    self.packed.add(tag)
        if tags:
            # A tag may be written with more bytes than it needs: then the first has its upper bit set.
            firsts = {tag & 0x7F | bit for tag in tags for bit in ((0, 0x80) if tag < 0x80 else (0x80,))}
            self.may_have_parts = re.compile(b"[%s]" % re.escape(bytes(sorted(firsts)))).search
        return self


def _is_plain(_raw: bytes, _at: int, _end: int) -> None:
    """A message that has neither messages nor lists in it."""


@cache
def _outline_of(descriptor: Any) -> Outline:
    return Outline().fill(descriptor, {})
