"""Types of a program in arguments and results, by `queue.codec`."""

from collections.abc import Iterator

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
