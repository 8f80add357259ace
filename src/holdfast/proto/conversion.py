"""Records as messages and back, by tables that are made once from the fields of the records.

The classes of the messages are made from `queue.binpb`, the compiled `queue.proto`: `make proto` writes it,
and tests hold it against the source. Python code of protoc would run with two major versions of protobuf. The
tables of verbs follow from the service there, the records and `core.replies`: a command that is added here
and not there, or there and not here, fails when this file is imported.

    record                       message
    int float bool str bytes     the field of that kind
    X | None                     absent: None; a tuple of names that may be None: `Names`
    Body, int | str, Job | Fault `Body`, `RetryAfter`, `Answered`: a oneof
    an enum, a Literal           the enum of the message, by the names of its members
    a record, a NamedTuple       a message with fields of the same names
    tuple[A, B]                  a message, whose fields are A and B in order
    tuple[A, ...], list[A]       repeated
    dict[A, B]                   repeated, of messages with two fields: the order stays

What is at its default is not sent. Encoding makes plain dicts, of which one constructor then makes the whole
message; a message per record would be copied into the next larger one.
"""

import re
import types
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import compress
from operator import attrgetter, ne
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from msgspec.structs import fields

from ..core import commands as c
from ..core import job as jobs
from ..core.errors import BadInput, Fault, HoldfastError, error_of
from ..core.queries import FindToken, Query
from ..core.verbs import REPLIES

# Not the pool of the process: that may have stubs which the application has generated from the same file.
POOL = descriptor_pool.DescriptorPool()
DESCRIPTION = Path(__file__).with_name("queue.binpb")


def _load() -> Any:
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTION.read_bytes())
    for file in files.file:
        POOL.AddSerializedFile(file.SerializeToString())
    return POOL.FindFileByName("holdfast/v1/queue.proto")


_file = _load()
SERVICE = _file.services_by_name["Queue"]


def message(name: str) -> Any:
    """The class of a message by its name."""
    return message_factory.GetMessageClass(_file.message_types_by_name[name])


Asks, Replies = message("Asks"), message("Replies")
FromWorker, ToWorker = message("FromWorker"), message("ToWorker")


Convert = Callable[[Any], Any]
# Fields of a record that are never sent: the server does not believe a client what a record was.
UNSENT = {("Answer", "held"), ("AnswerAll", "held"), ("Step", "held")}
# Fields of a message that no record has; they are for clients in other languages.
DERIVED: dict[str, dict[str, tuple[Any, Convert]]] = {"Job": {"state": (jobs.State, jobs.state)}}
_ZEROS: dict[Any, Any] = {int: 0, float: 0.0, bool: False, str: "", bytes: b""}


class Pair(NamedTuple):
    """How a value is encoded, and decoded; None: as it is."""

    encode: Convert | None = None
    decode: Convert | None = None


class _Field(NamedTuple):
    name: str
    kind: Any
    default: Any


def _body() -> Pair:
    def encode(body: Any) -> dict[str, Any]:
        if type(body) is str:
            return {"json": body}
        return {"damaged" if isinstance(body, jobs.Unreadable) else "raw": body}

    def decode(sent: Any) -> Any:
        if sent.HasField("json"):
            return sent.json
        return sent.raw if sent.HasField("raw") else jobs.Unreadable(sent.damaged)

    return Pair(encode, decode)


def _retry_after() -> Pair:
    return Pair(
        lambda value: {"modifier": value} if isinstance(value, str) else {"ms": value},
        lambda sent: sent.modifier if sent.HasField("modifier") else sent.ms,
    )


def _answered(field: Any) -> Pair:
    """A job, or the error that stands in its place."""
    job = message_of(jobs.Job, field.message_type.fields_by_name["job"].message_type)
    assert job.encode is not None and job.decode is not None
    encode, decode = job.encode, job.decode
    return Pair(
        lambda value: {"job": encode(value)} if type(value) is jobs.Job else {"error": encode_error(value)},
        lambda sent: decode(sent.job) if sent.HasField("job") else decode_error(sent.error),
    )


def encode_error(error: Any) -> dict[str, str]:
    """An error as the fields of an `Error`. Of other exceptions only the type is sent: no data leaks."""
    if isinstance(error, Fault):
        return {"code": error.code, "text": error.text}
    if isinstance(error, HoldfastError):
        return {"code": error.code, "text": str(error)}
    return {"code": HoldfastError.code, "text": f"the server failed: {type(error).__name__}"}


def decode_error(sent: Any) -> HoldfastError:
    """The error of an `Error`."""
    return error_of(sent.code, sent.text)


def _enum(members: Mapping[str, Any], field: Any) -> Pair:
    """Members by their names: `Code.OK` is CODE_OK."""
    prefix = field.enum_type.values[0].name.removesuffix("UNSPECIFIED")
    numbers = {value.name: value.number for value in field.enum_type.values}
    there = {member: numbers[prefix + name] for name, member in members.items()}
    back = {number: member for member, number in there.items()}

    def decode(number: int) -> Any:
        try:
            return back[number]
        except KeyError:
            raise BadInput(field.name, number, needed=f"a number of {field.enum_type.name}") from None

    return Pair(there.__getitem__, decode)


def _many(one: Pair, made: Callable[[Any], Any]) -> Pair:
    encode, decode = one
    return Pair(
        list if encode is None else lambda values: [encode(value) for value in values],
        made if decode is None else lambda sent: made([decode(value) for value in sent]),
    )


def _optional(kind: Any) -> tuple[Any, bool]:
    """A type without None, and whether it could be that."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind, False
    rest = [one for one in get_args(kind) if one is not type(None)]
    return (rest[0] if len(rest) == 1 else Union[tuple(rest)]), len(rest) < len(get_args(kind))  # noqa: UP007


def pair_of(kind: Any, field: Any) -> Pair:
    """The conversion between a type and a field of a message."""
    kind, is_optional = _optional(kind)
    origin = get_origin(kind)
    if kind is Any:
        return _body()
    if get_origin(kind) is Literal:
        return _enum({name.upper(): name for name in get_args(kind)}, field)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(dict(kind.__members__), field)
    if kind == jobs.Job | Fault:
        return _answered(field)
    if origin in (Union, types.UnionType) and set(get_args(kind)) == {int, str}:
        return _retry_after()
    if is_optional and origin is tuple:
        return Pair(lambda names: {"names": list(names)}, lambda sent: tuple(sent.names))
    if origin is list or (origin is tuple and get_args(kind)[-1] is Ellipsis):
        return _many(pair_of(get_args(kind)[0], field), origin)
    if origin is dict:
        entry = pair_of(tuple[get_args(kind)], field)  # type: ignore[misc]
        many = _many(entry, dict)
        assert many.encode is not None
        encode = many.encode
        return Pair(lambda value: encode(value.items()), many.decode)
    return message_of(kind, field.message_type) if field.message_type is not None else Pair()


_made: dict[tuple[Any, str], "_Message"] = {}


def message_of(kind: Any, descriptor: Any) -> Pair:
    """The conversion between a record, a NamedTuple or a tuple, and a message."""
    key = kind, descriptor.name
    if key not in _made:
        # First noted, then filled: a job may be followed by another.
        _made[key] = _Message(kind)
        _made[key].fill(descriptor)
    made = _made[key]
    return Pair(made.encode_tuple if get_origin(kind) is tuple else made.encode, made.decode)


class _Message:
    """One record and its message."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        # The fields in order: name and encoder, and apart from them the values that are not sent.
        self._plan: list[tuple[str, Convert | None]] = []
        self._unsent: list[Any] = []
        self._decoders: dict[int, tuple[str, Convert | None]] = {}
        # The values of fields that were not sent, if the record has no default; fields that must be sent; and
        # those that are generated if they were not.
        self._absent: list[tuple[str, Any]] = []
        self._needed: list[tuple[str, Callable[[], Any] | None]] = []
        self._derived: list[tuple[str, Convert, Any]] = []

    def fill(self, descriptor: Any) -> None:
        """Make the tables."""
        sent = {field.name: field for field in descriptor.fields}
        for name, kind, default in _fields_of(self._kind, descriptor):
            if (descriptor.name.removesuffix("Request"), name) in UNSENT:
                continue
            field = sent[name]
            pair = pair_of(kind, field)
            bare, is_optional = _optional(kind)
            self._plan.append((name, pair.encode))
            self._unsent.append(None if is_optional else default)
            self._decoders[field.number] = name, pair.decode
            if is_optional and default is not None:
                self._absent.append((name, None))
            elif not is_optional and default is msgspec.NODEFAULT:
                self._note_required(name, bare)
        for name, (kind, derive) in DERIVED.get(descriptor.name, {}).items():
            self._decoders[sent[name].number] = "", None
            self._derived.append((name, derive, pair_of(kind, sent[name]).encode))
        names = [name for name, _ in self._plan]
        getter = attrgetter(*names) if names and get_origin(self._kind) is not tuple else None
        self._get: Convert = (lambda _: ()) if getter is None else getter
        self._is_single = len(names) == 1

    def _note_required(self, name: str, kind: Any) -> None:
        origin = get_origin(kind)
        if origin in (list, dict):
            self._needed.append((name, origin))
        elif origin is tuple or kind in _ZEROS:
            self._absent.append((name, () if origin is tuple else _ZEROS[kind]))
        else:
            self._needed.append((name, None))

    def encode(self, value: Any) -> dict[str, Any]:
        """The fields of a message, for its constructor."""
        values = self._get(value)
        made = self._encode_all((values,) if self._is_single else values)
        for name, derive, encode in self._derived:
            made[name] = encode(derive(value))
        return made

    def encode_tuple(self, values: Any) -> dict[str, Any]:
        """The same of a tuple."""
        return self._encode_all(values)

    def _encode_all(self, values: Any) -> dict[str, Any]:
        # Most of the fifty fields of a job are at their defaults: these cost no step of this loop.
        made = {}
        sent = compress(zip(self._plan, values, strict=True), map(ne, values, self._unsent))
        for (name, encode), value in sent:
            made[name] = value if encode is None else encode(value)
        return made

    def decode(self, sent: Any) -> Any:
        """The record of a message."""
        made = dict(self._absent)
        decoders = self._decoders
        for field, value in sent.ListFields():
            name, decode = decoders[field.number]
            made[name] = value if decode is None else decode(value)
        made.pop("", None)
        for name, empty in self._needed:
            if name not in made:
                if empty is None:
                    raise BadInput(name, None, needed="given")
                made[name] = empty()
        if get_origin(self._kind) is tuple:
            return tuple(made.get(name) for name, _ in self._plan)
        return self._kind(**made)


def _fields_of(kind: Any, descriptor: Any) -> list[_Field]:
    if get_origin(kind) is tuple:
        given = zip(descriptor.fields, get_args(kind), strict=True)
        return [_Field(field.name, one, msgspec.NODEFAULT) for field, one in given]
    hints = get_type_hints(kind)
    if issubclass(kind, tuple):
        defaults = kind._field_defaults
        return [_Field(name, hints[name], defaults.get(name, msgspec.NODEFAULT)) for name in hints]
    return [_Field(one.name, hints[one.name], _default_of(one)) for one in fields(kind)]


def _default_of(field: Any) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


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
