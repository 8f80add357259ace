"""A crew: processes that play roles, started and ended by the test that needs them.

    start ──▶ says "ready" ──▶ works ──▶ exits 0
                                 └── kill: SIGKILL by its pid, at whatever moment

Leaving the `with` block kills whoever is left, so no test leaves anything running.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
# How long anybody may take for anything before a test gives up on it.
PATIENCE_S = 200.0


class Member:
    """One process of a crew."""

    def __init__(self, role: Callable[..., None], args: dict[str, Any]) -> None:
        name = f"{role.__module__}:{role.__qualname__}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.stress.actor", name, json.dumps(args)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.pid = self.process.pid
        self.args = args
        self._rest = b""

    def say(self, line: str) -> None:
        """Tell the role something."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    def hear(self, *, patience_s: float = PATIENCE_S) -> str:
        """The next line that it says."""
        until = time.monotonic() + patience_s
        while b"\n" not in self._rest:
            if not self._read(max(until - time.monotonic(), 0.0)):
                raise AssertionError(f"process {self.pid} {self.args} said nothing, or has ended")
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def _read(self, timeout_s: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self.stdout, selectors.EVENT_READ)
            return bool(selector.select(timeout_s)) and bool(self.take())

    @property
    def stdout(self) -> int:
        """Where it speaks."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def take(self) -> bytes:
        """What it has said since; nothing: it has ended."""
        data = os.read(self.stdout, 65536)
        self._rest += data
        return data

    def lines(self) -> list[str]:
        """The whole lines that were taken and not yet heard."""
        *whole, self._rest = self._rest.split(b"\n")
        return [line.decode() for line in whole]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, and nobody else."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it without a word, and see it gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, *, patience_s: float = PATIENCE_S) -> int:
        """Wait until it has ended; how it did."""
        code = self.process.wait(patience_s)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        return code


class Crew:
    """All processes of a test."""

    def __init__(self) -> None:
        self.members: list[Member] = []

    def start(self, role: Callable[..., None], **args: Any) -> Member:
        """Have a process play a role: a function that takes a `Post` and these arguments."""
        member = Member(role, args)
        self.members.append(member)
        return member

    def kill(self, member: Member) -> None:
        """End one of them without a word."""
        member.kill()
        self.members.remove(member)

    def listen(self, *, patience_s: float = PATIENCE_S) -> Iterator[tuple[Member, str]]:
        """What any of them says, as it is said, until all have ended; one that ends badly fails the test."""
        until = time.monotonic() + patience_s
        with selectors.DefaultSelector() as selector:
            while self.members:
                self._sync(selector)
                for key, _ in selector.select(max(until - time.monotonic(), 0.0)):
                    member: Member = key.data
                    if member in self.members and not member.take():
                        selector.unregister(key.fd)
                        self.finish(member)
                    for line in member.lines():
                        yield member, line
                assert time.monotonic() < until, f"{len(self.members)} processes are at it still"

    def _sync(self, selector: selectors.BaseSelector) -> None:
        """Listen to those that are there now: some may have been killed, others have joined."""
        known = {key.data: key.fd for key in selector.get_map().values()}
        for gone in known.keys() - set(self.members):
            selector.unregister(known[gone])
        for member in self.members:
            if member not in known:
                selector.register(member.stdout, selectors.EVENT_READ, member)

    def finish(self, *members: Member, patience_s: float = PATIENCE_S) -> None:
        """Wait for these, or all, to end well."""
        for member in members or tuple(self.members):
            code = member.wait(patience_s=patience_s)
            self.members.remove(member)
            assert code == 0, f"process {member.pid} {member.args} ended with {code}; see its stderr"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.signal(signal.SIGKILL)
        for member in self.members:
            member.wait()
