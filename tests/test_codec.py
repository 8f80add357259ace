"""Types of a program in arguments and results, by `queue.codec`."""

import pickle
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import attrs
import pytest

from holdfast import BadInput, connect
from holdfast.queue import encoding
from holdfast.queue.queue import Queue


class Money:
    """An amount, as text such as `3 EUR`."""

    def __init__(self, text: str) -> None:
        self.amount, self.currency = int(text.split()[0]), text.split()[1]

    def __str__(self) -> str:
        return f"{self.amount} {self.currency}"


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    monkeypatch.setattr(encoding, "_codecs", {})
    with connect("memory://") as queue:
        yield queue


def test_arguments_and_results_may_be_of_a_class_with_a_codec(queue: Queue) -> None:
    """Also within other types."""
    queue.codec(Money, str, Money)

    @queue.task
    def double(sums: list[Money]) -> dict[str, Money]:
        return {one.currency: Money(f"{one.amount * 2} {one.currency}") for one in sums}

    handle = double.add([Money("3 EUR"), Money("4 CHF")])
    assert queue.data(handle) == {"sums": ["3 EUR", "4 CHF"]}
    job = queue.next()
    assert job is not None
    job.run()
    assert str(handle.result()["CHF"]) == "8 CHF"


def test_pickle_is_a_codec_that_warns(queue: Queue) -> None:
    """Of what can happen; its bytes are base64 in the data."""
    with pytest.warns(
        UserWarning, match="pickle as the codec of Money: a client that can add jobs can run any code"
    ):
        queue.codec(Money, pickle.dumps, pickle.loads)

    @queue.task
    def copy(price: Money) -> Money:
        return price

    handle = copy.add(Money("3 EUR"))
    job = queue.next()
    assert job is not None
    job.run()

    assert (queue.data(handle)["price"][:3], str(handle.result())) == ("gAS", "3 EUR")
    with pytest.raises(BadInput, match="codec of Money"):
        queue.add(copy, {"price": "no pickle"})


class Colour(Enum):
    RED = "red"


@attrs.frozen
class Line:
    """A line of an order."""

    price: Decimal
    colour: Colour = Colour.RED


KEY, PRICE = UUID(int=7), Decimal("1.10")
WRONG = [
    ((str(KEY),), {}, "argument number of task order is of type str, and must be of type UUID"),
    (
        (KEY, [Line(0.1)]),  # type: ignore[arg-type]
        {},
        "argument lines.0..price of task order is of type float, and must be of type Decimal",
    ),
    ((KEY, [{"price": PRICE, "colour": "red"}]), {}, "argument lines.0..colour of .* of type Colour"),
    ((KEY,), {"colours": {"red"}}, "argument colours of .* of type str, and must be of type Colour"),
    ((KEY,), {"prices": {"red": PRICE}}, "argument prices of .* of type str, and must be of type Colour"),
    ((KEY,), {"prices": {Colour.RED: 1}}, "argument prices.* of type int, and must be of type Decimal"),
    ((KEY,), {"extra": "1.10"}, "argument extra of .* of type str, and must be of type Decimal"),
]


@pytest.mark.parametrize(("args", "kwargs", "why"), WRONG)
def test_decimals_uuids_and_enums_are_given_as_such(
    queue: Queue, args: tuple[Any, ...], kwargs: dict[str, Any], why: str
) -> None:
    """In calls, also within other types. By name, and in other languages, they are what JSON has."""

    @queue.task
    def order(
        number: UUID,
        lines: list[Line] | None = None,
        colours: set[Colour] = frozenset(),  # type: ignore[assignment]
        prices: dict[Colour, Decimal] | None = None,
        **rest: Decimal,
    ) -> None: ...

    with pytest.raises(BadInput, match=why):
        order.add(*args, **kwargs)
    with pytest.raises(BadInput, match=why):
        order.add_many([{"number": KEY}, dict(zip(("number", "lines"), args, strict=False)) | kwargs])
    order.add(KEY, [Line(PRICE)], {Colour.RED}, prices={Colour.RED: PRICE}, extra=PRICE)
    queue.add("order", {"number": str(KEY), "lines": [{"price": 1.1, "colour": "red"}], "extra": "1.10"})


def test_an_item_of_a_batch_and_what_only_rest_takes_are_given_as_such(queue: Queue) -> None:
    """Like an argument."""

    @queue.task
    def count(**rest: Decimal) -> None: ...

    @queue.task(batch=10)
    def pay(prices: list[Decimal]) -> list[None]:
        return [None for _ in prices]

    pay.add(PRICE)
    with pytest.raises(
        BadInput, match="argument a of task count is of type int, and must be of type Decimal"
    ):
        count.add(a=1)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="task pay is of type float, and must be of type Decimal"):
        pay.add(1.1)  # type: ignore[arg-type]


def test_data_that_a_codec_cannot_read_is_refused_without_its_value(queue: Queue) -> None:
    """By the argument."""
    queue.codec(Money, str, Money)

    @queue.task
    def pay(price: Money) -> None: ...

    with pytest.raises(BadInput, match="codec of Money") as refused:
        queue.add("pay", {"price": "s3cret"})
    assert "s3cret" not in str(refused.value)


def test_a_class_without_a_codec_and_a_known_one_are_refused(queue: Queue) -> None:
    """The first when a task asks for it, the second by `codec`."""
    with pytest.raises(BadInput, match="parameter price of task pay is of type Money"):

        @queue.task
        def pay(price: Money) -> None: ...

    for known in (int, dict):
        with pytest.raises(BadInput, match="not known already"):
            queue.codec(known, str, known)
    with pytest.raises(BadInput, match="two functions"):
        queue.codec(Money, str, None)  # type: ignore[arg-type]
