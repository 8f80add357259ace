"""Something between a client and its server that can swallow an answer."""

import socket
import threading
from contextlib import ExitStack


class Proxy:
    """Passes bytes on. When armed, the next commit arrives at the server, and its answer nowhere."""

    def __init__(self, port: int, *, word: bytes = b"COMMIT") -> None:
        self._word = word
        self._server_port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._armed = threading.Event()
        self.swallowed = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._sockets = ExitStack()
        self._threads[0].start()

    def arm(self) -> None:
        """The next commit, which is known by a word, is not answered."""
        self._armed.set()

    def close(self) -> None:
        """Cut all connections."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        # It may be about to pass on one more connection.
        self._threads[0].join()
        self._sockets.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            for end in (client, server):
                self._sockets.callback(end.close)
                self._sockets.callback(_shut, end)
            cut = threading.Event()
            for pass_on in (self._pass_up, self._pass_down):
                thread = threading.Thread(target=pass_on, args=(client, server, cut))
                self._threads.append(thread)
                thread.start()

    def _pass_up(self, client: socket.socket, server: socket.socket, cut: threading.Event) -> None:
        while data := _received(client):
            if self._armed.is_set() and self._word in data:
                self._armed.clear()
                cut.set()
            if not _sent(server, data):
                break
        _shut(server)

    def _pass_down(self, client: socket.socket, server: socket.socket, cut: threading.Event) -> None:
        while data := _received(server):
            if cut.is_set():
                # The server has answered, so the commit is made.
                self.swallowed.set()
                break
            if not _sent(client, data):
                break
        _shut(client)


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(65536)
    except OSError:
        return b""


def _sent(end: socket.socket, data: bytes) -> bool:
    try:
        end.sendall(data)
    except OSError:
        return False
    return True


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
