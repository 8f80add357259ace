"""Jobs on their way into one transaction: what is alike travels as its data, nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.commands import Add, NewJob
from holdfast.core.errors import BadInput
from holdfast.engine.engine import check
from holdfast.queue.parcel import Parcel

jobs = st.builds(
    NewJob,
    task=st.sampled_from(["a", "b"]),
    priority=st.sampled_from([None, 900]),
    data=st.sampled_from(['"x"', '"y"', b"\0"]),
    id=st.sampled_from([0, 0, 0, 7]),
)


@given(st.lists(jobs, min_size=1, max_size=12))
def test_what_was_put_in_comes_out(put):
    """One by one and in order, whatever is alike."""
    parcel = Parcel()
    for new in put:
        parcel.put(new)
    count, size = parcel.count, parcel.size

    command = parcel.take(None)

    assert list(command.every()) == put
    assert (command.count, command.size) == (count, size) == (len(put), sum(len(new.data) for new in put))
    assert parcel.count == parcel.size == 0


def test_many_that_are_alike_are_one_record_and_their_data():
    """Also where they come as records."""
    parcel = Parcel()
    for n in range(1_000):
        parcel.put(NewJob(task="a", data=str(n)))

    command = parcel.take(None)

    assert len(command.jobs) == 1
    assert command.more == tuple(map(str, range(1, 1_000)))


def test_data_alone_is_a_job_like_the_last_also_when_that_has_gone():
    """A parcel that is full is taken, and the next one goes on where it ended."""
    parcel = Parcel()
    parcel.put(NewJob(task="a", priority=900, data="1"))
    parcel.take(None)

    parcel.put("2")
    parcel.put("3")

    assert list(parcel.take(None).every()) == [
        NewJob(task="a", priority=900, data="2"),
        NewJob(task="a", priority=900, data="3"),
    ]


@pytest.mark.parametrize("jobs", [(), (NewJob(task="work", id=5),)])
def test_more_of_nothing_or_of_a_number_is_refused(jobs):
    """Nothing is there that they could be like, or two would have one number."""
    with pytest.raises(BadInput, match="more"):
        check(Add(jobs=jobs, more=("1",)))
