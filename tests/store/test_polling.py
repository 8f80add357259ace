"""One who listens looks by itself: soon after news, then less and less often, and never later than said."""

import os
from contextlib import nullcontext

import pytest

from holdfast.store.common import listener
from holdfast.store.common.listener import PollTimes
from holdfast.store.sqlite.notify import SqliteNotifier

SOON_S, SELDOM_S = 5.0, 30.0


class Time:
    """Seconds that pass when told."""

    def __init__(self):
        self.now_s = 1_000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def time(monkeypatch):
    time = Time()
    monkeypatch.setattr(listener, "monotonic_s", time)
    return time


def pauses(when: PollTimes, time: Time, count: int) -> list[float]:
    """How long it is until each of the next looks."""
    found = []
    for _ in range(count):
        found.append(when.left_s)
        time.now_s += when.left_s
        when.polled()
    return found


def test_looks_are_soon_at_first_and_then_seldom(time):
    assert pauses(PollTimes(SOON_S, SELDOM_S), time, 6) == [0.0, 5.0, 10.0, 20.0, 30.0, 30.0]


def test_after_news_they_are_soon_again(time):
    """Also where the news comes just after a look."""
    when = PollTimes(SOON_S, SELDOM_S)
    pauses(when, time, 6)

    when.poll_soon()

    assert pauses(when, time, 4) == [5.0, 5.0, 10.0, 20.0]


def test_news_without_end_puts_no_look_off(time):
    when = PollTimes(SOON_S, SELDOM_S)
    when.polled()

    for _ in range(4):
        time.now_s += 1.0
        when.poll_soon()

    assert when.left_s == 1.0


def test_whoever_cannot_hear_looks_as_often_as_ever(time):
    assert pauses(PollTimes(0.25, 0.25), time, 4) == [0.0, 0.25, 0.25, 0.25]


@pytest.mark.timeout(20)
def test_an_interrupt_that_meets_the_end_of_a_wait_does_not_hold_up_the_next(tmp_path, monkeypatch):
    """Its flag is taken by a `wait` that just ends, and its byte comes after that."""
    notifier = SqliteNotifier(tmp_path / "jobs.db")
    waker = notifier._waker
    assert notifier.wait(0.0) is None
    write = os.write

    def taken_first(fd, data):
        waker.clear()
        return write(fd, data)

    monkeypatch.setattr(os, "write", taken_first)
    monkeypatch.setattr(waker, "_lock", nullcontext())
    notifier.interrupt()
    monkeypatch.undo()

    assert notifier.wait(5.0) is False
    assert notifier.wait(0.0) is None
    notifier.close()
