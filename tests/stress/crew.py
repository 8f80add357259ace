"""A crew: processes that play roles, started and ended by the test that needs them.

    start ──▶ says "ready" ──▶ works ──▶ exits 0
                                 └── kill: SIGKILL by its pid, at whatever moment

Leaving the `with` block kills whoever is left, so no test leaves anything running.
"""

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.leftovers import SHARED
from tests.stress.actor import MESSAGE_BYTES

ROOT = Path(__file__).parents[2]
# How long anybody may take for anything before a test gives up on it.
PATIENCE_S = 200.0


class Forker:
    """The process that forks the members of all crews of this test process. See `actor`."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.stress.actor", str(theirs.fileno()), f"{SHARED}forker"]
        with theirs:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        atexit.register(self._close)
        self._pids: deque[int] = deque()
        self._codes: dict[int, int] = {}

    def start(self, role: Callable[..., None], args: dict[str, Any], pipes: list[int]) -> int:
        """Have a member forked with these pipes as its stdin and stdout; its pid."""
        name = f"{role.__module__}:{role.__qualname__}"
        request = {"role": name, "args": args, "env": dict(os.environ)}
        socket.send_fds(self._socket, [json.dumps(request).encode()], pipes)
        while not self._pids:
            self._receive(PATIENCE_S)
        return self._pids.popleft()

    def wait(self, pid: int, patience_s: float) -> int:
        """Wait until a member has ended; its exit code."""
        until = time.monotonic() + patience_s
        while pid not in self._codes:
            self._receive(max(until - time.monotonic(), 0.001))
        return self._codes.pop(pid)

    def _receive(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        message = self._socket.recv(MESSAGE_BYTES)
        assert message, "the process that forks the others has ended; see its stderr"
        answer = json.loads(message)
        if "code" in answer:
            self._codes[answer["pid"]] = answer["code"]
        else:
            self._pids.append(answer["pid"])

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def forker() -> Forker:
    """Started with the first member."""
    return Forker()


class Member:
    """One process of a crew."""

    def __init__(self, role: Callable[..., None], args: dict[str, Any]) -> None:
        theirs_in, self._stdin = os.pipe()
        self.stdout, theirs_out = os.pipe()
        try:
            self.pid = forker().start(role, args, [theirs_in, theirs_out])
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self.args = args
        self._rest = b""
        self._code: int | None = None

    def say(self, line: str) -> None:
        """Tell the role something."""
        os.write(self._stdin, line.encode() + b"\n")

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

    def take(self) -> bytes:
        """What it has said since; nothing: it has ended."""
        data = os.read(self.stdout, 65536)
        self._rest += data
        return data

    def lines(self) -> list[str]:
        """The whole lines that were taken and not yet heard."""
        *whole, self._rest = self._rest.split(b"\n")
        return [line.decode() for line in whole]

    def state(self) -> str:
        """What the kernel says of it: T is stopped, Z has ended."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it is gone
            return "Z"

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, and nobody else."""
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self) -> None:
        """Have it stand still, and see that it does."""
        self.signal(signal.SIGSTOP)
        while self.state() not in "TZ":
            time.sleep(0.001)

    def kill(self) -> None:
        """End it without a word, and see it gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, *, patience_s: float = PATIENCE_S) -> int:
        """Wait until it has ended; how it did."""
        if self._code is None:
            self._code = forker().wait(self.pid, patience_s)
            os.close(self._stdin)
            os.close(self.stdout)
        return self._code


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
