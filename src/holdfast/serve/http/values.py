"""Ids, names, bytes and JSON bodies as they are in requests and replies over HTTP."""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from msgspec.structs import astuple

from ...core.bounds import BATCH_JOBS, NAME_BYTES
from ...core.checks import check_numbers
from ...core.errors import BadInput
from ...core.ids import MAX_ID

Id = Annotated[
    str, Meta(pattern="^[0-9]{1,19}$", description="The id of a job.", examples=["1234567890123456789"])
]
Name = Annotated[str, Meta(max_length=NAME_BYTES, pattern="^[^\\x00-\\x1f\\x7f]*$")]
Whole = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Base64 = Annotated[str, Meta(description="Bytes that are no text, in base64.")]


class BodyForm(msgspec.Struct, frozen=True, kw_only=True):
    """Data or a result: JSON, or bytes in base64."""

    data: Raw | UnsetType = UNSET
    data_base64: Base64 | UnsetType = UNSET


def read_id(text: str | None) -> int:
    """An id from its text; `BadInput` where no job can have it."""
    if text is None:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > MAX_ID:
        raise BadInput("id", text, needed="the id of a job")
    return int(text)


def write_id(job_id: int) -> str | None:
    """An id as text; none is null."""
    return str(job_id) if job_id else None


def read_base64(name: str, text: str) -> bytes:
    """Bytes from their base64."""
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise BadInput(name, text, needed="base64") from None


def write_body(body: Any, name: str = "data") -> dict[str, Any]:
    """A body under its name, or as base64."""
    if body is None:
        return {}
    if isinstance(body, bytes):
        return {f"{name}_base64": b64encode(body).decode()}
    return {name: write_json(body)}


def write_json(text: str) -> Raw:
    """JSON that is text, as it is sent."""
    return Raw(text.encode())


def read_body(raw: Any) -> str:
    """JSON as it was sent, as text."""
    text = bytes(raw).decode()
    check_numbers("data", text)
    return text


def write_key(key: bytes | None, name: str) -> dict[str, Any]:
    """A domain or key under its name, or as base64."""
    if key is None:
        return {name: None}
    try:
        return {name: key.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(key).decode()}


def write_any_id(job_id: int | None) -> str | None:
    """An id as text; None is null."""
    return None if job_id is None else str(job_id)


def write_ids(ids: Any) -> list[str]:
    """Ids as texts."""
    return [str(one) for one in ids]


def read_bodies(raws: Any) -> tuple[str, ...]:
    """Several JSON values as they were sent, as text."""
    return tuple(map(read_body, raws))


@cache
def elements_type() -> Any:
    """A list whose decoder stops at the first element that is too many, as it does for no other type."""
    fields: list[Any] = [(f"at{at}", Raw | UnsetType, UNSET) for at in range(BATCH_JOBS)]
    return msgspec.defstruct("Elements", fields, array_like=True, forbid_unknown_fields=True)


def is_too_long(error: msgspec.ValidationError) -> bool:
    """Whether a list had too many elements."""
    return "of at most length" in str(error)


def decode_elements(raw: bytes) -> list[bytes] | None:
    """The elements of a list as they are written; None: too many."""
    try:
        found = msgspec.json.decode(raw, type=elements_type())
    except msgspec.ValidationError as error:
        if is_too_long(error):
            return None
        raise
    return [bytes(one) for one in astuple(found) if one is not UNSET]
