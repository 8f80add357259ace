"""The process that forks the members of crews: `python -m tests.stress.actor FD`.

It imports the module of a role once and forks a member for each request, so that a member starts in
milliseconds. It exits when the test process closes the socket.

a request   {"role": "module:name", "args": {…}, "env": {…}}, and with it the member's stdin and stdout
an answer   {"pid": …} for each request, in order, and {"pid": …, "code": …} when a member has ended
"""

import json
import os
import queue
import selectors
import signal
import socket
import sys
import threading
import traceback
from importlib import import_module
from typing import Any

ORPHANED = 3
MESSAGE_BYTES = 1 << 17


class Post:
    """What a role and its test say to each other, a line at a time."""

    def __init__(self) -> None:
        self._heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, line: str) -> None:
        """Tell the test."""
        with self._lock:
            os.write(1, line.encode() + b"\n")

    def hear(self) -> str:
        """Wait for a word of the test."""
        return self._heard.get()

    def _listen(self) -> None:
        # Its end means that the test is gone.
        for line in sys.stdin:
            self._heard.put(line.rstrip("\n"))
        os._exit(ORPHANED)


def main() -> None:
    """Fork members until the socket is closed."""
    test = socket.socket(fileno=int(sys.argv[1]))
    awake, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    with selectors.DefaultSelector() as selector:
        selector.register(test, selectors.EVENT_READ)
        selector.register(awake, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is awake:
                    awake.recv(4096)
                    _tell_ends(test)
                elif not _serve(test, [awake, waker, selector]):
                    return


def _serve(test: socket.socket, ours: list[Any]) -> bool:
    """Fork a member for the next request; false: there will be none."""
    message, pipes, _, _ = socket.recv_fds(test, MESSAGE_BYTES, 2)
    if not message:
        return False
    request = json.loads(message)
    module, _, role = request["role"].partition(":")
    play = getattr(import_module(module), role)
    if pid := os.fork():
        test.send(json.dumps({"pid": pid}).encode())
        for pipe in pipes:
            os.close(pipe)
        return True
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for one in (test, *ours):
        one.close()
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    os.environ.clear()
    os.environ.update(request["env"])
    code = 1
    try:
        play(Post(), **request["args"])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        # Not past the listening thread, which holds stdin: Python would wait for it to let go.
        sys.stdout.flush()
        os._exit(code)


def _tell_ends(test: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        test.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


if __name__ == "__main__":
    main()
