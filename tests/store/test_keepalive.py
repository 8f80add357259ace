"""A connection that only listens notices when its other end is gone; a local one needs no help."""

import socket

from holdfast.store.redis.connection import enable_keepalive


def test_a_line_over_the_network_asks_whether_the_other_end_is_there():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as line,
    ):
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0

        enable_keepalive(line.fileno())

        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
        # It is still the caller's.
        line.sendall(b"!")


def test_a_local_line_is_left_as_it_is():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        enable_keepalive(ours.fileno())

        ours.sendall(b"!")
        assert theirs.recv(1) == b"!"
