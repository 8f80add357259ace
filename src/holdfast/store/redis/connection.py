"""Connections to Redis: sends commands and reads replies, many in one round trip.

    RedisConnection   a socket to one server
    RedisServer       the idle connections to a server
    Cluster           a `RedisServer` for the cluster node that has the store's slot, wherever it moves. All
                      keys of a store are in one slot

hiredis packs commands and parses replies. A script is called by its hash, and sent whole to a server that
does not have it. A KeyboardInterrupt may come at any step: a connection with unread replies is closed and
never used again.
"""

import hashlib
import os
import socket
import ssl
import struct
from binascii import crc_hqx
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Any

import hiredis

from .errors import FAULTS, ReplyError
from .url import RedisAddress

# Probe three times after 15 s without traffic; sent data must be acknowledged within 30 s.
_OPTIONS = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


def enable_keepalive(fd: int) -> None:
    """Make a TCP connection end half a minute after its peer disappears; local sockets do so anyway."""
    with socket.socket(fileno=os.dup(fd)) as line:
        if line.family not in (socket.AF_INET, socket.AF_INET6):
            return
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS.items():
            # Not every system has all of them.
            if hasattr(socket, name):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# Time-outs for replies and for connecting.
ANSWER_S, CONNECT_S = 20.0, 10.0
# How many redirections are followed before an error is raised.
REDIRECTS = 16
NAP_S = 0.02
RECEIVED_BYTES = 1 << 16
SLOTS = 16_384

Command = Sequence[Any]


class _Process:
    """Detects that this is a forked child, which must not use its parent's connections."""

    is_it = object()


os.register_at_fork(after_in_child=lambda: setattr(_Process, "is_it", object()))


class Script:
    """A Lua script, from one or more files."""

    def __init__(self, *names: str) -> None:
        # Without importlib.resources, whose import takes as long as that of the whole store.
        folder = Path(__file__).with_name("lua")
        self.text = b"\n".join([(folder / f"{name}.lua").read_bytes() for name in names])
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()

    def command(self, keys: Sequence[bytes], *words: Any) -> Command:
        """The command that runs it."""
        return (b"EVALSHA", self.sha, len(keys), *keys, *words)


ADD, COMMIT, SETTLE = Script("done", "add"), Script("done", "commit"), Script("done", "settle")
CLAIM, GIVE_BACK = Script("choose", "claim"), Script("give_back")
LEASE = Script("done", "choose", "lease")
PAGE, TENANTS, REPAIR = Script("page"), Script("tenants"), Script("repair")
_ALL = (ADD, LEASE, COMMIT, SETTLE, CLAIM, GIVE_BACK, PAGE, TENANTS, REPAIR)
SCRIPTS = {script.sha: script for script in _ALL}


class RedisConnection:
    """A socket to a server, for one caller at a time."""

    def __init__(self, address: RedisAddress, node: tuple[str, int], epoch: object) -> None:
        # The generation of connections that it belongs to; those of an earlier one are closed.
        self.epoch: object | None = epoch
        self.node = node
        self._reader = hiredis.Reader(replyError=ReplyError)
        self.socket = socket.create_connection(node, CONNECT_S)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            enable_keepalive(self.socket.fileno())
            if address.tls:
                self.socket = _wrap(self.socket, address, node[0])
            # Not `settimeout`, which asks the system before each call whether the socket is ready.
            self.socket.settimeout(None)
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self.socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(ANSWER_S), 0))
            self._log_in(address)
        except BaseException:
            self.close()
            raise

    def _log_in(self, address: RedisAddress) -> None:
        commands: list[Command] = []
        if address.password is not None:
            commands.append((b"AUTH", *([address.user] if address.user else []), address.password))
        if address.db:
            commands.append((b"SELECT", address.db))
        for reply in self.exchange(commands) if commands else []:
            if isinstance(reply, ReplyError):
                raise reply

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to commands, including errors."""
        if len(commands) == 1:
            self.socket.sendall(packed(commands[0]))
        else:
            self.socket.sendall(b"".join([packed(words) for words in commands]))
        reader, replies, left = self._reader, [], len(commands)
        while True:
            reader.feed(self._received())
            while (reply := reader.gets()) is not False:
                replies.append(reply)
                left -= 1
                if not left:
                    # On a subscribed connection further data are messages (`read_pushed`).
                    return replies

    def _received(self) -> bytes:
        try:
            data = self.socket.recv(RECEIVED_BYTES)
        except BlockingIOError:
            raise TimeoutError("timed out") from None
        if not data:
            raise ConnectionResetError("the server closed the connection")
        return data

    def read_pushed(self) -> list[Any]:
        """Messages that the server has pushed; called when there is something to read."""
        self.socket.settimeout(0.0)
        try:
            while True:
                self._reader.feed(self._received())
        except (TimeoutError, ssl.SSLWantReadError):
            pass
        replies = []
        while (reply := self._reader.gets()) is not False:
            replies.append(reply)
        return replies

    def close(self) -> None:
        """Close the socket; it is not used again."""
        self.epoch = None
        self.socket.close()

    def __del__(self) -> None:
        # Also if a KeyboardInterrupt came before it was closed.
        if hasattr(self, "socket"):
            self.socket.close()


class Packed(tuple[Any, ...]):
    """A command that is packed already: its first words, and all of it."""

    data: bytes


def packed(words: Command) -> bytes:
    """A command in the protocol of Redis.

    hiredis gets no numbers: it asks Python for their text, which runs signal handlers, and one that raises
    (Ctrl-C) would crash the process there.
    """
    if words.__class__ is Packed:
        return words.data
    texts: Any = tuple([b"%d" % word if word.__class__ is int else word for word in words])
    packed: bytes = hiredis.pack_command(texts)
    return packed


def _wrap(plain: socket.socket, address: RedisAddress, host: str) -> socket.socket:
    named = dict(address.tls_files)
    context = ssl.create_default_context(cafile=named.get("ssl_ca_certs"))
    if "ssl_certfile" in named:
        context.load_cert_chain(named["ssl_certfile"], named.get("ssl_keyfile"))
    return context.wrap_socket(plain, server_hostname=host)


class RedisServer:
    """A server, and the idle connections to it."""

    # Whether the server was reached before, although it may be down now.
    is_found = False
    _is_closed = False

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._free: list[RedisConnection] = []
        self._epoch, self._process = object(), _Process.is_it

    def acquire(self) -> RedisConnection:
        """A connection, to be returned by `release`."""
        if self._process is not _Process.is_it:
            # The connections are the parent's.
            self.drop()
            self._process = _Process.is_it
        try:
            return self._free.pop()
        except IndexError:
            return self.open()

    def open(self) -> RedisConnection:
        """A new connection outside the pool."""
        return RedisConnection(self._address, self.node(), self._epoch)

    def node(self) -> tuple[str, int]:
        """The host and port of the store."""
        return self._address.hosts[0]

    def release(self, connection: RedisConnection) -> None:
        """Keep a connection for reuse, unless it is closed or of an earlier generation."""
        if connection.epoch is self._epoch and not self._is_closed:
            self._free.append(connection)
        else:
            connection.close()

    def call(self, *words: Any) -> Any:
        """One command, one reply."""
        return self.call_many([words])[0]

    def call_many(self, commands: Sequence[Command]) -> list[Any]:
        """Several commands in one round trip; the first error is raised. Not atomic."""
        connection = self.acquire()
        try:
            return self.send(connection, commands)
        finally:
            self.release(connection)

    def send(self, connection: RedisConnection, commands: Sequence[Command]) -> list[Any]:
        """Several commands through this connection, which is closed if not all replies were read."""
        try:
            replies = connection.exchange(commands)
        except BaseException:
            connection.close()
            raise
        for position, reply in enumerate(replies):
            if reply.__class__ is ReplyError:
                if not str(reply).startswith("NOSCRIPT"):
                    reply.position = position
                    raise reply
                self.send(connection, _loading(commands))
                # Executed ones may be repeated: only the last command writes.
                return self.send(connection, commands)
        return replies

    def drop(self) -> None:
        """Close all connections: the server may have changed, or be down."""
        self._epoch, free, self._free = object(), self._free, []
        for connection in free:
            connection.close()

    def close(self) -> None:
        """Close the idle connections now, and those in use when they are released."""
        self._is_closed = True
        self.drop()


class Cluster(RedisServer):
    """The node of a cluster that has the store's slot."""

    def __init__(self, address: RedisAddress, key: bytes) -> None:
        super().__init__(address)
        self._slot = crc_hqx(key.partition(b"{")[2].partition(b"}")[0], 0) % SLOTS
        self._node: tuple[str, int] | None = None
        # All nodes known so far: those of the URL may be gone.
        self._known = list(address.hosts)

    def node(self) -> tuple[str, int]:
        """The node that has the store's slot, as reported by any other node."""
        fault: Exception | None = None
        for node in list(self._known) if self._node is None else ():
            try:
                self._node = self._ask(node)
                self.is_found = True
                break
            except FAULTS as error:
                fault = error
        if self._node is None:
            raise fault or ReplyError("CLUSTERDOWN no node has the slot of the store")
        return self._node

    def _ask(self, node: tuple[str, int]) -> tuple[str, int] | None:
        """The node that has the store's slot, according to `node`."""
        connection = RedisConnection(self._address, node, self._epoch)
        try:
            (ranges,) = connection.exchange([(b"CLUSTER", b"SLOTS")])
        finally:
            connection.close()
        if isinstance(ranges, ReplyError):
            raise ranges
        found, owner = [], None
        for first, last, *nodes in ranges:
            # A node that does not know its own host name returns an empty one.
            named = [((host or b"").decode() or node[0], port) for host, port, *_ in nodes]
            found += named
            if first <= self._slot <= last:
                owner = named[0]
        self._known = list(dict.fromkeys([*found, *self._address.hosts]))
        return owner

    def send(self, connection: RedisConnection, commands: Sequence[Command]) -> list[Any]:
        """Send commands, following redirections."""
        first = connection
        for _ in range(REDIRECTS):
            try:
                return super().send(connection, commands)
            except ReplyError as error:
                word, _, told = str(error).partition(" ")
                if word == "MOVED":
                    self.drop()
                    self._node = _node(told, connection)
                elif word == "ASK":
                    try:
                        return self._ask_next(_node(told, connection), commands)
                    except ReplyError as next_error:
                        if not str(next_error).startswith(("MOVED", "ASK", "TRYAGAIN")):
                            raise
                    sleep(NAP_S)
                elif word == "TRYAGAIN":
                    # The slot is migrating: some of its keys are on either node.
                    sleep(NAP_S)
                else:
                    raise
            finally:
                if connection is not first:
                    self.release(connection)
            connection = self.acquire()
        raise ReplyError("TRYAGAIN the slot of the store is being moved")

    def _ask_next(self, node: tuple[str, int], commands: Sequence[Command]) -> list[Any]:
        """Send commands to the node that the slot is moving to."""
        connection = RedisConnection(self._address, node, self._epoch)
        try:
            loading = _loading(commands)
            asked = [words for one in commands for words in ((b"ASKING",), one)]
            replies = connection.exchange([*loading, *asked])[len(loading) + 1 :: 2]
        finally:
            connection.close()
        for position, reply in enumerate(replies):
            if isinstance(reply, ReplyError):
                reply.position = position
                raise reply
        return replies

    def drop(self) -> None:
        """Close all connections, and find the node of the slot again."""
        super().drop()
        self._node = None


def _node(told: str, asked: RedisConnection) -> tuple[str, int]:
    """The node of a redirection: "3999 127.0.0.1:6381". Without a host it is on that of the asked node."""
    host, _, port = told.rpartition(" ")[2].rpartition(":")
    return host or asked.node[0], int(port)


def _loading(commands: Sequence[Command]) -> list[Command]:
    """What loads the scripts that these commands run."""
    shas = dict.fromkeys(words[1] for words in commands if words[0] == b"EVALSHA")
    return [(b"SCRIPT", b"LOAD", SCRIPTS[sha].text) for sha in shas]


def server_of(address: RedisAddress, key: bytes) -> RedisServer:
    """The server of an address, without connecting."""
    return Cluster(address, key) if address.cluster else RedisServer(address)
