"""Logs: durable, append-only, without gaps, each key once."""

import asyncio
import pickle
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.core.errors import BadInput, NotFound, TooLarge, Trimmed
from holdfast.indexed import AsyncLog, Consumer, ConsumerGroup, IndexedJob, Items, Log, Progress
from tests.indexed.tools import Until, in_threads


class Block(msgspec.Struct):
    """An item with a type."""

    height: int
    hash: str


def test_items_are_found_by_their_index(queue, make_queue):
    """From 1 on; as a job, of its type; in other processes too."""
    log = Log(queue, "blocks", Block)

    assert log.head() == 0
    assert log.append(Block(1, "a")) == 1
    assert log.append_many([Block(2, "b"), Block(3, "c")]) == [2, 3]

    other = Log(make_queue(), "blocks", Block)
    assert other.head() == 3
    assert other.at(2) == IndexedJob("#2", Block(2, "b"), 2)
    with pytest.raises(NotFound, match="blocks at 4"):
        other.at(4)
    assert log.append_many([]) == []


def test_a_known_key_appends_nothing(queue, make_queue):
    """It leads to the item that had it first; also within one call, and from another process."""
    log = Log(queue, "l", str)

    assert log.append("first", key="k") == 1
    assert log.append("second", key="k") == 1
    assert Log(make_queue(), "l", str).append_many(["x", "y", "z"], ["m", "k", "m"]) == [2, 1, 2]

    assert log.head() == 2
    assert [log.at(n).item for n in (1, 2)] == ["first", "x"]
    assert log.at(1).id == "k"


def test_append_tells_new_from_duplicate(queue, make_queue, make_async_queue):
    """Item by item: known from before, from another process, from the same call, without a key."""
    log = Log(queue, "l", str)

    assert log.append("first", key="k").is_new
    assert not log.append("second", key="k").is_new
    assert log.append("third").is_new
    found = Log(make_queue(), "l", str).append_many(["a", "b", "c", "d"], ["m", "k", "m", None])
    assert [(int(one), one.is_new) for one in found] == [(3, True), (1, False), (3, False), (4, True)]

    async def again():
        async with make_async_queue() as other:
            aio = AsyncLog(other, "l", str)
            return await aio.append("x", key="m"), await aio.append("y", key="n")

    known, new = asyncio.run(again())
    assert (known, known.is_new, new, new.is_new) == (3, False, 5, True)
    assert pickle.loads(pickle.dumps(known)).is_new is False


def test_a_log_may_find_keys_itself(queue):
    """From the item."""
    log = Log(queue, "blocks", Block, key=lambda block: block.hash)

    assert log.append_many([Block(1, "a"), Block(2, "a"), Block(3, "b")]) == [1, 1, 2]


def test_logs_of_other_names_and_tenants_are_apart(make_queue):
    """With keys of their own."""
    queue, other = make_queue(), make_queue(tenant="t")

    for log in (Log(queue, "a", int), Log(queue, "b", int), Log(other, "a", int)):
        assert log.append(7, key="k") == 1


def test_a_hundred_threads_append_and_check(queue):
    """Together they get every index once, whatever a consumer reads meanwhile; each key is appended once."""
    log, seen, until = Log(queue, "l", int), [], Until()
    group = ConsumerGroup(
        log,
        Progress(queue, "c"),
        lambda job: seen.append(job.item),
        max_processing=4,
        on_advance=until.tell,
    )

    def append(n):
        indexes = []
        for number in range(10):
            indexes += log.append_many([n * 10 + number, -1], [f"{n}/{number}", f"same-{number}"])
            group.check()
        return indexes

    with group:
        indexes = {index for found in in_threads(100, append) for index in found}
        until.wait(lambda: group.processed == 1010)

    assert indexes == set(range(1, 1011))
    assert log.head() == 1010
    assert sorted(seen) == [-1] * 10 + list(range(1000))


def test_an_append_in_one_process_wakes_a_consumer_in_another(queue, make_queue):
    """Long before it would look by itself."""
    seen, until = [], Until()
    log = Log(make_queue(), "l", int)
    group = ConsumerGroup(log, Progress(log.queue, "c"), lambda job: seen.append(job.item), poll="1h")

    with group:
        group.ready().wait()
        Log(queue, "l", int).append(1)
        until.wait(lambda: seen == [1])


def test_trimming_goes_up_to_the_slowest_reader(queue):
    """And not at all where nobody reads."""
    log = Log(queue, "l", int)
    log.append_many(range(1, 11), [str(n) for n in range(1, 11)])
    assert log.trim() == 0
    for name, to in (("fast", 9), ("slow", 4)):
        progress = Progress(queue, name)
        progress.initialize(log="l")
        progress.move(to)
    Progress(queue, "elsewhere").initialize()

    assert log.trim() == 4
    assert log.trim() == 0

    assert (log.head(), log.at(5).item) == (10, 5)
    with pytest.raises(Trimmed, match=r"index 4 of the log l.*up to 4"):
        Log(queue, "l", int).at(4)


def test_a_reader_counts_however_the_address_of_the_store_is_written(tmp_path, monkeypatch):
    """A path from here, a full one, and one with a scheme are the same file."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as open_queues:
        urls = ("jobs.db", str(tmp_path / "jobs.db"), "sqlite:///jobs.db")
        queues = [open_queues.enter_context(holdfast.connect(url)) for url in urls]
        log = Log(queues[0], "l", int)
        log.append_many(range(1, 11))
        for queue, to in zip(queues, (9, 5, 4), strict=True):
            progress = Progress(queue, f"reader-{to}")
            Consumer(log, progress, lambda job: None)
            progress.move(to)

        assert log.trim() == 4


def test_trimming_may_be_told_how_far(queue):
    """No further than the readers allow."""
    log = Log(queue, "l", int)
    log.append_many(range(10))

    assert log.trim(up_to=3) == 3
    progress = Progress(queue, "c", start=5)
    progress.initialize(log="l")

    assert log.trim(up_to=9) == 2
    assert log.trim(up_to=99) == 0


def test_keys_outlive_their_items_but_not_for_ever(queue):
    """So a stage that works again what it did before a crash appends nothing twice."""
    log = Log(queue, "l", int, keep_keys=5)
    log.append_many(range(1, 11), [str(n) for n in range(1, 11)])
    progress = Progress(queue, "c")
    progress.initialize(log="l")
    progress.move(10)

    assert log.trim() == 10

    assert log.append(0, key="6") == 6
    assert log.append(0, key="5") == 11


def test_a_wrong_type_is_an_error(queue):
    """Going in, coming out, and between items and jobs."""
    log = Log(queue, "l", Block)

    with pytest.raises(BadInput, match=r"'int'.*a Block"):
        log.append(5)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="item"):
        log.append_many([Block(1, "a"), "b"])  # type: ignore[list-item]
    assert log.head() == 0
    Log(queue, "l", str).append("text")
    with pytest.raises(BadInput, match=r"stored item.*Block"):
        log.at(1)
    with pytest.raises(BadInput, match="keys"):
        log.append_many([Block(1, "a")], ["a", "b"])


def test_items_and_jobs_convert_both_ways():
    """By their type; anything else is refused and no value given."""
    items = Items(Block, key=lambda block: block.hash)
    block = Block(5, "abc")

    job = items.to_job(block, 5)

    assert job == IndexedJob("abc", block, 5)
    assert items.to_item(job) is block
    with pytest.raises(BadInput, match=r"'str'.*a Block"):
        items.to_job("x")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"item of job 1 is 'int'.*a Block"):
        items.to_item(IndexedJob("1", 1, 1))
    with pytest.raises(BadInput, match="an IndexedJob"):
        items.to_item(block)  # type: ignore[arg-type]
    assert Items(list[int]).to_job([1], 1).item == [1]
    with pytest.raises(BadInput):
        Items(list[int]).to_job(["a"], 1)  # type: ignore[list-item]


def test_two_functions_are_a_source(queue):
    """None is "not there yet"."""
    chain = [Block(1, "a"), Block(2, "b")]
    source = Items(Block, key=lambda block: block.hash).source(
        head=lambda: len(chain), at=lambda n: chain[n - 1] if n <= len(chain) else None
    )

    assert source.at(2) == IndexedJob("b", chain[1], 2)
    with pytest.raises(NotFound):
        source.at(3)


def test_bytes_are_items_too(queue):
    """As they are."""
    log = Log(queue, "raw", bytes)

    log.append(b"\x00\xff")

    assert log.at(1).item == b"\x00\xff"


def test_bytes_are_taken_only_where_they_can_be_read_again(queue):
    """In a log without a type, beside other items; not in one whose items are JSON."""
    log: Log[Any] = Log(queue, "mixed")
    log.append_many([b"raw", {"n": 1}])

    assert [log.at(1).item, log.at(2).item] == [b"raw", {"n": 1}]
    with pytest.raises(BadInput, match=r"'bytearray'.*a log of bytes"):
        Log(queue, "other", bytearray).append(bytearray(b"raw"))


def test_large_items_are_read_a_few_at_a_time(queue):
    """Pages grow while items are small, and shrink again."""
    log = Log(queue, "l", str)
    log.append_many(["x"] * 2000 + ["y" * 600_000] * 6 + ["z"] * 10)

    found = [log.at(n).item[:1] for n in range(1, 2017)]

    assert found == ["x"] * 2000 + ["y"] * 6 + ["z"] * 10


@pytest.mark.parametrize(("name", "error"), [("", BadInput), ("a\n", BadInput), ("x" * 256, TooLarge)])
def test_a_bad_name_is_refused(queue, name, error):
    """Before anything is opened."""
    with pytest.raises(error, match="log"):
        Log(queue, name)


def test_a_key_that_is_too_long_is_refused(queue):
    """And nothing of the call is appended."""
    log = Log(queue, "l", int)

    with pytest.raises(TooLarge, match="key"):
        log.append_many([1, 2], ["a", "b" * 1025])

    assert log.head() == 0
