"""Private Redis and PostgreSQL servers on free loopback ports, in temporary folders."""

import os
import pwd
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _wait(check, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not start")
        time.sleep(0.05)


class Redis:
    """redis-server with its built-in defaults, plus BENCH_REDIS_ARGS."""

    def __enter__(self):
        self.port, self.dir = free_port(), tempfile.mkdtemp(prefix="bench-redis-")
        extra = shlex.split(os.environ.get("BENCH_REDIS_ARGS", ""))
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.dir, *extra],
            stdout=subprocess.DEVNULL,
        )
        _wait(lambda: self._try("PING").startswith(b"+PONG"), "redis-server")
        self.url = f"redis://127.0.0.1:{self.port}/0"
        return self

    def _try(self, line):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=60) as s:
                s.sendall(line.encode() + b"\r\n")  # an inline command: no client library needed
                return s.recv(65536)
        except OSError:
            return b""

    def reset(self):
        assert self._try("FLUSHALL") == b"+OK\r\n"
        self._try("FUNCTION FLUSH")

    def about(self):
        def get(key):
            return self._try(f"CONFIG GET {key}").decode().split("\r\n")[4]

        version = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True)
        return {
            "version": version.stdout.split("v=")[1].split()[0],
            **{k: get(k) for k in ("appendonly", "appendfsync", "save")},
        }

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        shutil.rmtree(self.dir, ignore_errors=True)


class Postgres:
    """A fresh PostgreSQL cluster with the settings initdb writes, plus BENCH_PG_ARGS."""

    def __enter__(self):
        self.bin = (
            os.environ.get("BENCH_PG_BIN")
            or subprocess.run(
                ["pg_config", "--bindir"], capture_output=True, text=True, check=True
            ).stdout.strip()
        )
        self.port, self.dir = free_port(), tempfile.mkdtemp(prefix="bench-pg-")
        self.as_user = {}
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam("postgres")
            os.chown(self.dir, user.pw_uid, user.pw_gid)
            self.as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        data = f"{self.dir}/data"
        subprocess.run(
            [f"{self.bin}/initdb", "-D", data, "-U", "postgres", "-A", "trust"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.dir,
            **self.as_user,
        )
        extra = shlex.split(os.environ.get("BENCH_PG_ARGS", ""))
        self.process = subprocess.Popen(
            [
                f"{self.bin}/postgres",
                "-D",
                data,
                "-p",
                str(self.port),
                "-h",
                "127.0.0.1",
                "-k",
                self.dir,
                *extra,
            ],
            cwd=self.dir,
            stdout=subprocess.DEVNULL,
            stderr=(Path(self.dir) / "log").open("w"),
            **self.as_user,
        )
        _wait(lambda: self._psql("select 1", check=False).returncode == 0, "postgres")
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/bench"
        return self

    def _psql(self, *commands, check=True):
        args = [a for c in commands for a in ("-c", c)]
        return subprocess.run(
            [
                f"{self.bin}/psql",
                "-qAtX",
                "-h",
                "127.0.0.1",
                "-p",
                str(self.port),
                "-U",
                "postgres",
                "-d",
                "postgres",
                *args,
            ],
            check=check,
            capture_output=True,
            text=True,
        )

    def reset(self):
        self._psql("drop database if exists bench with (force)", "create database bench", "checkpoint")

    def analyze(self):
        """Fresh statistics after the load, as autovacuum would make within a minute."""
        self._psql("\\connect bench", "analyze")

    def about(self):
        names = (
            "server_version",
            "fsync",
            "synchronous_commit",
            "full_page_writes",
            "shared_buffers",
            "wal_sync_method",
        )
        return {n: self._psql(f"show {n}").stdout.strip() for n in names}

    def __exit__(self, *_):
        self.process.terminate()  # SIGTERM: smart shutdown; all our clients are gone
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.send_signal(2)  # SIGINT: fast shutdown
            self.process.wait(30)
        shutil.rmtree(self.dir, ignore_errors=True)
