"""Jobs on their way into one transaction: what is alike travels as its data, nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.bounds import BATCH_JOBS
from holdfast.core.checks import check_command
from holdfast.core.commands import Add, NewJob
from holdfast.core.errors import BadInput, TooLarge
from holdfast.queue import asks

jobs = st.builds(
    NewJob,
    task=st.sampled_from(["a", "b"]),
    priority=st.sampled_from([None, 900]),
    data=st.sampled_from(['"x"', '"y"', b"\0"]),
    id=st.sampled_from([0, 0, 0, 7]),
)


def commands(put):
    return [ask.asked for ask in asks.add(put)]


@given(st.lists(jobs, min_size=1, max_size=12))
def test_what_was_put_in_comes_out(put):
    """One by one and in order, whatever is alike."""
    (command,) = commands(put)

    assert list(command.every()) == put
    assert (command.count, command.size) == (len(put), sum(len(new.data) for new in put))


def test_many_that_are_alike_are_one_record_and_their_data():
    """Also where they come as records."""
    (command,) = commands(NewJob(task="a", data=str(n)) for n in range(1_000))

    assert len(command.jobs) == 1
    assert command.more == tuple(map(str, range(1, 1_000)))


def test_data_alone_is_a_job_like_the_last_also_when_that_has_gone():
    """A command that is full is followed by one that goes on where it ended."""
    first = NewJob(task="a", priority=900, data="0")

    full, rest = commands([first, *map(str, range(1, BATCH_JOBS + 2))])

    assert full.count == BATCH_JOBS
    assert list(rest.every()) == [
        NewJob(task="a", priority=900, data=str(BATCH_JOBS)),
        NewJob(task="a", priority=900, data=str(BATCH_JOBS + 1)),
    ]


@pytest.mark.parametrize(
    ("second", "error"),
    [(NewJob(task="a", priority=-1), BadInput), (NewJob(task="a", data=bytes(2**24 + 1)), TooLarge)],
    ids=["options", "data"],
)
def test_each_record_is_checked_also_if_it_is_like_the_one_before(second, error):
    """Nothing is returned then: all or none."""
    with pytest.raises(error):
        asks.add([NewJob(task="a"), second])


@pytest.mark.parametrize("jobs", [(), (NewJob(task="work", id=5),)])
def test_more_of_nothing_or_of_a_number_is_refused(jobs):
    """Nothing is there that they could be like, or two would have one number."""
    with pytest.raises(BadInput, match="more"):
        check_command(Add(jobs=jobs, more=("1",)))
