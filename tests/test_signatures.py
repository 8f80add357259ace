"""The compiled way to write the arguments of a call: the same as the slow one, or left to it."""

from collections.abc import Hashable, Iterable, Sized
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from functools import partial
from numbers import Number
from pathlib import Path, PurePosixPath
from sqlite3 import Connection
from typing import Any, Literal, NewType, Protocol, TypedDict, Unpack, runtime_checkable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast import BadInput, Context
from holdfast.queue.signature import BatchSignature, Signature


class Colour(Enum):
    RED = "red"


@dataclass
class Size:
    width: int
    raw: bytes = b""


@dataclass
class Point:
    x: int


class Options(TypedDict):
    width: int


class Order(BaseModel):
    """A model of Pydantic."""

    number: int
    lines: list[str] = []


def bare(a, b=1): ...
def typed(a: str, b: int | None = None, *, c: float | None = None): ...
def named(*, b: bytes, a: list[int] | None = None): ...
def held(a: int, ctx: Context, b: Size | None = None): ...
def rest(a: Any = None, **more: Any): ...
def nothing(): ...


SIGNATURES = [
    Signature(function.__name__, function) for function in (bare, typed, named, held, rest, nothing)
]
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(exclude_categories=())),
    st.binary(),
    st.sampled_from([Colour.RED, Size(1), Size(2, b"\xff"), datetime(2026, 1, 1, tzinfo=UTC), object(), {1}]),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.dictionaries(
            st.one_of(st.text(max_size=2), st.integers(), st.binary(max_size=1)), inner, max_size=2
        ),
    ),
    max_leaves=5,
)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.text("aé\n")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
)


@given(
    st.sampled_from(SIGNATURES),
    st.lists(values, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(["a", "b", "c", "ctx", "other"]), values, max_size=3),
)
@example(SIGNATURES[1], ("a", None), {"c": float("nan")})
@example(SIGNATURES[1], (b"a",), {})
@example(SIGNATURES[1], ("x" * 2**24,), {})
def test_what_is_written_quickly_is_written_as_the_slow_way_does(signature, args, kwargs):
    """And what that refuses is never written."""
    try:
        slow = signature.write(args, kwargs)
    except BadInput:
        slow = None

    assert signature.quick_write(args, kwargs) in (None, slow)


@given(plain, st.dictionaries(st.just("b"), plain))
def test_plain_arguments_are_written_quickly(a, kwargs):
    assert SIGNATURES[0].quick_write((a,), kwargs) is not None


@pytest.mark.parametrize("value", [Colour.RED, Point(3), datetime(2026, 1, 1, tzinfo=UTC)], ids=str)
def test_records_and_times_are_written_quickly_too(value):
    assert SIGNATURES[0].quick_write((value,), {}) is not None


def test_arguments_that_are_no_record_are_left_to_the_slow_way():
    """Any names, and the items of a batch."""

    def batch(items: list[int]): ...

    assert SIGNATURES[4].quick_write((1,), {"b": 2}) is None
    assert BatchSignature("batch", batch).quick_write((1,), {}) is None


def test_models_of_pydantic_are_read_as_their_type():
    """Alone, within others, and as items; the error has no value of the data."""

    def ship(order: Order, more: dict[str, Order] | None = None): ...
    def bill(orders: list[Order]): ...

    order = Order(number=7, lines=["a"])
    signature, batch = Signature("ship", ship), BatchSignature("bill", bill)

    data = signature.write((order,), {"more": {"x": order}})
    assert data == signature.quick_write((order,), {"more": {"x": order}})
    assert signature.read(data) == {"order": order, "more": {"x": order}}
    assert batch.read(batch.write((order,), {})) == {"orders": [order]}
    with pytest.raises(
        BadInput, match=r"argument order of task ship is wrong.*number: Input should be"
    ) as told:
        signature.write(({"number": "secret"},), {})
    assert "secret" not in str(told.value)


def test_a_required_parameter_that_json_cannot_give_is_refused():
    """But not one with a default, which other callers of the function may use."""

    def wrong(connection: Connection): ...
    def right(a: int, connection: Connection | None = None): ...

    with pytest.raises(BadInput, match="parameter connection of task wrong is of type Connection"):
        Signature("wrong", wrong)
    assert Signature("right", right).write((1,), {}) == '{"a":1}'


@runtime_checkable
class Named(Protocol):
    """What has keys, such as an object of JSON."""

    def keys(self) -> Iterable[str]: ...


class PositiveMeta(type):
    """Decides by the value."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, int) and value > 0


class Positive(metaclass=PositiveMeta):
    """A number above 0."""


Folder = NewType("Folder", PurePosixPath)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (object, 1),
        (dict[str, object], {"a": [1]}),
        (Iterable[int], [1]),
        (Sized, "abc"),
        (Hashable | None, 1),
        (Number, 1.5),
        (Named, {"a": 1}),
        (Positive, 3),
    ],
    ids=str,
)
@pytest.mark.parametrize("has_default", [False, True])
def test_a_value_that_is_of_an_abstract_type_is_accepted(kind, value, has_default):
    """JSON gives it as it is: also of a protocol, or of a type that decides by the value."""

    def required(value): ...
    def optional(value=None): ...

    function = optional if has_default else required
    function.__annotations__ = {"value": kind}
    signature = Signature("work", function)

    data = signature.write((value,), {})

    assert data == signature.quick_write((value,), {})
    assert signature.read(data) == {"value": value}


def test_a_value_that_is_not_of_an_abstract_type_is_refused():
    """Both types are named."""

    def work(values: Iterable[int]): ...

    with pytest.raises(BadInput, match=r"argument values of task work is of type int.* of type Iterable"):
        Signature("work", work).write((1,), {})


def test_another_name_of_a_path_is_a_path():
    """So a required parameter of it is accepted."""

    def tidy(folder: Folder): ...

    assert Signature("tidy", tidy).read('{"folder":"/tmp"}') == {"folder": PurePosixPath("/tmp")}


@pytest.mark.parametrize("kind", [str | bytes, list[datetime | date], str | Path, any, 5], ids=str)
@pytest.mark.parametrize("has_default", [False, True])
def test_an_annotation_that_json_cannot_tell_apart_is_refused_by_the_name_of_its_parameter(kind, has_default):
    """The error names the parameter, its task, and the reason."""

    def required(count: int, value): ...
    def optional(count: int, value=None): ...

    function = optional if has_default else required
    function.__annotations__["value"] = kind

    with pytest.raises(BadInput, match=r"parameter value of task work is of type .* must be a type .*\(.*\)"):
        Signature("work", function)


def test_a_required_parameter_of_an_unknown_type_is_refused():
    """Such as one that is imported for type checkers alone: its value would be that of JSON."""

    def work(when, frame): ...

    work.__annotations__ = {"when": datetime, "frame": "DataFrame | None"}

    with pytest.raises(
        BadInput, match=r"parameter frame of task work is of type DataFrame \| None, .* known"
    ):
        Signature("work", work)


def test_an_optional_parameter_of_an_unknown_type_leaves_the_others_as_they_are():
    """Its value is that of JSON."""

    def work(ctx: "Context", when: datetime, frame=None): ...

    work.__annotations__ |= {"frame": "DataFrame", "return": "DataFrame"}
    signature = Signature("work", work)

    assert signature.context == ("ctx", Context)
    read = signature.read('{"when":"2026-11-15T01:02:03Z","frame":[1]}')
    assert read == {"when": datetime(2026, 11, 15, 1, 2, 3, tzinfo=UTC), "frame": [1]}
    with pytest.raises(BadInput, match="argument when of task work"):
        signature.write(("soon",), {})


def test_a_partial_and_an_object_have_the_annotations_of_what_they_call():
    """But not those of arguments that are bound."""

    def work(ctx: Context | None, when: datetime, size: Size) -> None: ...

    class Worker:
        count: int = 0

        def __call__(self, when: datetime) -> None: ...

    now = datetime.now(UTC)
    for function in (partial(work, None, size=Size(1)), partial(partial(work), None, size=Size(1)), Worker()):
        signature = Signature("work", function)
        data = signature.write((now,), {})
        assert (signature.context, signature.read(data)["when"]) == (None, now)
    assert Signature("work", partial(work)).context == ("ctx", Context)


def test_arguments_that_have_no_parameter_are_read_by_the_annotation_of_the_rest():
    """Each of them; one of another type is refused by its name."""

    def work(count: int = 0, **times: datetime): ...

    signature, now = Signature("work", work), datetime.now(UTC)

    assert signature.read(signature.write((1,), {"start": now})) == {"count": 1, "start": now}
    with pytest.raises(BadInput, match=r"argument start of task work is of type int.* of type datetime"):
        signature.write((), {"start": 7})


def test_an_annotation_of_the_rest_for_type_checkers_alone_is_left_to_them():
    """Such as the options of a `TypedDict`: the values are those of JSON."""

    def work(**options: Unpack[Options]): ...

    assert Signature("work", work).read('{"width":"7"}') == {"width": "7"}


@pytest.mark.parametrize("secret", ["secret" * 1000, "secret - at `$.b`", "secret\nline"])
def test_a_value_that_an_enum_does_not_have_is_not_in_the_error(secret):
    """Errors are logged, and data must not be."""

    class Colour(Enum):
        RED = "red"

    def work(colours: list[Colour], *, mode: Literal["fast", "slow"] = "fast") -> None: ...

    signature = Signature("work", work)

    with pytest.raises(BadInput, match=r"argument colours\[1\] of task work is wrong") as first:
        signature.write((["red", secret],), {})
    with pytest.raises(BadInput, match="argument mode of task work is wrong") as second:
        signature.write(([],), {"mode": secret})
    for raised in (first, second):
        assert str(raised.value).endswith("such as its function takes (Invalid enum value)")
