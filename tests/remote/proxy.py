"""A proxy between a client and a server that can be cut in one direction, healed and reset."""

import socket
import threading
from typing import Self

CHUNK = 65_536
# How often a thread looks whether it is to go on.
LOOK_S = 0.05


class Direction:
    """Bytes from one socket to another; those that come while it is cut are held back."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.is_open.set()


class Proxy:
    """Listens on a port of its own, and forwards to that of a server. `up` is from clients to the server."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.up, self.down = Direction(), Direction()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LOOK_S)
        self.url = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()
        self._start(self._accept)

    def _start(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, name="holdfast-proxy")  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            self._sockets += [client, server]
            self._start(self._forward, client, server, self.up)
            self._start(self._forward, server, client, self.down)

    def _forward(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        try:
            # It may be closed already: by `reset`, or by the thread of the other direction.
            source.settimeout(LOOK_S)
            while not self._closing.is_set():
                try:
                    data = source.recv(CHUNK)
                except TimeoutError:
                    continue
                while not direction.is_open.wait(LOOK_S):
                    if self._closing.is_set():
                        return
                if not data:
                    break
                target.sendall(data)
        except OSError:
            pass
        finally:
            source.close()
            target.close()

    def reset(self) -> None:
        """Break all connections: what was held back is lost."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            one.close()

    def close(self) -> None:
        """End all threads."""
        self._closing.set()
        self.reset()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
