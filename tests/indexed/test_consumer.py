"""The rules of a consumer, one by one, for threads and asyncio, on every store."""

import threading

import pytest

from holdfast.indexed import AlreadyStarted, Progress
from tests.indexed.tools import PATIENCE_S, Hands, Numbers, Until, in_threads


def test_what_there_is_begins_at_the_start(make_consumer):
    """As many as there are workers, from the progress plus one, with no check."""
    hands = Hands()
    consumer = make_consumer(Numbers(9), hands, start=3, max_processing=2)

    consumer.start()

    assert hands.got([4, 5])
    assert (consumer.processed, consumer.size) == (3, 2)
    assert consumer.ready().wait(PATIENCE_S)


def test_nothing_is_done_before_the_start(make_consumer, queue):
    """An early check touches neither the source nor what is stored, and a stop is no end."""
    hands, source = Hands(), Numbers(3)
    consumer = make_consumer(source, hands, max_processing=1)

    consumer.check()
    consumer.stop()

    assert source.asked == []
    consumer.start()
    assert hands.got([1])


def test_it_starts_once(make_consumer):
    """Not again after that, nor after its end."""
    consumer = make_consumer(Numbers(0), Hands())
    consumer.start()

    with pytest.raises(AlreadyStarted):
        consumer.start()
    consumer.stop()
    with pytest.raises(AlreadyStarted):
        consumer.start()


def test_a_report_moves_p_and_brings_the_next(make_consumer, queue):
    """In memory and in the store, before it returns."""
    hands = Hands()
    consumer = make_consumer(Numbers(9), hands, max_processing=1)
    consumer.start()
    assert hands.got([1])

    assert consumer.done("1") == 1

    assert Progress(queue, "c").processed() == 1
    assert hands.got([1, 2])
    assert consumer.size == 1


def test_p_stays_below_what_is_not_finished(make_consumer, queue):
    """Jobs that finish early wait for it, and are folded at once when it comes."""
    hands = Hands()
    consumer = make_consumer(Numbers(4), hands, max_processing=4)
    consumer.start()
    assert hands.got([1, 2, 3, 4])

    early = [consumer.done(id) for id in ("3", "2")]
    assert consumer.size == 4
    last = consumer.done("1")

    assert (early, last) == ([0, 0], 3)
    assert Progress(queue, "c").processed() == 3
    assert consumer.size == 1


def test_unknown_and_repeated_reports_change_nothing(make_consumer):
    """Never issued, not yet issued, reported before, long past."""
    hands = Hands()
    consumer = make_consumer(Numbers(9), hands, max_processing=2)
    consumer.start()
    consumer.done("1")
    assert hands.got([1, 2, 3])

    assert [consumer.done(id) for id in ("1", "no", "9", "1")] == [1, 1, 1, 1]
    consumer.done("3")
    assert hands.got([1, 2, 3, 4])
    assert [consumer.done(id) for id in ("3", "3")] == [1, 1]

    assert hands.got([1, 2, 3, 4])
    assert consumer.size == 3


def test_no_more_run_at_once_than_allowed(make_consumer):
    """A report makes room for one."""
    hands = Hands()
    consumer = make_consumer(Numbers(100), hands, max_processing=3)
    consumer.start()

    assert hands.got([1, 2, 3])
    consumer.check()
    consumer.done("2")
    assert hands.got([1, 2, 3, 4])


def test_a_first_job_that_never_ends_holds_the_window(make_consumer):
    """With a window of 5 exactly five indexes are handed out, that one among them."""
    hands = Hands()
    consumer = make_consumer(Numbers(100), hands, max_processing=3, max_ahead=5)
    consumer.start()
    assert hands.got([1, 2, 3])

    for id in ("2", "3"):
        consumer.done(id)
    assert hands.got([1, 2, 3, 4, 5])
    for id in ("4", "5"):
        consumer.done(id)
    consumer.check()

    assert hands.got([1, 2, 3, 4, 5])
    assert (consumer.processed, consumer.size) == (0, 5)
    assert consumer.done("1") == 5
    assert hands.got([*range(1, 9)])


def test_one_ahead_is_strictly_in_order(make_consumer):
    """Whatever the number of workers."""
    hands = Hands()
    consumer = make_consumer(Numbers(3), hands, max_processing=9, max_ahead=1)
    consumer.start()

    for index in (1, 2, 3):
        assert hands.got(range(1, index + 1))
        assert consumer.done(str(index)) == index


def test_without_workers_nothing_moves(make_consumer, queue):
    """Neither jobs nor P."""
    hands = Hands()
    consumer = make_consumer(Numbers(3), hands, max_processing=0)

    consumer.start()
    consumer.check()

    assert hands.got([])
    assert consumer.processed == 0


def test_a_hole_is_waited_for(make_consumer):
    """What lies behind it is seen once it is filled."""
    hands, source = Hands(), Numbers(4)
    source.holes = {2}
    consumer = make_consumer(source, hands, max_processing=9)
    consumer.start()
    assert hands.got([1])
    consumer.check()
    assert hands.got([1])

    source.holes = set()
    consumer.check()

    assert hands.got([1, 2, 3, 4])


def test_new_work_is_found_by_a_check(make_consumer):
    """From the head on."""
    hands, source = Hands(), Numbers(0)
    consumer = make_consumer(source, hands, max_processing=9)
    consumer.start()
    assert hands.got([])

    source.last = 2
    consumer.check()

    assert hands.got([1, 2])


def test_the_head_bounds_what_is_asked_for(make_consumer):
    """Beyond it the source is not even asked."""
    hands, source = Hands(), Numbers(2)
    consumer = make_consumer(source, hands, max_processing=9)

    consumer.start()

    assert hands.got([1, 2])
    assert source.asked == [1, 2]


def test_a_stopped_consumer_hands_out_nothing_but_still_counts(make_consumer, queue):
    """What ran is reported later, and P moves; a check does no harm."""
    hands = Hands()
    consumer = make_consumer(Numbers(9), hands, max_processing=2)
    consumer.start()
    assert hands.got([1, 2])

    consumer.stop()
    consumer.stop()
    assert consumer.closed().wait(PATIENCE_S)
    assert consumer.done("1") == 1
    consumer.check()

    assert hands.got([1, 2])
    assert Progress(queue, "c").processed() == 1


def test_advances_are_told_once_each_without_a_gap(make_consumer, queue):
    """After P was written."""
    hands, told = Hands(), []
    consumer = make_consumer(
        Numbers(5),
        hands,
        max_processing=5,
        on_advance=lambda old, new: told.append((old, new, Progress(queue, "c").processed() >= new)),
    )
    consumer.start()
    assert hands.got([1, 2, 3, 4, 5])

    for id in ("2", "1", "5", "3", "4"):
        consumer.done(id)

    Until().wait(lambda: len(told) == 3)
    assert told == [(0, 2, True), (2, 3, True), (3, 5, True)]


def test_progress_goes_on_where_it_was(make_consumer):
    """What finished early above P runs again."""
    first, second = Hands(), Hands()
    consumer = make_consumer(Numbers(9), first, max_processing=4)
    consumer.start()
    assert first.got([1, 2, 3, 4])
    consumer.done("1")
    consumer.done("3")
    consumer.stop()

    again = make_consumer(Numbers(9), second, max_processing=3)
    again.start()

    assert second.got([2, 3, 4])
    assert again.processed == 1


def test_a_hundred_threads_report_and_check(make_consumer, queue):
    """Every index is handed out once, and P ends at the last."""
    handed = {index: threading.Event() for index in range(1, 1001)}
    hands = Hands()

    def run(job):
        hands(job)
        handed[job.index].set()

    consumer = make_consumer(Numbers(1000), run, max_processing=50)
    consumer.start()

    def work(n):
        for index in range(n + 1, 1001, 100):
            assert handed[index].wait(PATIENCE_S)
            consumer.check()
            consumer.done(str(index))

    in_threads(100, work)

    assert sorted(hands.given) == list(range(1, 1001))
    assert consumer.processed == Progress(queue, "c").processed() == 1000
    assert consumer.size == 0


def test_a_check_during_a_walk_is_not_lost(make_consumer):
    """What appears after the walk has looked, and before it has ended, is found."""
    hands = Hands()

    class Sly(Numbers):
        """Grows, and says so, while it is being walked over."""

        def head(self):
            head = self.last
            if head == 1 and hands.given == []:
                self.last = 2
                consumer.check()
            return head

    source = Sly(1)
    consumer = make_consumer(source, hands, max_processing=9)
    consumer.start()

    assert hands.got([1, 2])
