"""KeyboardInterrupt at any step of a call that leaves work to another thread: that thread goes on."""

import signal
import threading
from typing import Any

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.engine.store_connection import StoreConnection
from holdfast.queue.timers import TimerThread
from holdfast.remote.address import ServerAddress
from holdfast.remote.connection import RemoteConnection
from holdfast.remote.link import Link
from holdfast.store.memory.store import MemoryStore
from holdfast.store.postgres.notify import PostgresNotifier
from tests.interrupts import Interrupter
from tests.queue_suite.tools import LONG_S
from tests.remote.served import Served

# What strikes while the interpreter tidies up is told and goes no further.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
ADD = c.Add(jobs=(c.NewJob(task="work"),))


def steps_of(function):
    """Yield what interrupts a function at its first step, at the second and so on, to the last."""
    step = 0
    while True:
        step += 1
        interrupter = Interrupter(function, step)
        yield interrupter
        if not interrupter.struck:
            break
    assert step > 5


def check_returns(act):
    """Fail unless a call returns in another thread: it waits for no lock that was left locked."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(LONG_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("runs", [False, True])
def test_the_thread_of_timers_and_renewals_goes_on(runs):
    """Whether it is started by the interrupted call, or runs already."""
    for interrupter in steps_of(TimerThread.after):
        timers, called = TimerThread(), threading.Event()
        if runs:
            check_returns(lambda timers=timers, called=called: timers.after(60, called.clear))
        interrupter.call(lambda timers=timers, called=called: timers.after(30, called.clear))

        check_returns(lambda timers=timers, called=called: timers.after(0, called.set))

        assert called.wait(LONG_S)
        check_returns(timers.close)


@pytest.mark.parametrize("runs", [False, True])
def test_a_connection_to_a_server_goes_on(runs):
    store = StoreConnection(MemoryStore(), rng=lambda: 0.5)
    served = Served(store)
    try:
        for interrupter in steps_of(Link.put):
            connection = RemoteConnection(ServerAddress("127.0.0.1", served.port))
            if runs:
                connection.ask(ADD)
            interrupter.call(lambda connection=connection: connection.ask(ADD))

            check_returns(lambda connection=connection: connection.ask(ADD))

            check_returns(connection.close)
    finally:
        served.close()
        store.close()


class Notes(PostgresNotifier):
    """Sends nothing, and notes that it did."""

    def __init__(self) -> None:
        nowhere: Any = None
        super().__init__(nowhere, nowhere, b"")
        self.sent = threading.Event()

    def _send(self) -> None:
        self.sent.set()


@pytest.mark.parametrize("runs", [False, True])
def test_notifications_of_postgresql_go_on(runs):
    for interrupter in steps_of(PostgresNotifier.notify):
        notifier = Notes()
        if runs:
            check_returns(lambda notifier=notifier: notifier.notify(ends=True))
            assert notifier.sent.wait(LONG_S)
        interrupter.call(lambda notifier=notifier: notifier.notify(ends=True))
        notifier.sent.clear()

        check_returns(lambda notifier=notifier: notifier.notify(ends=True))

        assert notifier.sent.wait(LONG_S)
        check_returns(notifier.close)


@pytest.mark.parametrize("call", ["add", "close"])
@pytest.mark.parametrize("name", ["memory", "sqlite", "redis"])
def test_a_signal_handler_during_a_commit_is_refused(name, call, request, tmp_path, monkeypatch):
    """It would wait for itself. The commit goes on, and the queue can be used and closed after it."""
    urls = {"memory": lambda: "memory://", "sqlite": lambda: str(tmp_path / "jobs.db")}
    url = urls[name]() if name in urls else request.getfixturevalue("redis_url")
    refused: list[type] = []
    with holdfast.connect(url) as queue:
        queue.add("work")
        engine: Any = queue.connection.engine
        execute = engine.execute

        def handle(*_: object) -> None:
            try:
                queue.add("work") if call == "add" else queue.close()
            except holdfast.WouldBlock as error:
                refused.append(type(error))

        def struck(commands: Any, done: Any) -> Any:
            signal.raise_signal(signal.SIGUSR1)
            return execute(commands, done)

        before = signal.signal(signal.SIGUSR1, handle)
        try:
            monkeypatch.setattr(engine, "execute", struck)
            queue.add("work")
        finally:
            monkeypatch.undo()
            signal.signal(signal.SIGUSR1, before)
        queue.add("work")

        assert refused == [holdfast.WouldBlock]
        assert queue.counts() == {"work": {"QUEUED": 3}}
