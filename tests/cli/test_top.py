"""`holdfast top`: one frame, for people and for programs; `workers` and `doctor --worker` without any."""

from holdfast.core.queries import GetOverview
from holdfast.engine.queries import QUERIES
from holdfast.store.sqlite.store import SqliteStore


def test_a_frame_shows_depth_pauses_and_what_runs(shell):
    """What waits, what runs and how far, what is paused, who works."""
    first = shell.add("resize", "--priority", 900)
    for _ in range(3):
        shell.add("mail")
    shell.add("mail", "--delay", "1h")
    done = shell.add("done")
    shell.finish(done)
    shell.ok("pause", "--task", "mail")
    with shell.queue() as queue:
        (running,) = queue.claim(["resize"], renew=False)
        running.progress(0.25, "a quarter")

        frame = shell.ok("top", "--once", "--interval", "50ms").out
        record = shell.ok("top", "--json", "--interval", "50ms").record

    assert "0.0 finished/s" in frame
    assert "paused: task mail" in frame
    assert "no worker is alive" in frame
    rows = {line.split()[0]: line.split() for line in frame.splitlines() if line}
    assert rows["TASK"] == ["TASK", "WAITING", "SCHEDULED", "RUNNING", "PAUSED", "FINISHED", "FAILED"]
    assert rows["mail"] == ["mail", "3", "1", "–", "–", "–", "–"]
    assert rows[str(first)][1] == "resize"
    assert "25% a quarter" in frame
    assert record["tasks"]["mail"] == {"WAITING": 3, "SCHEDULED": 1}
    assert record["first_in_line"]["task"] == "mail"
    assert [job["id"] for job in record["running"]] == [str(first)]
    assert record["paused"] == ["task mail"]


def test_a_long_name_is_cut_and_the_header_is_not(shell):
    """On a screen of 80 columns."""
    shell.add("t" * 127)
    with shell.queue() as queue:
        queue.claim(renew=False)

        frame = shell.ok("top", "--once", "--interval", "50ms").out

    assert "TASK" in frame
    for state in ("WAITING", "SCHEDULED", "RUNNING", "PAUSED", "FINISHED", "FAILED", "STARTED", "CLAIM"):
        assert state in frame
    assert max(map(len, frame.splitlines())) <= 80


def test_a_frame_tells_how_fast_jobs_end(shell):
    """From the kept counts, between two looks; elsewhere jobs end meanwhile."""
    with shell.queue() as queue:
        queue.add_many([("work", n) for n in range(50)])
        before = queue.connection.ask(GetOverview())
        for job in queue.claim(limit=50, renew=False):
            job.done()
        after = queue.connection.ask(GetOverview())

    assert (before.count_ended("FINISHED"), after.count_ended("FINISHED")) == (0, 50)
    assert before.count_all() == after.count_all() == 50


def test_a_frame_costs_the_same_however_many_jobs_there_are(shell, monkeypatch):
    """It asks for counts, heads of indexes and small records, and for no list of jobs."""
    with shell.queue() as queue:
        queue.add_many([("work", n) for n in range(2_000)])
    asked: list[str] = []
    store = SqliteStore(shell.file)

    def seen(txn):
        return QUERIES[GetOverview](_Asked(txn, asked), GetOverview())

    frame = store.read(seen)
    store.close()

    assert frame.tasks == {"work": {"WAITING": 2_000}}
    assert sorted(asked) == ["first", "first", "heads", "present", "rows", "rows", "totals", "waiting"]


class _Asked:
    """A view that notes what is asked of it."""

    def __init__(self, txn, asked):
        self._txn, self._asked = txn, asked
        self.now_ms = txn.now_ms

    def __getattr__(self, name):
        self._asked.append(name)
        return getattr(self._txn, name)


def test_without_a_worker_none_is_listed_and_none_is_well(shell):
    """Each says so in its way."""
    shell.add("mail")

    assert shell.ok("workers").out == "no worker is alive\n"
    assert shell.ok("workers", "--json").out == ""
    said = shell.run("doctor", "--worker")
    assert (said.code, "no worker of this machine is alive" in said.out) == (1, True)
    missing = shell.run("doctor", "--worker", "nowhere.json", "--json")
    assert missing.code == 1
    assert "there is no health file nowhere.json" in missing.record["workers"][0]["text"]
    assert shell.ok("doctor").code == 0
