"""Encodes data and results: bytes as they are, everything else as JSON.

What JSON would change silently is refused: NaN and infinity would become null, and bytes in data base64
text. Bytes are allowed if the annotations of a known task decode them to bytes again. Most data consists of
text, integers, lists and dicts; one quick pass detects that, and no other check is needed then.

Beyond the types of msgspec, paths of `pathlib` are text, models of Pydantic are what they dump, and programs
add types by `codec`.
"""

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any, get_origin
from uuid import UUID

import msgspec
from msgspec.inspect import CustomType, DecimalType, EnumType, Field, Type, UUIDType, type_info

from ..core.bounds import DATA_BYTES
from ..core.errors import BadInput, TooLarge, Unquoted
from ..core.job import Body

_BYTES = (bytes, bytearray, memoryview)
PLAIN = frozenset({str, int, bool, type(None)})
Path = tuple[str | int, ...]
# What JSON writes as text or a number, which would pass for a value of such a type where one is wanted.
EXACT = (Decimal, UUID, Enum)
# How deep the part of a value is searched for that is wrong, and how much is shown of its path.
DEEPEST_SHOWN, SHOWN_CHARACTERS = 5, 100


# How types of the program are written and read; of all queues, as a type is the same for each.
_codecs: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}


def add_codec(kind: Any, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
    """Write values of a type as what `encode` returns, and read them by `decode`."""
    if not isinstance(kind, type):
        raise BadInput("codec", kind, needed="a class")
    if not callable(encode) or not callable(decode):
        raise BadInput(f"codec of {kind.__name__}", "incomplete", needed="two functions: encode and decode")
    if not isinstance(type_info(kind), CustomType) or issubclass(kind, PurePath) or is_model(kind):
        raise BadInput("codec", Unquoted(kind.__name__), needed="a class that is not known already")
    if (pickle := sys.modules.get("pickle")) is not None and decode is pickle.loads:
        needed = f"a client that can add jobs can run any code where jobs with a {kind.__name__} are read"
        warnings.warn(f"pickle as the codec of {kind.__name__}: {needed}", stacklevel=3)
        _codecs[kind] = _as_base64(encode), lambda text: decode(msgspec.convert(text, bytes))
    else:
        _codecs[kind] = encode, decode


def _as_base64(encode: Callable[[Any], bytes]) -> Callable[[Any], str]:
    return lambda value: msgspec.to_builtins(encode(value))


def as_json_type(value: Any) -> Any:
    """A value of a type that msgspec does not know, as one that it knows; `TypeError` if there is none."""
    if type(value) in _codecs:
        return _codecs[type(value)][0](value)
    if isinstance(value, PurePath):
        return str(value)
    if is_model(type(value)):
        return value.model_dump(mode="json")
    raise TypeError("a type that JSON does not know")


def from_json_type(kind: Any, value: Any) -> Any:
    """The reverse of `as_json_type`. Other values stay: msgspec checks that they are of the type."""
    cls = get_origin(kind) or kind
    if cls in _codecs:
        return _decoded(cls, value)
    if issubclass(cls, PurePath) and isinstance(value, str):
        return cls(value)
    return _validated(cls, value) if is_model(cls) else value


def is_readable(kind: Any) -> bool:
    """Whether a value of JSON may be of a type that msgspec does not know.

    Abstract classes and protocols, which have other metaclasses, decide themselves what an instance is.
    """
    cls = get_origin(kind) or kind
    is_known = cls in _codecs or cls is object or issubclass(cls, PurePath) or is_model(cls)
    return is_known or type(cls) is not type


def is_model(kind: type) -> bool:
    """Whether a type is a model of Pydantic, which need not be installed."""
    return hasattr(kind, "model_dump") and hasattr(kind, "model_validate")


def _decoded(kind: Any, value: Any) -> Any:
    try:
        return _codecs[kind][1](value)
    except Exception as error:
        # Without its text, which may have the value: that must not get into a log.
        raise TypeError(f"what the codec of {kind.__name__} reads ({type(error).__name__})") from None


def _validated(kind: Any, value: Any) -> Any:
    try:
        return kind.model_validate(value)
    except Exception as error:
        # Of its text only the field and what is wrong: values, and keys of dicts, must not get into a log.
        first: dict[str, Any] = error.errors()[0] if hasattr(error, "errors") else {}
        place = next(iter(first.get("loc", ())), kind.__name__)
        raise TypeError(f"{place}: {first.get('msg', 'it is not valid')[:SHOWN_CHARACTERS]}") from None


def has_exact(info: Any, seen: set[int] | None = None) -> bool:
    """Whether values of a type, as msgspec describes it, may have some of `EXACT` in them."""
    if isinstance(info, DecimalType | UUIDType | EnumType):
        return True
    if isinstance(info, tuple):
        return any(has_exact(one, seen) for one in info)
    seen = set() if seen is None else seen
    if not isinstance(info, Type | Field) or id(info) in seen:
        return False
    seen.add(id(info))
    return any(has_exact(getattr(info, name), seen) for name in info.__struct_fields__)


def find_inexact(given: Any, read: Any, path: Path = ()) -> tuple[Path, Any, type] | None:
    """The first part of a value that is none of `EXACT`, and that its reader gets as one; with that type."""
    if isinstance(read, EXACT):
        return None if isinstance(given, type(read)) else (path, given, type(read))
    for part, one, back in _pairs(given, read):
        if found := find_inexact(one, back, path if part is None else (*path, part)):
            return found
    return None


def _pairs(given: Any, read: Any) -> Iterator[tuple[str | int | None, Any, Any]]:
    """The parts of a value beside those that its reader gets."""
    if isinstance(read, dict) and isinstance(given, Mapping):
        for (key, one), (read_key, back) in zip(given.items(), read.items(), strict=False):
            yield None, key, read_key
            yield str(key), one, back
    elif isinstance(read, list | tuple) and isinstance(given, list | tuple):
        for at, (one, back) in enumerate(zip(given, read, strict=False)):
            yield at, one, back
    elif isinstance(read, set | frozenset) and isinstance(given, Iterable):
        if len({type(back) for back in read}) == 1:  # they have no order, so any two are compared
            yield from ((None, one, next(iter(read))) for one in given)
    else:
        for name in _fields(read):
            values = given if isinstance(given, dict) else {name: getattr(given, name, None)}
            if values.get(name) is not None:
                yield name, values[name], getattr(read, name)


def _fields(value: Any) -> Iterable[str]:
    """The names of the fields of a dataclass, a struct or an instance of an `attrs` class."""
    if hasattr(value, "__attrs_attrs__"):
        return [field.name for field in value.__attrs_attrs__]
    return (*getattr(value, "__struct_fields__", ()), *getattr(value, "__dataclass_fields__", ()))


json_encoder = msgspec.json.Encoder(enc_hook=as_json_type)


def encode(what: str, value: Any) -> Body:
    """Encode data or a result: bytes as they are, everything else as JSON."""
    is_bytes = isinstance(value, _BYTES)
    try:
        raw = bytes(value) if is_bytes else json_encoder.encode(value)
    except Exception as error:  # also one that a method of the value raises
        path, part = _find_unwritable(value)
        found = Unquoted(f"of type {type(part).__name__}")
        raise BadInput(
            name_of(path, what), found, needed=f"bytes, or what can be written as JSON ({error})"
        ) from None
    if len(raw) > DATA_BYTES:
        raise TooLarge(what, f"{len(raw):,} bytes", needed=f"at most {DATA_BYTES:,} bytes")
    return raw if is_bytes else raw.decode()


def encode_result(what: str, value: Any) -> Body:
    """Encode a result; NaN and infinity, which JSON would change to null, are refused."""
    body = encode(what, value)
    _changed(what, value, body)
    return body


def decode(body: Body | None) -> Any:
    """Decode a body: bytes, or the JSON value."""
    return body if body is None or isinstance(body, bytes) else msgspec.json.decode(body)


def reason_and_path(error: msgspec.DecodeError) -> tuple[str, str]:
    """Why JSON does not have the types of an annotation, without its values, and where in it."""
    said = str(error)
    # The path is last. A value that no enum has comes before it, whole.
    found = re.fullmatch(r"(.*) - at `\$([^`]*)`", said, re.DOTALL)
    text, path = found.groups() if found else (said, "")
    return re.sub(r"^(Invalid (enum )?value) .*", r"\1", text, flags=re.DOTALL), path


def encode_data(what: str, value: Any, read: Callable[[Body], Any] | None = None) -> Body:
    """Encode data. `read` decodes it as its task will, and raises if that is not possible."""
    body = encode(what, value)
    changed = _changed(what, value, body)
    back = read(body) if read is not None else None
    if changed:
        _check_bytes(what, changed, decode(body) if read is None else back)
    return body


def is_plain(value: Any) -> bool:
    """Whether JSON keeps a value unchanged. The data of every job is checked, so leaves cost no call."""
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        value = value.values()
    elif kind is not list and kind is not tuple:
        return kind in PLAIN or (kind is float and isfinite(value))
    for item in value:  # noqa: SIM110, because a generator would be a call for each item
        if type(item) not in PLAIN and not is_plain(item):
            return False
    return True


def changes(value: Any) -> list[tuple[Path, Any]]:
    """The numbers and bytes that JSON cannot represent, each with its path."""
    return list(_walk(msgspec.to_builtins(value, builtin_types=_BYTES, enc_hook=as_json_type)))


def _walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, _BYTES):
                yield (*path, "key"), key
            yield from _walk(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from _walk(item, (*path, at))
    elif isinstance(value, _BYTES) or (isinstance(value, float) and not isfinite(value)):
        yield path, value


def _find_unwritable(value: Any) -> tuple[Path, Any]:
    """The part of a value that cannot be written as JSON, with its path."""
    path: Path = ()
    while isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        wrong = next(((key, item) for key, item in items if not _is_writable(item)), None)
        if wrong is None or len(path) > DEEPEST_SHOWN:
            break
        path, value = (*path, wrong[0] if isinstance(wrong[0], int) else str(wrong[0])), wrong[1]
    return path, value


def _is_writable(value: Any) -> bool:
    try:
        json_encoder.encode(value)
    except Exception:  # also one that a method of the value raises
        return False
    return True


def _changed(what: str, value: Any, body: Body) -> list[tuple[Path, Any]]:
    """The bytes that JSON changed; numbers that it would change and deep nesting are refused."""
    try:
        changed = [] if isinstance(body, bytes) or is_plain(value) else changes(value)
    except RecursionError:
        raise BadInput(what, type(value).__name__, needed="nested less deeply") from None
    for path, found in changed:
        if isinstance(found, float):
            raise BadInput(name_of(path, what), found, needed="a finite number: JSON has no other")
    return changed


def _check_bytes(what: str, changed: list[tuple[Path, Any]], back: Any) -> None:
    """Refuse bytes that the task would not get as bytes."""
    kept = {path for path, _ in changes(back)}
    for path, _ in changed:
        if path not in kept:
            needed = "text, such as base64: JSON has no bytes, and no annotation known here says bytes"
            raise BadInput(name_of(path, what), "bytes", needed=needed)


def name_of(path: Path, what: str) -> str:
    """The name of a part of data in an error, by its path."""
    return part_of("".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path), what)


def part_of(path: str, what: str) -> str:
    """The name of a part of data in an error; "" is all of it."""
    if not path:
        return what
    name = path.removeprefix(".")[:SHOWN_CHARACTERS]
    if what.startswith("arguments "):
        return f"argument {name} {what.removeprefix('arguments ')}"
    return f"{name} in the {what}"
