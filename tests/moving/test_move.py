"""A move between any two stores: what is there afterwards, and what whoever is there meanwhile sees."""

import threading

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import Moved, Stopped
from holdfast.core.indexed import LogItem
from holdfast.core.kinds import DOMAIN, LOG_ITEMS, LOG_KEYS, UNIQUE, log_table, name_of
from holdfast.core.moving import Standing
from holdfast.engine.migrate import parts
from tests.moving.filled import check_same, fill, make_queue, seen, standing_of

LOG = name_of("", "events")


def test_everything_is_there_as_it_was(two, opened):
    """Jobs, bodies, claims, leases, domains, keys, limits, logs, counts, and all orders."""
    queue = opened(make_queue(two.open_source))
    fill(queue)
    source, target = opened(two.open_source()), opened(two.open_target())

    summary = two.move(source, target).run()

    check_same(target, source)
    assert all(seen(target).values())
    tables = (DOMAIN, UNIQUE, "limit", "patterns", log_table(LOG_ITEMS, LOG), log_table(LOG_KEYS, LOG))
    assert all(summary.rows[table] for table in tables)
    assert summary.rows["jobs"] > 15
    assert summary.rows["archive"] >= 3
    assert (standing_of(source), standing_of(target)) == (Standing.MOVED, Standing.OPEN)


def test_every_verb_of_the_old_store_says_where_to(two, opened):
    """Also of a queue that was open all the time, and whether it looks or writes."""
    queue = opened(make_queue(two.open_source))
    fill(queue)
    (job, *_) = queue.jobs()
    two.move(opened(two.open_source()), opened(two.open_target())).run()

    verbs = [
        lambda: queue.add("x"),
        queue.next,
        lambda: queue.get(job),
        queue.jobs,
        queue.counts,
        lambda: queue.result(job),
        lambda: queue.cancel(job),
        lambda: queue.limit("x", rate=1),
        queue.schedules,
        lambda: queue.why(job),
    ]
    for verb in verbs:
        with pytest.raises(Moved, match="this store has moved to there; use that address") as told:
            verb()
        assert told.value.address == "there"


def test_work_goes_on_at_the_new_address(two, opened):
    """Claims end under their owners, rates and keys hold, schedules fire once, results are there, ids new."""
    queue = opened(make_queue(two.open_source))
    running = fill(queue)
    ended = queue.jobs(archived=True)
    known = {job.id for job in (*queue.jobs(limit=1000), *ended)}
    two.move(opened(two.open_source()), opened(two.open_target())).run()
    new = opened(make_queue(two.open_target))

    for job in running:
        new.connection.ask(c.Answer(hold=c.hold_of(job), result='"done"'))
        assert new.result(job.id) == "done"
    assert [new.result(job.id) for job in ended] == [b"\xff\x00", "", {"ok": True}]
    assert new.claim(["resize"], limit=9, renew=False) == []
    assert {new.add("kept", unique="held").id, new.add("once", unique="k").id} <= known
    assert {new.add("fresh").id for _ in range(100)}.isdisjoint(known)
    two.clock.advance(2_000)
    assert len(new.claim(["resize"], limit=9, renew=False)) == 1
    two.clock.advance(3_600_000)
    assert len(new.claim(["sweep"], limit=9, renew=False)) == 1
    assert new.connection.ask(c.Append(log="events", items=(LogItem(data="x", key=b"3"),))) == [(3, False)]


def test_a_second_run_after_the_end_changes_nothing(two, opened):
    """It says what the first one did, whatever has become of the new store since."""
    fill(opened(make_queue(two.open_source)))
    source, target = opened(two.open_source()), opened(two.open_target())
    first = two.move(source, target).run()
    opened(make_queue(two.open_target)).add("since then")
    before = seen(target)

    again = two.move(source, target).run()

    assert (again.digest, again.rows) == (first.digest, {})
    assert seen(target) == before


def test_what_is_written_meanwhile_is_there_too(two, opened):
    """Between the walks jobs come, run, end and go, and records change."""
    queue = opened(make_queue(two.open_source))
    fill(queue)
    source, target = opened(two.open_source()), opened(two.open_target())
    busy = iter(range(1_000))

    def meanwhile(part: str, _rows: int, _written: int) -> None:
        if standing_of(source) != Standing.COPYING:
            return
        n = next(busy)
        queue.add("added", {"n": n}, unique=f"{n % 7}", domain="cdn")
        if n % 2 and (job := queue.next(["plain", "added", "call"], renew=False)):
            job.done({"n": n})
        if n % 5 == 0:
            queue.limit(f"d{n}", rate=1)
            queue.connection.ask(c.Append(log="events", items=(LogItem(data=f"{n}", key=b"n%d" % n),)))
            queue.connection.ask(c.TrimLog(log="events", up_to=n))
        if n % 11 == 0:
            for old in queue.jobs(archived=True, limit=1):
                queue.delete(old)

    two.move(source, target, tell=meanwhile).run()

    assert next(busy) > 20
    check_same(target, source)


def test_while_it_stands_still_writers_wait_and_readers_read(two, opened, impatient):
    """Whoever writes is told to try again, if it takes too long."""
    queue = opened(make_queue(two.open_source))
    fill(queue)
    source = opened(two.open_source())
    found = []

    def meanwhile(part: str, _rows: int, _written: int) -> None:
        if standing_of(source) == Standing.STOPPED:
            with pytest.raises(Stopped, match="try again in a moment"):
                queue.add("x")
            found.append(queue.counts())

    two.move(source, opened(two.open_target()), tell=meanwhile).run()

    assert found


def test_a_writer_that_waits_is_answered_at_the_end(files, opened):
    """`add` takes longer and is then told where to; nothing of it was written."""
    queue = opened(make_queue(files.open_source))
    fill(queue)
    source, target = opened(files.open_source()), opened(files.open_target())
    move = files.move(source, target)
    move.begin()
    move._stop()
    told: list[BaseException] = []

    def add() -> None:
        try:
            queue.add("late")
        except Moved as error:
            told.append(error)

    thread = threading.Thread(target=add)
    thread.start()
    files.move(source, target).run()
    thread.join()

    assert len(told) == 1
    check_same(target, source)


def test_large_bodies_are_copied_a_few_at_a_time(files, opened, monkeypatch):
    """A transaction's worth, however many jobs a page has; the items of a log too."""
    monkeypatch.setattr(parts, "CLAIM_BYTES", 1_000)
    monkeypatch.setattr(parts, "BODIES_AT_ONCE", 1)
    queue = opened(make_queue(files.open_source))
    for n in range(10):
        queue.add("big", "x" * 400 + str(n))
        queue.add("done", "y" * 400)
        queue.connection.ask(c.Append(log="large", items=(LogItem(data="z" * 400),)))
    for job in queue.claim(["done"], limit=10, renew=False):
        job.done("z" * 400)
    source, target = opened(files.open_source()), opened(files.open_target())
    pages: list[tuple[str, int]] = []

    files.move(source, target, batch=100, tell=lambda part, count, _: pages.append((part, count))).run()

    check_same(target, source)
    large = ("jobs", log_table(LOG_ITEMS, name_of("", "large")))
    assert {part for part, _ in pages} >= {*large}
    assert max(count for part, count in pages if part in large) <= 3
