"""A job by the name of its task is the same job as a call of the task."""

import sqlite3

import pytest

import holdfast


@pytest.fixture
def queue(tmp_path):
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
        yield queue


def same(queue, first, second):
    """Whether two jobs differ in nothing but who they are."""
    names = {"id", "created_at", "run_at", "rank"}
    one, other = queue.get(first), queue.get(second)
    fields = [field for field in one.__struct_fields__ if field not in names]
    return [getattr(one, field) for field in fields] == [getattr(other, field) for field in fields]


def test_a_job_by_name_has_the_options_of_its_task(queue):
    @queue.task(attempts=5, timeout="2m", domain=lambda path, width: path)
    def resize(path: str, width: int) -> None: ...

    called = resize.using(priority=900).add("a.png", 200)
    named = queue.add("resize", {"path": "a.png", "width": 200}, priority=900)
    (many,) = queue.add_many([("resize", {"path": "a.png", "width": 200})], priority=900)

    assert same(queue, called, named)
    assert same(queue, called, many)
    assert queue.get(named).max_attempts == 5
    assert queue.get(named).domain == b"a.png"


def test_a_child_by_name_has_the_options_of_its_task(queue):
    @queue.task(attempts=3)
    def part() -> None: ...

    queue.add("whole")
    with queue.next(["whole"]) as whole:
        child = whole.add("part")

    assert queue.get(child).max_attempts == 3


def test_an_answer_that_was_rolled_back_can_be_given_again(queue, tmp_path):
    added = queue.add("work")
    job = queue.next(["work"])
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    job.done("first", connection=connection)
    connection.execute("ROLLBACK")
    connection.close()

    job.done("second")

    assert added.result() == "second"
    with pytest.raises(holdfast.Refused, match="answered already"):
        job.done("third")
