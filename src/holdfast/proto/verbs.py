"""The verbs of the service: for each command and query its messages, and what is replied to it.

The tables follow from the service in `queue.proto`, the records and `core.replies`: a command that is added
there and not here, or here and not there, fails when this file is imported.
"""

import re
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from ..core import commands as c
from ..core.queries import FindToken, Query
from ..core.replies import REPLIES
from .conversion import Convert, Pair, message_of
from .conversion import decode_error as decode_error
from .conversion import encode_error as encode_error
from .messages import SERVICE, message

# Queries that only a server itself makes.
UNSERVED = (FindToken,)
# What only streams and small clients call: these stand for no record.
OWN = ("Next", "Wait", "Session", "Work")


class Verb(NamedTuple):
    """A command or query as it is called: `name` is that of the call, `field` that of `Ask` and `Reply`."""

    kind: type[c.Command | Query]
    name: str
    field: str
    request: Any
    reply: Any
    encode: Convert
    decode: Convert
    encode_reply: Convert
    decode_reply: Convert


def _await_reply() -> Pair:
    ended = message_of(c.Ended, message("Ended").DESCRIPTOR)
    assert ended.encode is not None and ended.decode is not None
    encode, decode = ended.encode, ended.decode

    def encode_reply(reply: Any) -> dict[str, Any]:
        if reply is None:
            return {}
        return {"gone": True} if isinstance(reply, str) else {"ended": encode(reply)}

    def decode_reply(sent: Any) -> Any:
        if sent.HasField("ended"):
            return decode(sent.ended)
        return "gone" if sent.gone else None

    return Pair(encode_reply, decode_reply)


def _reply_of(kind: Any, descriptor: Any) -> Pair:
    """The conversion of a reply: as the message itself, or as its only field."""
    if kind is None:
        return Pair(lambda _: {}, lambda _: None)
    if descriptor.name == "AwaitReply":
        return _await_reply()
    is_record = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    if is_record or (get_origin(kind) is tuple and len(get_args(kind)) == len(descriptor.fields) > 1):
        return message_of(kind, descriptor)
    # As a tuple of one field.
    pair = message_of(tuple[kind], descriptor)
    assert pair.encode is not None and pair.decode is not None
    encode, decode = pair.encode, pair.decode
    return Pair(lambda reply: encode((reply,)), lambda sent: decode(sent)[0])


def _verb(kind: type[c.Command | Query], method: Any) -> Verb:
    asked = message_of(kind, method.input_type)
    replied = _reply_of(REPLIES[kind], method.output_type)
    assert asked.encode and asked.decode and replied.encode and replied.decode
    return Verb(
        kind=kind,
        name=method.name,
        field=re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower(),
        request=message(method.input_type.name),
        reply=message(method.output_type.name),
        encode=asked.encode,
        decode=asked.decode,
        encode_reply=replied.encode,
        decode_reply=replied.decode,
    )


def _all() -> dict[type[c.Command | Query], Verb]:
    methods = {method.name: method for method in SERVICE.methods if method.name not in OWN}
    kinds = {kind.__name__: kind for kind in REPLIES if kind not in UNSERVED}
    assert methods.keys() == kinds.keys(), f"of proto and core one lacks {methods.keys() ^ kinds.keys()}"
    return {kind: _verb(kind, methods[name]) for name, kind in kinds.items()}


VERBS = _all()
BY_NAME = {verb.name: verb for verb in VERBS.values()}
BY_FIELD = {verb.field: verb for verb in VERBS.values()}

_claimed = message_of(c.Claimed, message("Claimed").DESCRIPTOR)
assert _claimed.encode is not None
encode_claimed = _claimed.encode
