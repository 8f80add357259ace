"""A store is migrated to the next version while processes of this one use it, on every store.

The next version is made up (`next_version.py`). Either it lets this version write, or not.
"""

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast.core.job import Job, Outcome
from holdfast.core.layout import keep_unknown
from holdfast.engine.records import Patterns
from holdfast.store.redis.connection import server_of
from holdfast.store.redis.keys import STAMP_BYTES, Keys, record_of
from holdfast.store.redis.url import parse
from tests.stores import here_and_in_proof
from tests.upgrades.next_version import SRC, make_next_version, start
from tests.work.conftest import Bench
from tests.work.test_worker import is_gone

PATIENCE_S = 120.0
# How many jobs each process finishes before the migration.
BEFORE = 10
NEWER = "was written by a newer Holdfast (layout 2; this one knows up to 1): upgrade this process"


class Stored(NamedTuple):
    """The records of jobs by id, at the moment of the migration and now, and the limit that was set."""

    then: dict[int, str]
    now: dict[int, str]
    limit: dict[str, Any]


class Place(NamedTuple):
    """An empty store, and what shows what is stored in it."""

    url: str
    look: Callable[[], Stored]


def _file(path: Path) -> Stored:
    with closing(sqlite3.connect(path)) as db:
        then = dict(db.execute("SELECT id, record FROM holdfast_then"))
        now = dict(db.execute("SELECT id, version || rest FROM holdfast2_jobs"))
        now |= dict(db.execute("SELECT id, record FROM holdfast2_archive"))
        limits = db.execute("SELECT value FROM holdfast2_rows WHERE tbl = 'limit'").fetchall()
    return Stored(then, now, json.loads(limits[0][0]) if limits else {})


def _sqlite(request: pytest.FixtureRequest, folder: Path) -> Place:
    path = folder / "jobs.db"
    return Place(f"sqlite:///{path}", lambda: _file(path))


def _sharded(request: pytest.FixtureRequest, folder: Path) -> Place:
    def look() -> Stored:
        one, other = map(_file, (folder / "jobs").glob("*.db"))
        return Stored(one.then | other.then, one.now | other.now, one.limit | other.limit)

    return Place(f"sqlite:///{folder / 'jobs'}?shards=2", look)


def _postgres(request: pytest.FixtureRequest, folder: Path) -> Place:
    postgres, schema = request.getfixturevalue("postgres"), "up_" + folder.name[-40:].replace("-", "_")

    def look() -> Stored:
        with postgres.connect() as connection:

            def ask(sql: str) -> dict[Any, Any]:
                return dict(connection.execute(sql.replace("IN", f'FROM "{schema}"')).fetchall())

            now = ask("SELECT id, version || rest IN.jobs") | ask("SELECT id, record IN.archive")
            limits = ask("SELECT key, value IN.rows WHERE tbl = 'limit'")
            return Stored(ask("SELECT id, record IN.then"), now, json.loads(*limits.values()))

    return Place(postgres.url(schema), look)


def _redis(fixture: str) -> Callable[[pytest.FixtureRequest, Path], Place]:
    def make(request: pytest.FixtureRequest, folder: Path) -> Place:
        url = request.getfixturevalue(fixture).url()
        address = parse(url)
        keys = Keys(address.prefix)

        def look() -> Stored:
            with closing(server_of(address, keys.base)) as server:

                def ask(*names: bytes) -> dict[bytes, bytes]:
                    flat = [word for name in names for word in server.call(b"HGETALL", keys.base + name)]
                    return dict(zip(flat[::2], flat[1::2], strict=True))

                def records(*names: bytes) -> dict[int, str]:
                    return {int(id): record_of(raw).decode() for id, raw in ask(*names).items()}

                (limit,) = ask(b"rows:limit").values()
                then, now = records(b"then_jobs", b"then_archive"), records(b"jobs", b"archive")
                return Stored(then, now, json.loads(limit[STAMP_BYTES:]))

        return Place(url, look)

    return make


PLACES = {
    "sqlite": _sqlite,
    "sharded": _sharded,
    "postgres": _postgres,
    "redis": _redis("redis_server"),
    "cluster": _redis("redis_cluster"),
}


# Here on SQLite, at length in `make proof`.
@pytest.fixture(params=here_and_in_proof(["sqlite"], PLACES))
def place(request, tmp_path):
    """An empty store of each kind."""
    return PLACES[request.param](request, tmp_path)


@pytest.fixture(scope="module")
def next_version(tmp_path_factory):
    """Makes the next version, which lets versions from `oldest` on write."""
    made: dict[int, Path] = {}

    def make(oldest: int) -> Path:
        if oldest not in made:
            made[oldest] = make_next_version(tmp_path_factory.mktemp("next"), oldest=oldest)
        return made[oldest]

    return make


class Load:
    """A process that adds, claims and finishes jobs, of this version or another, and what it has said."""

    def __init__(self, url: str, until: Path, package: Path = SRC) -> None:
        self.process = start("load", url, str(until), package=package)
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._lines.append("")
            self._changed.notify_all()

    def ids(self, verb: str) -> list[int]:
        """The jobs that it says it has added or done."""
        found = [line.split() for line in list(self._lines)]
        return [int(word) for words in found if words[:1] == [verb] for word in words[1:]]

    def wait(self, is_enough: Callable[["Load"], bool]) -> None:
        """Wait until it has said enough, or has ended."""
        with self._changed:
            assert self._changed.wait_for(lambda: is_enough(self) or self._lines[-1:] == [""], PATIENCE_S)

    def end(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and its last line."""
        code = self.process.wait(PATIENCE_S)
        self._thread.join()
        return code, (self._lines[-2] if len(self._lines) > 1 else "")

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def loads(place, tmp_path) -> Iterator[list[Load]]:
    """Two processes that use the store, until `tmp_path / "stop"` appears."""
    with ExitStack() as stack:
        started = []
        for _ in range(2):
            started.append(Load(place.url, tmp_path / "stop"))
            stack.callback(started[-1].close)
        for one in started:
            one.wait(lambda load: len(load.ids("done")) >= BEFORE)
        yield started


def upgrade(place: Place, package: Path) -> list[int]:
    """Migrate the store by the next version; the jobs that it has added."""
    with start("upgrade", place.url, package=package) as process:
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    return [int(word) for word in said.split()[1:]]


def claimed(queue: holdfast.Queue) -> Any:
    """The job that waits no longer."""
    (job,) = queue.claim(["later"], renew=False)
    return job


@pytest.mark.proof
def test_processes_that_may_not_write_a_new_layout_write_nothing_after_it(
    place, loads, next_version, tmp_path
):
    """They end with both versions and what to do; what they added before is there. None can open it later."""
    added = upgrade(place, next_version(oldest=2))

    for load in loads:
        code, said = load.end()
        assert (code, NEWER in said) == (3, True), said
    stored = place.look()
    assert {id: record for id, record in stored.now.items() if id not in added} == stored.then
    assert {*loads[0].ids("added"), *loads[1].ids("added"), *added} <= stored.now.keys()
    with closing(Load(place.url, tmp_path / "stop", next_version(oldest=2))) as newer:
        newer.wait(lambda load: len(load.ids("done")) >= BEFORE)
        with holdfast.connect(place.url) as late:
            for use in (lambda: late.add("refused"), late.counts):
                with pytest.raises(holdfast.SchemaMismatch) as refused:
                    use()
                assert NEWER in str(refused.value)
        (tmp_path / "stop").touch()
        assert newer.end()[0] == 0
    assert not any('"task":"refused"' in record for record in place.look().now.values())


@pytest.mark.proof
def test_processes_that_may_write_a_new_layout_keep_its_fields(place, loads, next_version, tmp_path):
    """Nothing is lost; the fields that they do not know outlive whatever they do to a job or a limit."""
    *added, waiting = upgrade(place, next_version(oldest=1))

    for load in loads:
        load.wait(lambda _: {*added} <= {*loads[0].ids("done"), *loads[1].ids("done")})
    with closing(Load(place.url, tmp_path / "stop", next_version(oldest=1))) as newer:
        newer.wait(lambda load: len(load.ids("done")) >= BEFORE)
        (tmp_path / "stop").touch()
        assert [load.end()[0] for load in (*loads, newer)] == [0, 0, 0]
    stored = place.look()
    assert {*loads[0].ids("added"), *loads[1].ids("added")} <= stored.now.keys()
    colored = [stored.now[id].partition("{")[2] for id in (*added, *newer.ids("added"))]
    assert {'"color":"red"' in record for record in colored} == {True}
    assert (stored.limit["rate"], stored.limit["note"]) == (7, "new")
    with holdfast.connect(place.url) as queue:
        assert {queue.get(id).state for id in added} == {"FINISHED"}
        for change in (
            lambda: queue.update(waiting, data={"n": 3}, priority=900),
            lambda: queue.requeue(waiting),
            lambda: claimed(queue).retry(),
            lambda: queue.requeue(waiting),
            lambda: claimed(queue).fail("on purpose"),
        ):
            assert change().id == waiting
            assert '"color":"red"' in place.look().now[waiting]
    words = [sys.executable, "-m", "holdfast", "move", place.url, f"sqlite:///{tmp_path / 'moved.db'}"]
    moved = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "a move would lose fields" in moved.stderr


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_worker_that_may_not_write_a_new_layout_ends_at_once(request, tmp_path, next_version, kind):
    """With the reason. Its handler is stopped, since its result cannot be stored; another runs the job."""
    place = PLACES[kind](request, tmp_path)
    bench = Bench(tmp_path, place.url)
    try:
        worker = bench.start("--drain-timeout", "1h")
        job = bench.queue.add("gated")
        bench.wait_for(lambda: bool(bench.noted("gated")))

        upgrade(place, next_version(oldest=2))

        _, said = worker.communicate(timeout=PATIENCE_S)
        assert worker.returncode != 0
        assert NEWER in said
        assert is_gone(bench.noted("gated")[0])
        assert place.look().now[job.id] == place.look().then[job.id]
    finally:
        bench.close()


@pytest.mark.parametrize("kind", PLACES)
def test_a_store_from_before_the_first_release_says_that_it_is_old(request, tmp_path, kind):
    """Not that it is newer, nor damaged; and how its jobs can be done."""
    place = PLACES[kind](request, tmp_path)
    with holdfast.connect(place.url) as queue:
        queue.add("work")
        queue.counts()
    make_old(request, place, tmp_path)

    with holdfast.connect(place.url) as queue, pytest.raises(holdfast.SchemaMismatch) as refused:
        queue.add("work")

    assert "is too old: it has layout 4 from before the first release" in str(refused.value)
    assert "let the Holdfast that wrote it finish its jobs" in str(refused.value)


def make_old(request: pytest.FixtureRequest, place: Place, folder: Path) -> None:
    """Let a store have only a number, as those of older versions."""
    if place.url.startswith("sqlite"):
        for path in folder.rglob("*.db"):
            with closing(sqlite3.connect(path)) as db:
                db.executescript(
                    "ALTER TABLE holdfast_schema DROP COLUMN oldest; UPDATE holdfast_schema SET version = 4"
                )
    elif place.url.startswith("postgresql"):
        schema = place.url.partition("schema=")[2]
        with request.getfixturevalue("postgres").connect() as connection:
            connection.execute(f'ALTER TABLE "{schema}".version DROP COLUMN oldest')
            connection.execute(f'UPDATE "{schema}".version SET version = 4')
    else:
        keys = Keys(parse(place.url).prefix)
        with closing(server_of(parse(place.url), keys.base)) as server:
            server.call(b"SET", keys.version, b"4")


def test_unknown_fields_are_kept_at_every_depth():
    """Those of records inside a record, too; a known field that is back at its default does not return."""
    old = {
        "id": 1,
        "task": "t",
        "color": "red",
        "lapsed": True,
        "backoff": {"first_ms": 5, "shape": "x"},
        "errors": [{"code": "error", "at": 1, "host": "a"}, {"code": "error", "at": 2, "host": "b"}],
    }
    new = {"id": 1, "task": "t", "backoff": {"first_ms": 7}, "errors": [{"code": "error", "at": 2}]}

    kept = keep_unknown(json.dumps(old), json.dumps(new), Job)

    assert kept is not None
    assert json.loads(kept) == {
        "id": 1,
        "task": "t",
        "color": "red",
        "backoff": {"first_ms": 7, "shape": "x"},
        "errors": [{"code": "error", "at": 2, "host": "b"}],
    }
    assert keep_unknown(b'{"code":"ok","at":1}', b'{"code":"ok","at":2}', Outcome) is None
    assert keep_unknown(b"\xff", b"{}", Job) is None
    pairs = (b'{"limits":[["YQ==",{"rate":1,"note":"x"}]]}', b'{"limits":[["Yg==",{}],["YQ==",{"rate":2}]]}')
    assert json.loads(keep_unknown(*pairs, Patterns) or b"") == {
        "limits": [["Yg==", {}], ["YQ==", {"rate": 2, "note": "x"}]]
    }
