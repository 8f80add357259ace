"""Whoever waits for a reply hears signals, also those that did not reach it while it slept."""

import asyncio
import signal
import threading
from time import sleep
from typing import Any

from holdfast.core import commands as c
from holdfast.engine.ticket import CallbackTicket, Ticket, deliver
from holdfast.store.common.clock import monotonic_s

PATIENCE_S = 60.0


def test_a_signal_that_another_thread_was_given_is_heard_soon() -> None:
    """As one is that comes in the moment before the thread falls asleep: nothing wakes it for that."""
    ticket = Ticket(c.Upkeep())
    over = threading.Event()

    def other() -> None:
        sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        if not over.wait(PATIENCE_S):
            ticket.answer("nobody heard it")

    def hear(*_: Any) -> None:
        ticket.answer("heard")

    before = signal.signal(signal.SIGUSR1, hear)
    thread = threading.Thread(target=other)
    since_s = monotonic_s()
    thread.start()
    try:
        assert ticket.wait_for_reply() == "heard"
        assert monotonic_s() - since_s < PATIENCE_S / 2
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_callback_that_raises_keeps_no_reply_from_others() -> None:
    """They are told together; the error is passed to the event loop."""
    errors: list[Any] = []
    heard: list[Any] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        tickets = [CallbackTicket(c.Upkeep(), loop, take) for take in (fail, heard.append)]
        deliver(tickets, lambda _: None)
        await asyncio.sleep(0)
        assert heard == tickets[1:]

    def fail(_ticket: CallbackTicket) -> None:
        raise OverflowError

    asyncio.run(run())

    assert [type(error) for error in errors] == [OverflowError]
