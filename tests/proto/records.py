"""Any value of any type that is sent: what tests of the conversion try."""

import types
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st
from msgspec.structs import fields

from holdfast.core.errors import Fault
from holdfast.core.job import Unreadable

_INTS = st.one_of(st.sampled_from([0, 1, 2, 10, 500, 1_000]), st.integers(-(1 << 63), (1 << 63) - 1))
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_BYTES = st.binary(max_size=8)
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: _INTS,
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    str: _TEXTS,
    bytes: _BYTES,
    # A body.
    Any: st.one_of(_TEXTS, _BYTES, _BYTES.map(Unreadable)),
    Fault: st.builds(Fault, st.sampled_from(["LEASE_LOST", "NOT_FOUND"]), _TEXTS),
    type(None): st.none(),
    None: st.none(),
}


def values(kind: Any, deep: int = 2) -> st.SearchStrategy[Any]:
    """Values of a type; what may stand inside itself does so at most `deep` times."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, types.UnionType):
        return st.one_of(*(values(one, deep) for one in inner if deep or one in _PLAIN))
    if origin is list or (origin is tuple and inner[-1] is Ellipsis):
        return st.lists(values(inner[0], deep), max_size=3).map(origin)
    if origin is tuple:
        return st.tuples(*(values(one, deep) for one in inner))
    if origin is dict:
        return st.dictionaries(values(inner[0], deep), values(inner[1], deep), max_size=3)
    if issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    return st.deferred(lambda: _made(kind, deep - 1))


def _made(kind: Any, deep: int) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    if issubclass(kind, msgspec.Struct):
        optional = {one.name for one in fields(kind) if not one.required}
    else:
        optional = set(kind._field_defaults)
    given = {name: values(hint, deep) for name, hint in hints.items() if name in names_of(kind)}
    required = {name: one for name, one in given.items() if name not in optional}
    rest = {name: one for name, one in given.items() if name in optional}
    return st.fixed_dictionaries(required, optional=rest).map(lambda made: kind(**made))


def names_of(kind: Any) -> tuple[str, ...]:
    """The names of the fields of a record or a NamedTuple."""
    found: tuple[str, ...] = kind._fields if issubclass(kind, tuple) else kind.__struct_fields__
    return found
