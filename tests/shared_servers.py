"""One PostgreSQL, one Redis and one Redis Cluster for all processes of a test run.

The first test that needs one starts a process that starts the server and keeps it until the run is over. In
PostgreSQL each test process has a database of its own, in Redis prefixes of its own.

    python -m tests.shared_servers KIND PID FOLDER    start a server, print its ports, keep it until process
                                                      PID ends; then remove the folder of the run
"""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.leftovers import SHARED
from tests.programs import Missing, or_skip
from tests.redis_servers import ClusterAddress, ClusterServers, RedisAddress, RedisServer
from tests.servers import RUN, PostgresDatabase, PostgresServer, roomy

ROOT = Path(__file__).parents[1]
# Referenced here, so that no test is told that a process goes on.
_keepers: list["subprocess.Popen[str]"] = []


def begin_run() -> None:
    """Make the folder of the run, unless this is a process of a run that has begun."""
    if RUN not in os.environ:
        folder = tempfile.mkdtemp(prefix=f"{SHARED}run-", dir=roomy())
        os.environ[RUN] = json.dumps([folder, os.getpid()])


def end_run() -> None:
    """Remove the folder of the run, if it began here; the servers end with this process."""
    folder, pid = json.loads(os.environ[RUN])
    if pid == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


def servers_cpu_s() -> float:
    """The processor time of the servers so far, in seconds."""
    folder, _ = json.loads(os.environ[RUN])
    ticks, parents = dict[int, int](), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            fields = path.read_text(errors="replace").rpartition(") ")[2].split()
            # Its own, and that of its children that have ended.
            ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
            parents[int(path.parent.name)] = int(fields[1])
    found = {int(path.read_text()) for path in Path(folder).glob("*.pid")}
    while born := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= born
    return sum(ticks.get(pid, 0) for pid in found) / os.sysconf("SC_CLK_TCK")


def shared_postgres() -> PostgresDatabase:
    """A database of this process's own."""
    found = _address("postgres", what="ON POSTGRESQL")
    return PostgresDatabase(Path(found["folder"]), found["ports"][0])


def shared_redis() -> RedisAddress:
    """The server for prefixes of this process's own."""
    return RedisAddress(_address("redis", what="ON REDIS")["ports"][0])


def shared_cluster() -> ClusterAddress:
    """The cluster for prefixes of this process's own."""
    return ClusterAddress(_address("cluster", what="ON REDIS CLUSTER")["ports"])


def _address(kind: str, *, what: str) -> Any:
    """Where the server of a kind is; the first process that asks starts it while the others wait."""
    folder, pid = json.loads(os.environ[RUN])
    address = Path(folder, f"{kind}.json")
    with Path(folder, f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            address.write_text(_start(kind, folder, pid))
    found = json.loads(address.read_text())
    return or_skip(lambda: _unless_missing(found), what=what)


def _start(kind: str, folder: str, pid: int) -> str:
    # By the folder in its command the process is not taken for one that a test left behind.
    command = [sys.executable, "-m", "tests.shared_servers", kind, str(pid), folder]
    keeper = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _keepers.append(keeper)
    assert keeper.stdout is not None
    with keeper.stdout as told:
        line = told.readline()
    assert line, f"the {kind} for all tests did not start: see above"
    Path(folder, f"{kind}.pid").write_text(str(keeper.pid))
    return line


def _unless_missing(found: Any) -> Any:
    if "missing" in found:
        raise Missing(found["missing"])
    return found


# Many small schemas of many databases: to look at all of them every two seconds costs more than most tests.
# The long tests fill tables so fast that it is needed.
VACUUM = {} if os.environ.get("HYPOTHESIS_PROFILE") == "proof" else {"autovacuum_naptime": "20s"}
MAKERS: dict[str, Callable[[], Any]] = {
    "postgres": lambda: PostgresServer(shared=True, **VACUUM),
    "redis": lambda: RedisServer(shared=True),
    # Busy test processes must not be taken for nodes that are down.
    "cluster": lambda: ClusterServers(shared=True, cluster_node_timeout="10000"),
}


def keep(kind: str, pid: int, folder: str) -> None:
    """Start a server, print where it is, and close it when the process of that id has ended.

    The folder of the run goes too: a run that was killed did not remove it.
    """
    run = os.pidfd_open(pid)
    try:
        server = MAKERS[kind]()
    except Missing as error:
        _print({"missing": str(error)})
        return
    try:
        ports = [one.port for one in server.servers] if kind == "cluster" else [server.port]
        _print({"ports": ports, "folder": "" if kind == "cluster" else str(server.folder)})
        select.select([run], [], [])
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def _print(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    keep(sys.argv[1], int(sys.argv[2]), sys.argv[3])
