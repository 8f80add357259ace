"""How the Redis store speaks to its server: words in, replies out, one round trip for many.

    Link      one server
    Clustered the node of a cluster that has the store's slot. All keys of a store are in one slot, so of the
              client of clusters only its map is used: where the slot is, and where it has moved to.

A script is called by its hash, and sent whole to a server that does not know it: a new one, or one that was
told SCRIPT FLUSH.
"""

import hashlib
import os
from collections.abc import Sequence
from importlib.resources import files
from time import sleep
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    AskError,
    MovedError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry

from .url import Address

try:
    import hiredis
except ImportError:
    hiredis = None  # type: ignore[assignment]

# A server that does not answer for so long is taken for gone.
ANSWER_S, CONNECT_S = 20.0, 10.0
# How often a slot that moves is followed before the caller is told.
REDIRECTS = 16
NAP_S = 0.02

Words = Sequence[Any]


class Script:
    """A Lua script of ours."""

    def __init__(self, name: str) -> None:
        self.text = files(__package__).joinpath("lua", f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()

    def words(self, keys: Sequence[bytes], *values: Any) -> tuple[Any, ...]:
        """The command that runs it."""
        return (b"EVALSHA", self.sha, len(keys), *keys, *values)


COMMIT, CLAIM, TAKE = Script("commit"), Script("claim"), Script("take")
GIVE_BACK, PAGE, SETTLE = Script("give_back"), Script("page"), Script("settle")
MEND = Script("mend")
SCRIPTS = {script.sha: script for script in (COMMIT, CLAIM, TAKE, GIVE_BACK, PAGE, SETTLE, MEND)}


class Link:
    """A server, and connections to it that are used by one caller at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._client: Any = None
        # Connections that nobody uses just now, and whose they are.
        self._free: list[Any] = []
        self._free_of: tuple[Any, int] | None = None

    @property
    def is_found(self) -> bool:
        """Whether the address is known to lead somewhere, although our server may not answer just now."""
        return False

    def _options(self) -> dict[str, Any]:
        address = self._address
        options: dict[str, Any] = {
            "username": address.user,
            "password": address.password,
            "socket_timeout": ANSWER_S,
            "socket_connect_timeout": CONNECT_S,
            "socket_keepalive": True,
            "protocol": 2,
            # Never by itself: a commit that was sent may have been done.
            "retry": Retry(NoBackoff(), 0),
        }
        return options | ({"ssl": True, **dict(address.tls_files)} if address.tls else {})

    def server(self) -> Any:
        """The client of the server that has the store."""
        if self._client is None:
            host, port = self._address.hosts[0]
            self._client = redis.Redis(host=host, port=port, db=self._address.db, **self._options())
        return self._client

    def call(self, *words: Any) -> Any:
        """One command, one reply."""
        return self.many([words])[0]

    def many(self, commands: Sequence[Words]) -> list[Any]:
        """Several commands in one round trip; the first error is raised. Not atomic."""
        replies = self._sent(self.server(), commands)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            # Those that were done may be done again: only the last may change what others see.
            replies = self._sent(self.server(), [_whole(words) for words in commands])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def _sent(self, client: Any, commands: Sequence[Words], *, asking: bool = False) -> list[Any]:
        """The replies to commands, errors among them."""
        if asking:
            commands = [words for one in commands for words in ((b"ASKING",), one)]
        connection = self._taken(client.connection_pool)
        try:
            # Not by the client's own verbs: half of the time of a small command goes by inside them.
            connection.send_packed_command(_packed(connection, commands))
            replies = [_reply(connection) for _ in commands]
        except BaseException:
            # What was not read of its replies must not be taken for those of another.
            connection.disconnect()
            raise
        finally:
            self._given(client.connection_pool, connection)
        return replies[1::2] if asking else replies

    def _taken(self, pool: Any) -> Any:
        """A connection for one round trip. The pool would look each time whether it still stands."""
        if self._free_of != (pool, os.getpid()):
            # Another node's, or those of a parent: left where they are.
            self._free, self._free_of = [], (pool, os.getpid())
        try:
            return self._free.pop()
        except IndexError:
            return pool.get_connection()

    def _given(self, pool: Any, connection: Any) -> None:
        if self._free_of == (pool, os.getpid()):
            self._free.append(connection)
        else:
            pool.release(connection)

    def drop(self) -> None:
        """Forget connections that may lead nowhere."""
        for connection in self._free:
            connection.disconnect()
        if self._client is not None:
            self._client.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        """Let go of all connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
            client.connection_pool.disconnect()


class Clustered(Link):
    """The node of a cluster that has our slot, wherever that is."""

    def __init__(self, address: Address, key: bytes) -> None:
        super().__init__(address)
        self._key = key
        self._cluster: Any = None

    @property
    def is_found(self) -> bool:
        """Whether there is a cluster: then the node that has our slot will be there."""
        return self._cluster is not None

    def server(self) -> Any:
        """The client of the node that has our slot."""
        if self._client is None:
            if self._cluster is None:
                nodes = [
                    ClusterNode(host, port)  # type: ignore[no-untyped-call]
                    for host, port in self._address.hosts
                ]
                self._cluster = RedisCluster(startup_nodes=nodes, **self._options())
            node = self._cluster.get_node_from_key(self._key.decode())
            if node is None:
                raise RedisClusterException("CLUSTERDOWN no node has the slot of the store")
            self._client = self._cluster.get_redis_connection(node)
        return self._client

    def many(self, commands: Sequence[Words]) -> list[Any]:
        """Several commands in one round trip, wherever the slot has gone."""
        for _ in range(REDIRECTS):
            try:
                return super().many(commands)
            except MovedError:
                self.drop()
            except TryAgainError:
                # On its way: some of its keys are here, some there.
                sleep(NAP_S)
            except AskError as error:
                try:
                    return self._asked(error, commands)
                except (MovedError, AskError, TryAgainError):
                    sleep(NAP_S)
        raise RedisClusterException("TRYAGAIN the slot of the store is being moved")

    def _asked(self, error: AskError, commands: Sequence[Words]) -> list[Any]:
        """Ask the node that the slot is moving to."""
        client = redis.Redis(host=error.host, port=error.port, **self._options())
        try:
            replies = self._sent(client, [_whole(words) for words in commands], asking=True)
        finally:
            client.close()
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def drop(self) -> None:
        """Look anew who has the slot."""
        self._client = None
        if self._cluster is not None:
            try:
                self._cluster.nodes_manager.initialize()
            except (RedisError, RedisClusterException):
                # Nobody is there; the next time from the addresses that were given.
                self._cluster.close()
                self._cluster = None

    def close(self) -> None:
        """Let go of all connections."""
        self._client = None
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()
            for node in cluster.get_nodes():
                if node.redis_connection is not None:
                    node.redis_connection.connection_pool.disconnect()


def _packed(connection: Any, commands: Sequence[Words]) -> Any:
    if hiredis is None:
        return connection.pack_commands(commands)
    # All in one: the connection would send each by itself.
    return [b"".join([hiredis.pack_command(tuple(words)) for words in commands])]


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def _whole(words: Words) -> Words:
    """The command with the script in it, where it runs one."""
    if words[0] != b"EVALSHA":
        return words
    return (b"EVAL", SCRIPTS[words[1]].text, *words[2:])


def link_to(address: Address, key: bytes) -> Link:
    """The link of an address; nothing is opened."""
    return Clustered(address, key) if address.cluster else Link(address)
