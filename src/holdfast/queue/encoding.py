"""Data and results as they are written: bytes as they are, everything else as JSON.

Data is refused where JSON would change it silently: NaN and infinity become null, bytes base64 text. Bytes
are allowed where the task is known and its annotations turn them into bytes again. Most data is plain: text,
whole numbers, lists and dicts of these. That is seen in one quick pass, and nothing else is done then.
"""

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

import msgspec

from ..core.bounds import DATA_BYTES
from ..core.errors import BadInput, TooLarge
from ..core.job import Body

_BYTES = (bytes, bytearray, memoryview)
_PLAIN = frozenset({str, int, bool, type(None)})
Path = tuple[str | int, ...]


def encode(what: str, value: Any) -> Body:
    """Data or a result as it is written: bytes as they are, everything else as JSON."""
    if isinstance(value, _BYTES):
        return bytes(value)
    try:
        raw = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise BadInput(
            what, type(value).__name__, needed=f"bytes, or what can be written as JSON ({error})"
        ) from None
    if len(raw) > DATA_BYTES:
        raise TooLarge(what, f"{len(raw):,} bytes", needed=f"at most {DATA_BYTES:,} bytes")
    return raw.decode()


def decode(body: Body | None) -> Any:
    """What was encoded: bytes, or the JSON value."""
    return body if body is None or isinstance(body, bytes) else msgspec.json.decode(body)


def encode_data(what: str, value: Any, read: Callable[[Body], Any] | None = None) -> Body:
    """Data as it is written. `read` decodes it as its task will, and raises where that is not possible."""
    body = encode(what, value)
    try:
        plain = isinstance(body, bytes) or _is_plain(value)
        changed = [] if plain else list(_walk(_to_builtins(value)))
    except RecursionError:
        raise BadInput(what, type(value).__name__, needed="nested less deeply") from None
    for path, found in changed:
        if isinstance(found, float):
            raise BadInput(_name(path, what), found, needed="a finite number: JSON has no other")
    back = read(body) if read is not None else None
    if changed:
        _check_bytes(what, changed, decode(body) if read is None else back)
    return body


def _is_plain(value: Any) -> bool:
    """Whether JSON holds a value as it is. Every job's data passes here, so there is no call for a leaf."""
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or (type(item) not in _PLAIN and not _is_plain(item)):
                return False
        return True
    if kind is list or kind is tuple:
        return all(type(item) in _PLAIN or _is_plain(item) for item in value)
    return kind in _PLAIN or (kind is float and isfinite(value))


def _to_builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=_BYTES)


def _walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Numbers and bytes that JSON has no form for, each with its path."""
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


def _check_bytes(what: str, changed: list[tuple[Path, Any]], back: Any) -> None:
    """Refuse bytes that are not bytes in what the task gets."""
    kept = {path for path, _ in _walk(_to_builtins(back))}
    for path, _ in changed:
        if path not in kept:
            needed = "text, such as base64: JSON has no bytes, and no annotation known here says bytes"
            raise BadInput(_name(path, what), "bytes", needed=needed)


def _name(path: Path, what: str) -> str:
    if not path:
        return what
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f"{text.removeprefix('.')} in the {what}"
