"""The walk against its invariant, and against the same thing said slowly."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.indexed.scan import Found, Ledger, Ranges, drive, drive_async, scan
from holdfast.indexed.source import IndexedJob

small = st.integers(0, 30)


def walk(running=(), finished=(), *, processed=0, max_processing=3, max_ahead=0, head=None, source=()):
    """One walk over a source of these indexes; what runs and what is finished leave no gap above P."""
    ranges = Ranges()
    for index in finished:
        ranges.add(index)
    found = drive(
        scan(
            ranges,
            processed=processed,
            running=len(running),
            next_index=max([processed, *running, *finished]) + 1,
            max_processing=max_processing,
            max_ahead=max_ahead,
            head=head,
        ),
        lambda index: IndexedJob(str(index), index, index) if index in source else None,
    )
    return [job.index for job in found.jobs], found.processed


def slowly(running, finished, *, processed, max_processing, max_ahead, source):
    """The walk as the specification says it, a step at a time."""
    jobs, busy, index = [], 0, processed + 1
    while True:
        if busy == max_processing or (max_ahead > 0 and index - processed > max_ahead):
            break
        if index in finished:
            if index == processed + 1:
                processed += 1
        elif index in running:
            busy += 1
        elif index in source:
            jobs.append(index)
            busy += 1
        else:
            break
        index += 1
    return jobs, processed


@st.composite
def situations(draw):
    """Where a consumer may stand: P, what runs and is finished above it, its limits, a source with holes."""
    processed = draw(small)
    above = list(enumerate(draw(st.lists(st.booleans(), max_size=20)), processed + 1))
    return {
        "running": {index for index, runs in above if runs},
        "finished": {index for index, runs in above if not runs},
        "processed": processed,
        "max_processing": draw(st.integers(0, 6)),
        "max_ahead": draw(st.integers(0, 12)),
        "source": draw(st.sets(st.integers(1, processed + 25)) | st.just(set(range(1, processed + 26)))),
    }


@given(situations())
def test_the_walk_is_what_the_specification_says(situation):
    """Over ranges it comes to what it comes to step by step."""
    expected = slowly(**situation)

    assert walk(**situation) == expected


@given(situations())
def test_the_walk_keeps_its_invariant(situation):
    """All four parts of it, whatever the situation."""
    running, finished, source = situation["running"], situation["finished"], situation["source"]
    most, ahead, before = situation["max_processing"], situation["max_ahead"], situation["processed"]

    jobs, after = walk(**situation)

    # 1. P goes over finished ones only, and stops at the first that is not.
    assert set(range(before + 1, after + 1)) <= finished
    assert after + 1 not in finished or most == 0
    # 2. No more at once than allowed.
    assert len(jobs) + len({index for index in running if index < max(jobs, default=0)}) <= most
    # 3. In order, new, in the window, nothing left out below.
    assert jobs == sorted(set(jobs))
    assert not set(jobs) & (running | finished)
    assert all(after < index and (not ahead or index <= after + ahead) for index in jobs)
    if jobs:
        assert set(range(after + 1, jobs[-1] + 1)) <= running | finished | set(jobs)
    # 4. It ended for a reason.
    last = max([*jobs, after])
    following = next(index for index in range(last + 1, 200) if index not in running | finished)
    busy = len(jobs) + len({index for index in running if index < following})
    assert following not in source or busy >= most or (ahead and following > after + ahead)


@given(st.lists(small, unique=True, max_size=31), st.lists(small, max_size=5))
def test_ranges_are_a_set(numbers, dropped):
    """In as few ranges as there are, whatever the order in which numbers come; a range goes as a whole."""
    ranges, kept = Ranges(), set(numbers)
    for number in numbers:
        ranges.add(number)
    for start in dropped:
        end = ranges.end_of(start)
        ranges.drop(start)
        kept -= set() if end is None else set(range(start, end + 1))

    starts = {number for number in kept if number - 1 not in kept}
    assert len(ranges) == len(starts)
    for number in range(-1, 32):
        end = ranges.end_of(number)
        assert (end is not None) == (number in starts)
        if end is not None:
            assert set(range(number, end + 1)) <= kept
            assert end + 1 not in kept


@given(
    st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=80),
    st.integers(1, 5),
    st.integers(0, 8),
    st.integers(0, 30),
)
def test_a_ledger_leaves_nothing_out(steps, max_processing, max_ahead, last):
    """However jobs end and walks come: P is where the first unfinished one is, and all is handed out once."""
    ledger: Ledger[int] = Ledger(0)
    handed: list[int] = []
    finished: set[int] = set()
    for index, walks in steps:
        if walks:
            found: Found[int] = drive(
                ledger.walk(max_processing=max_processing, max_ahead=max_ahead, head=last),
                lambda index: IndexedJob(str(index), index, index),
            )
            ledger.fold(found)
            ledger.admit(found.jobs)
            handed += [job.index for job in found.jobs]
        elif index in ledger.running:
            ledger.finish([index])
            finished.add(index)

        assert set(range(1, ledger.folded + 1)) <= finished
        assert len(ledger.running) <= max_processing
        assert ledger.size == len(handed)
        assert handed == list(range(1, len(handed) + 1))


def test_finished_jobs_use_up_no_worker_and_the_window_slides_in_one_walk():
    """Fast forward over 1 to 3, and the window of 2 is then 4 and 5."""
    assert walk(finished={1, 2, 3}, max_ahead=2, max_processing=9, source=range(1, 99)) == ([4, 5], 3)


def test_the_end_of_the_window_belongs_to_it():
    """With a window of 5 and P at 0, 1 to 5 may run."""
    assert walk(max_ahead=5, max_processing=9, source=range(1, 99)) == ([1, 2, 3, 4, 5], 0)


def test_without_workers_the_walk_does_not_begin():
    """Nothing starts, and P stays."""
    assert walk(finished={1, 2}, max_processing=0, source=range(1, 9)) == ([], 0)


def test_a_hole_ends_the_walk():
    """What lies behind it is not seen."""
    assert walk(source={1, 2, 4, 5}, max_processing=9) == ([1, 2], 0)


def test_the_head_ends_the_walk_but_not_the_fold():
    """Nothing above it is asked for; what is finished counts all the same."""
    assert walk(finished={1, 2, 3}, head=2, source=range(1, 9)) == ([], 3)
    assert walk(head=2, source=range(1, 9)) == ([1, 2], 0)


def test_one_ahead_is_one_at_a_time():
    """Whatever the number of workers."""
    assert walk(max_ahead=1, max_processing=9, source=range(1, 9)) == ([1], 0)
    assert walk(running={1}, max_ahead=1, max_processing=9, source=range(1, 9)) == ([], 0)


def test_both_ways_to_walk_find_the_same():
    """With a function, and with a coroutine."""

    async def at(index):
        await asyncio.sleep(0)
        return IndexedJob(str(index), index, index) if index < 6 else None

    def limits():
        return scan(Ranges(), processed=1, running=0, next_index=2, max_processing=3, max_ahead=0, head=None)

    now = drive(limits(), lambda index: IndexedJob(str(index), index, index) if index < 6 else None)

    assert asyncio.run(drive_async(limits(), at)) == now


def test_an_error_of_the_source_ends_the_walk_with_nothing_changed():
    """It comes through, and the ledger is as it was."""
    ledger: Ledger[int] = Ledger(0)
    ledger.admit([IndexedJob("1", 1, 1)])
    ledger.finish([1])

    def broken(index):
        raise OSError(index)

    with pytest.raises(OSError, match="2"):
        drive(ledger.walk(max_processing=2, max_ahead=0, head=None), broken)

    assert (ledger.folded, ledger.size) == (0, 1)
