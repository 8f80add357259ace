"""What goes wrong in a consumer: what is tried again, what is the owner's, what is refused."""

import pytest

from holdfast.core.errors import Backwards, BadInput, Unavailable
from holdfast.indexed import IndexedJob, Progress, set_by_hand
from tests.indexed.tools import PATIENCE_S, Hands, Numbers, Until


def test_an_error_of_the_source_is_tried_again_and_holds_up_no_progress(make_consumer, queue):
    """A job that is reported meanwhile counts."""
    hands, source = Hands(), Numbers(9)
    consumer = make_consumer(source, hands, max_processing=1)
    consumer.start()
    assert hands.got([1])

    source.broken = OSError("the disk is away")
    assert consumer.done("1") == 1
    assert Progress(queue, "c").processed() == 1
    assert isinstance(consumer.trouble, OSError)
    source.broken = None
    consumer.check()

    assert hands.got([1, 2])
    Until().wait(lambda: consumer.trouble is None)


def test_jobs_before_one_that_cannot_be_read_are_started(make_consumer):
    """However many may run at once."""

    class Broken(Numbers):
        def at(self, index):
            if index == 3:
                raise OSError("not now")
            return super().at(index)

    hands = Hands()
    consumer = make_consumer(Broken(9), hands, max_processing=9)
    consumer.start()

    assert hands.got([1, 2])
    assert isinstance(consumer.trouble, OSError)


def test_progress_that_could_not_be_written_is_written_by_the_stop(make_consumer, queue, monkeypatch):
    """The source need not answer for that."""
    hands, source = Hands(), Numbers(1)
    consumer = make_consumer(source, hands)
    consumer.start()
    assert hands.got([1])

    def fail(*_: object, **__: object) -> None:
        raise Unavailable("not now")

    with monkeypatch.context() as patch:
        patch.setattr(consumer.progress, "move", fail)
        assert consumer.done("1") == 0
    source.broken = OSError("the disk is away")
    consumer.stop()

    assert Progress(queue, "c").processed() == 1


def test_an_error_of_the_worker_is_the_owners(make_consumer, queue):
    """It stops the consumer, and the job is not done."""
    hands = Hands()

    def run(job):
        hands(job)
        if job.index == 2:
            raise ZeroDivisionError("two")

    consumer = make_consumer(Numbers(9), run, max_processing=2)
    consumer.start()

    with pytest.raises(ZeroDivisionError):
        consumer.closed().wait(PATIENCE_S)
    assert isinstance(consumer.error, ZeroDivisionError)
    assert consumer.done("1") == 1
    assert hands.got([1, 2])
    assert Progress(queue, "c").processed() == 1


def test_two_jobs_of_one_id_are_reported(make_consumer):
    """By both indexes; nothing is stuck in silence."""
    consumer = make_consumer(
        Numbers(9, name=lambda n: "same" if n in (2, 3) else str(n)), Hands(), max_processing=9
    )

    consumer.start()

    with pytest.raises(BadInput, match=r"index 3.*same.*at 2"):
        consumer.closed().wait(PATIENCE_S)


def test_what_is_no_job_is_reported(make_consumer):
    """By its type and what was needed."""

    class Wrong(Numbers):
        def at(self, index):
            return index

    consumer = make_consumer(Wrong(1), Hands())

    consumer.start()

    with pytest.raises(BadInput, match=r"at 1 is 'int'.*IndexedJob"):
        consumer.closed().wait(PATIENCE_S)


def test_progress_set_by_hand_stops_a_consumer(make_consumer, queue):
    """Its next write is refused, and the owner is told why."""
    hands = Hands()
    consumer = make_consumer(Numbers(9), hands, max_processing=1)
    consumer.start()
    assert hands.got([1])

    set_by_hand(queue, "c", 0)
    consumer.done("1")

    with pytest.raises(Exception, match="by hand"):
        consumer.closed().wait(PATIENCE_S)
    assert Progress(queue, "c").processed() == 0


def test_progress_set_by_hand_stops_an_idle_consumer_too(make_consumer, queue):
    """It has nothing to write, so it compares when it is told that something has moved."""
    consumer = make_consumer(Numbers(0), Hands())
    consumer.start()

    set_by_hand(queue, "c", 5)
    consumer.check()

    with pytest.raises(Backwards, match="set to 5 by hand"):
        consumer.closed().wait(PATIENCE_S)


def test_the_slower_of_two_of_one_name_is_stopped(make_consumer, queue):
    """The larger number is true, and stands."""
    hands = Hands()
    slow = make_consumer(Numbers(9), hands, max_processing=1)
    slow.start()
    other = Progress(queue, "c")
    other.initialize()
    other.move(5)

    slow.done("1")

    with pytest.raises(Exception, match=r"at 5 already"):
        slow.closed().wait(PATIENCE_S)
    assert Progress(queue, "c").processed() == 5


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_processing": -1}, "max_processing"),
        ({"max_processing": True}, "max_processing"),
        ({"max_ahead": "5"}, "max_ahead"),
    ],
)
def test_bad_limits_are_refused(make_consumer, options, match):
    """By name."""
    with pytest.raises(BadInput, match=match):
        make_consumer(Numbers(1), Hands(), **options)


def test_a_job_with_another_index_is_refused(make_consumer):
    """A source that mixes them up would have jobs skipped."""

    class Mixed(Numbers):
        def at(self, index):
            return IndexedJob(str(index), index, index + 1)

    consumer = make_consumer(Mixed(3), Hands())
    consumer.start()

    with pytest.raises(BadInput, match="index of the job at 1"):
        consumer.closed().wait(PATIENCE_S)


def test_a_write_that_fails_is_made_up_for(make_consumer, queue, monkeypatch):
    """P stays as it was, jobs go on, and the next look writes it."""
    hands = Hands()
    consumer = make_consumer(Numbers(9), hands, max_processing=1)
    consumer.start()
    assert hands.got([1])
    move = type(consumer.progress).move
    failures: list[int] = []

    def failing(self, to, **options):
        if not failures:
            failures.append(to)
            raise Unavailable("not now")
        return move(self, to, **options)

    monkeypatch.setattr(type(consumer.progress), "move", failing)

    assert consumer.done("1") == 0
    assert hands.got([1, 2])
    assert consumer.done("2") == 2
    assert Progress(queue, "c").processed() == 2
