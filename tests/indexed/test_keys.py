"""Keys of log items: different ones are stored differently, and no two jobs of a log have one id."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.core import commands as c
from holdfast.core.errors import BadInput, StoreCorrupt
from holdfast.core.indexed import LogItem
from holdfast.indexed import ConsumerGroup, Log, Progress, pipeline, set_by_hand, stage
from holdfast.indexed.log import job_id_of, stored_key
from tests.indexed.tools import PATIENCE_S, Numbers

# Keys that could be taken for an index, for an escaped key, or for one another; halves of characters, too.
ODD = ["#2", "##2", "#x", "#x61", "x61", "61", "a", "#", "ff", "\ud800", "\udcff", "\xff", "é"]
ODD_BYTES = [b"a", b"#2", b"\xff", b"\xffa", b"\x00", b"61", "é".encode(), b"\xed\xa0\x80"]
any_text = st.text(st.characters(exclude_categories=[]), min_size=1, max_size=8)
any_key = st.sampled_from(ODD) | st.sampled_from(ODD_BYTES) | any_text | st.binary(min_size=1, max_size=8)
keys_or_none = st.lists(st.none() | any_key, max_size=30)


@given(st.lists(any_key, max_size=30))
def test_keys_that_differ_are_stored_differently(keys):
    """Text and bytes differ, as they do in Python."""
    assert len({stored_key(key) for key in keys}) == len(set(keys))


@given(keys_or_none)
def test_no_two_items_have_the_same_id(keys):
    """With text keys, bytes keys and without a key, wherever they stand."""
    wanted = {(index, None) if key is None else key for index, key in enumerate(keys, 1)}

    ids = {job_id_of(index, None if key is None else stored_key(key)) for index, key in enumerate(keys, 1)}

    assert len(ids) == len(wanted)


@given(any_text.filter(lambda text: not text.startswith("#")))
def test_a_text_key_is_the_id(key):
    """So whoever knows the key can report the job; only a # in front is doubled."""
    assert job_id_of(7, stored_key(key)) == key
    assert job_id_of(7, stored_key(f"#{key}")) == f"##{key}"


@settings(max_examples=25)
@given(keys_or_none)
def test_a_log_of_any_keys_is_worked_off(keys):
    """Each different key once, each item without a key; nothing stops the group."""
    expected = [n for n, key in enumerate(keys) if key is None or key not in keys[:n]]
    seen: list[int] = []
    with holdfast.connect("memory://") as queue:
        log = Log(queue, "l", int)
        log.append_many(range(len(keys)), keys)
        with ConsumerGroup(
            log, Progress(queue, "c"), lambda job: seen.append(job.item), max_processing=40
        ) as group:
            assert group.drained().wait(PATIENCE_S)

    assert sorted(seen) == expected


def test_keys_that_look_alike_do_not_stop_a_group(queue):
    """On every store: a key that looks like an index, text beside bytes, bytes beside their digits."""
    keys = [None, None, "#2", "##2", "a", b"a", b"\xff", "ff", "#xff", None]
    log, seen = Log(queue, "l", int), []
    assert log.append_many(range(1, 11), keys) == list(range(1, 11))

    def run(job):
        seen.append(job.id)

    with ConsumerGroup(log, Progress(queue, "c"), run, max_processing=10) as group:
        assert group.wait(until=10, timeout=PATIENCE_S)

    assert sorted(seen) == sorted(["#1", "#2", "##2", "###2", "a", "#x61", "#xff", "ff", "##xff", "#10"])


@pytest.mark.parametrize("key", ["x" * 1024, b"\xff" * 1024], ids=["text", "bytes"])
def test_a_key_has_up_to_1024_bytes_of_either_kind(queue, key):
    """One more, or none, is refused."""
    log = Log(queue, "l", int)

    assert log.append(1, key=key) == 1
    assert not log.append(1, key=key).is_new
    for wrong in (key + key[:1], key[:0]):
        with pytest.raises(BadInput, match="key"):
            log.append(2, key=wrong)


def test_a_stored_key_that_no_log_writes_is_damage(queue):
    """It is neither text nor marked as bytes."""
    queue.connection.ask(c.Append(log="l", items=(LogItem(data="1", key=b"\xc3("),)))

    with pytest.raises(StoreCorrupt, match="item at 1"):
        Log(queue, "l", int).at(1)


def test_pipelines_with_stages_of_one_name_lose_nothing_in_a_shared_log(queue):
    """What each makes has keys of its own; made again, it is not appended again."""
    log = Log(queue, "l", str)

    def split(job):
        return [f"{name}{job.index}"]

    for name in ("a", "b"):
        with pipeline(Numbers(2), stage(split, into=log), queue=queue, name=name) as line:
            assert line.drain(PATIENCE_S)
    name = "a"
    set_by_hand(queue, "a.split", 0)
    with pipeline(Numbers(2), stage(split, into=log), queue=queue, name=name) as line:
        assert line.drain(PATIENCE_S)

    items = [log.at(index).item for index in range(1, log.head() + 1)]
    assert sorted(items) == [f"{name}{n}" for name, n in itertools.product("ab", (1, 2))]
