"""Progress: one number in the store, strictly forward."""

import sqlite3

import pytest

from holdfast.core.errors import Backwards, BadInput, NotFound
from holdfast.indexed import Consumer, ConsumerGroup, Log, Progress, consumers, set_by_hand
from holdfast.queue.queue import Queue
from holdfast.store.sqlite.store import SqliteStore
from tests.indexed.tools import PATIENCE_S, Hands, Numbers, in_threads


def test_it_is_created_once(queue, make_queue):
    """The first start counts; later ones are ignored, in other processes too."""
    assert Progress(queue, "c", start=7).initialize() == 7
    assert Progress(queue, "c", start=9).initialize() == 7
    assert Progress(make_queue(), "c").initialize() == 7


def test_many_at_once_create_it_once(queue):
    """All see the same start."""
    starts = in_threads(20, lambda n: Progress(queue, "c", start=n).initialize())

    assert len(set(starts)) == 1


def test_it_cannot_be_used_before_it_exists(queue):
    """By name."""
    with pytest.raises(NotFound, match="consumer c"):
        Progress(queue, "c").processed()
    with pytest.raises(NotFound, match="consumer c"):
        Progress(queue, "c").move(5)


def test_it_goes_forward_only(queue, make_queue):
    """Back is refused with both numbers; the same is nothing."""
    progress = Progress(queue, "c")
    progress.initialize()
    progress.move(5)

    with pytest.raises(Backwards, match=r"to 4.*at 5"):
        progress.move(4)

    assert progress.move(5) == 5
    assert Progress(make_queue(), "c").processed() == 5


def test_names_and_tenants_are_apart(make_queue):
    """Several consumers in one store."""
    one, other = make_queue(), make_queue(tenant="other")
    for queue, name, to in ((one, "a", 1), (one, "b", 2), (other, "a", 3)):
        progress = Progress(queue, name)
        progress.initialize()
        progress.move(to)

    assert {name: mark.processed for name, mark in consumers(one).items()} == {"a": 1, "b": 2}
    assert {name: mark.processed for name, mark in consumers(other).items()} == {"a": 3}


def test_by_hand_it_goes_anywhere(queue):
    """And whoever began before that is refused from then on."""
    old = Progress(queue, "c")
    old.initialize()
    old.move(10)

    assert set_by_hand(queue, "c", 4).processed == 4

    with pytest.raises(Backwards, match="by hand"):
        old.move(11)
    new = Progress(queue, "c")
    assert new.initialize() == 4
    assert new.move(5) == 5


@pytest.mark.parametrize("index", [-1, 1 << 63, True, "5", None])
def test_what_is_no_index_is_refused(queue, index):
    """Before anything is written."""
    progress = Progress(queue, "c")
    progress.initialize()

    with pytest.raises(BadInput):
        progress.move(index)
    with pytest.raises(BadInput):
        Progress(queue, "d", start="x")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="consumer"):
        Progress(queue, "")


def test_nothing_is_written_when_nothing_moved(queue):
    """A check that finds nothing, a report that is repeated."""
    hands = Hands()
    consumer = Consumer(Numbers(2), Progress(queue, "c"), hands, max_processing=2)
    writes: list[int] = []
    move = consumer.progress.move

    def noted(to, **options):
        writes.append(to)
        return move(to, **options)

    consumer.progress.move = noted  # type: ignore[method-assign]
    consumer.start()
    assert hands.got([1, 2])

    for _ in range(5):
        consumer.check()
    consumer.done("2")
    consumer.done("2")
    consumer.done("1")
    consumer.check()
    consumer.stop()

    assert writes == [2]


# In the worker's own transaction: the stores that have connections.


@pytest.fixture
def shared(tmp_path):
    """A queue, and a connection of the application's to the same file."""
    queue = Queue(lambda: SqliteStore(tmp_path / "jobs.db"), url="jobs.db")
    queue.counts()
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA busy_timeout = 60000")
    connection.execute("CREATE TABLE output (item INTEGER)")
    yield queue, connection
    connection.close()
    queue.close()


def test_output_and_progress_are_one_transaction(shared):
    """Committed together, and then believed."""
    queue, connection = shared

    def run(job):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO output VALUES (?)", (job.item,))
        before = group.done(job.id, connection=connection)
        assert before < job.index
        connection.execute("COMMIT")

    group = ConsumerGroup(Numbers(5), Progress(queue, "c"), run, max_ahead=1, max_processing=4)
    with group:
        while group.processed < 5 and not group.closed().is_set():
            group.closed().wait(0.01)

    assert [row[0] for row in connection.execute("SELECT item FROM output")] == [1, 2, 3, 4, 5]
    assert Progress(queue, "c").processed() == 5


def test_a_transaction_that_was_rolled_back_is_not_believed(shared):
    """Neither output nor progress is there, and the owner is told."""
    queue, connection = shared

    def run(job):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO output VALUES (?)", (job.item,))
        group.done(job.id, connection=connection)
        connection.execute("COMMIT" if job.index < 3 else "ROLLBACK")

    group = ConsumerGroup(Numbers(5), Progress(queue, "c"), run, max_ahead=1)
    group.start()

    with pytest.raises(Backwards, match="not committed"):
        group.closed().wait(PATIENCE_S)
    group.stop()
    assert [row[0] for row in connection.execute("SELECT item FROM output")] == [1, 2]
    assert Progress(queue, "c").processed() == group.processed == 2


def test_a_plain_consumer_is_told_again_after_the_commit(shared):
    """The first report moves nothing in memory, the second looks."""
    queue, connection = shared
    hands = Hands()
    consumer = Consumer(Numbers(5), Progress(queue, "c"), hands, max_ahead=1)
    consumer.start()
    assert hands.got([1])

    connection.execute("BEGIN IMMEDIATE")
    assert consumer.done("1", connection=connection) == 0
    assert Progress(queue, "c").processed() == 0
    connection.execute("COMMIT")

    assert consumer.done("1") == 1
    assert hands.got([1, 2])
    consumer.stop()


def test_a_connection_needs_one_at_a_time(queue):
    """With more in flight the next index need not be the one that is done."""
    consumer = Consumer(Numbers(5), Progress(queue, "c"), Hands(), max_ahead=2)

    with pytest.raises(BadInput, match="max_ahead=1"):
        consumer.done("1", connection=object())


def test_a_log_that_was_trimmed_is_no_place_to_begin(queue):
    """Nor to be set back to."""
    log = Log(queue, "l", int)
    log.append_many(range(10))
    reader = Progress(queue, "r")
    reader.initialize(log="l")
    reader.move(6)
    assert log.trim() == 6

    with pytest.raises(BadInput, match=r"start of consumer new.*6 or more"):
        Progress(queue, "new").initialize(log="l")
    with pytest.raises(BadInput, match="6 or more"):
        set_by_hand(queue, "r", 5)
    assert Progress(queue, "new", start=6).initialize(log="l") == 6
