"""A job by the name of its task is the same job as a call of the task."""

import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import asdict

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


@pytest.mark.parametrize("data", ["a.png", {"path": "a.png"}], ids=["value", "object"])
def test_a_job_by_name_has_the_domain_of_its_only_argument(queue, data):
    @queue.task(domain=lambda path: path)
    def fetch(path: str) -> None: ...

    assert queue.get(queue.add("fetch", data)).domain == b"a.png"


def test_an_item_by_name_has_the_domain_of_its_batch_task(queue):
    @queue.task(batch=10, domain=lambda item: item["host"])
    def fetch(items: list[dict[str, str]]) -> list[None]:
        return [None for _ in items]

    assert queue.get(queue.add("fetch", {"host": "cdn"})).domain == b"cdn"


def test_a_job_that_lacks_an_argument_of_its_domain_is_refused_by_that_name(queue):
    @queue.task(domain=lambda path, width: path)
    def resize(path: str, width: int) -> None: ...

    for data in ({"path": "a.png"}, None):
        with pytest.raises(holdfast.BadInput, match="task resize"):
            queue.add("resize", data)


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


def test_a_job_of_ones_own_transaction_has_a_follower_with_an_id(tmp_path):
    path = tmp_path / "own.db"
    with holdfast.connect(f"sqlite:///{path}") as queue:
        queue.add("other")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            added = queue.add("first", then=("second", {"a": 1}), into="b", connection=connection)
            connection.execute("COMMIT")
        then_id = added.get().then_id

        (job,) = queue.claim(["first"], renew=False)
        job.done(2)

        assert queue.data(then_id) == {"a": 1, "b": 2}


# ── options that were read once ──────────────────────────────────────────────────────────────────


def test_options_that_are_kept_make_the_same_jobs_as_fresh_ones(queue):
    @queue.task(attempts=5, timeout="2m", domain=lambda path: path)
    def fetch(path: str) -> None: ...

    kept = fetch.using(priority=900, at_most_once=True, expires="1h")
    jobs = [kept.add("a"), kept.add("a"), fetch.using(priority=900, at_most_once=True, expires="1h").add("a")]

    names = {"id", "created_at", "run_at", "rank", "expires_at"}
    first, *others = ({k: v for k, v in asdict(job.get()).items() if k not in names} for job in jobs)
    assert others == [first, first]
    assert (first["max_attempts"], first["domain"], first["given"]) == (
        1,
        b"a",
        ("attempts", "expires", "losses"),
    )


def test_many_calls_of_a_task_are_the_jobs_that_single_calls_are(queue):
    @queue.task(attempts=5, priority=900)
    def resize(path: str, width: int = 100) -> None: ...

    one = resize.using(timeout="1m").add("b.png", 50)
    many = resize.add_many([("a.png",), {"path": "b.png", "width": 50}], timeout="1m")

    assert same(queue, many[1], one)
    assert [queue.data(job) for job in many] == [{"path": "a.png"}, {"path": "b.png", "width": 50}]


def test_a_domain_that_its_function_makes_is_checked_for_each_job(queue):
    @queue.task(domain=lambda path: path)
    def fetch(path: str) -> None: ...

    fetch.add("short")
    for add in (lambda: fetch.add("x" * 1_025), lambda: fetch.add_many([("a",), ("x" * 1_025,)])):
        with pytest.raises(holdfast.TooLarge, match="domain"):
            add()
    assert queue.counts() == {"fetch": {"QUEUED": 1}}


def test_a_prepared_call_may_get_the_rest_of_its_options_when_it_is_added(queue):
    """So `using` refuses what is not whole only where it adds."""

    @queue.task
    def work() -> None: ...

    held = work.using(unique_for="1h")
    (job,) = queue.add_many([held.call()], unique="key")

    assert (queue.get(job).unique, queue.get(job).unique_for_ms) == (b"key", 3_600_000)
    for _ in range(2):
        with pytest.raises(holdfast.BadInput, match="unique_for"):
            held.add()


def test_a_follower_that_is_declared_later_is_checked_from_then_on(queue):
    @queue.task(then=("shout", {"text": 7}))
    def greet() -> None: ...

    greet.add()

    @queue.task
    def shout(text: str) -> None: ...

    for add in (greet.add, lambda: greet.add_many([()]), lambda: queue.add("greet")):
        with pytest.raises(holdfast.BadInput, match="task shout"):
            add()


@pytest.mark.parametrize(
    ("method", "here"),
    [("delay", "add"), ("apply_async", "using"), ("send", "add"), ("s", "call"), ("AsyncResult", "handle")],
)
def test_a_method_of_another_job_queue_is_told_what_it_is_here(queue, method, here):
    @queue.task
    def resize(path: str) -> None: ...

    for task in (resize, resize.using(priority=1)):
        with pytest.raises(AttributeError, match=rf"no attribute '{method}': here it is {here}\("):
            getattr(task, method)("a.png")
    assert not hasattr(resize, "other")


def test_an_id_becomes_a_handle_of_its_task_alone(queue):
    """That of a job of another task does nothing, so an id may come from outside."""

    @queue.task
    def resize(path: str) -> bytes:
        return path.encode()

    @queue.task
    def crop(path: str) -> str:
        return path

    job = resize.add("a.png")
    assert resize.handle(str(job.id)) == job
    assert "worker" in resize.handle(job.id).why()
    queue.next().run()

    assert resize.handle(queue.get(job)).result() == b"a.png"
    wrong = crop.handle(job.id)
    waiting = crop.handle(resize.add("b.png").id)
    for call in (wrong.get, wrong.result, lambda: queue.result(wrong), waiting.why, waiting.cancel):
        with pytest.raises(holdfast.NotFound, match=r"there is no job of task crop \d+"):
            call()
    assert queue.get(waiting.id).state == "QUEUED"
    with pytest.raises(holdfast.BadInput, match="job id is 'abc'"):
        resize.handle("abc")


def test_an_argument_among_the_options_is_told_to_be_data(queue):
    """By name the arguments are a dict, also of a task that this process does not know."""

    @queue.task
    def resize(path: str) -> None: ...

    queue.add("parent")
    for add in (queue.add, queue.call, queue.next(["parent"]).add):
        with pytest.raises(holdfast.BadInput, match=r"'path', and must be in the data, a dict: \"resize\", "):
            add("resize", path="a")
    with pytest.raises(holdfast.BadInput, match="in the data"):
        queue.add(resize, path="a")
    with pytest.raises(
        holdfast.BadInput, match=r"one of at_.*; an argument is in the data, a dict: \"other\", {"
    ):
        queue.add("other", path="a")
    with pytest.raises(holdfast.BadInput, match="must be priority, if you mistyped it"):
        queue.add("resize", {"path": "a"}, prio=1)


def test_a_task_with_options_is_refused_where_a_task_is_wanted(queue):
    """Its options, and the transaction of its connection, would be passed over in silence."""

    @queue.task
    def resize(path: str) -> None: ...

    later = resize.using(delay="1h")
    with pytest.raises(
        holdfast.BadInput, match="task is 'resize with options', and must be a task, or its name"
    ):
        queue.add(later, {"path": "a"})
    with pytest.raises(holdfast.BadInput, match="resize with options"):
        queue.add(resize, {"path": "a"}, then=(later, {"path": "b"}))
    assert queue.counts() == {}


def test_a_key_that_is_empty_is_told_that_none_means_none(queue):
    for add in (lambda: queue.add("work", unique=""), lambda: queue.add("work", domain=b"")):
        with pytest.raises(
            holdfast.BadInput, match="is empty, and must be at least one byte long; None means none"
        ):
            add()
    queue.add("work", unique=None)


def test_a_limit_of_none_at_once_can_be_removed(queue):
    queue.limit("own", concurrency=0)
    job = queue.add("work", domain="own")

    assert queue.next(["work"]) is None
    assert "its limit is 0 at once" in queue.why(job)
    queue.pause(domain="own")
    assert queue.why(job) == (
        "Its domain 'own' holds it back; 1 of its jobs is HELD. The domain 'own' is paused; resume it."
    )
    queue.resume(domain="own")
    queue.limit("own")
    assert (queue.limits(), queue.next(["work"]).id) == ({}, job.id)


def test_an_option_for_the_context_is_told_how_a_function_gets_it(queue):
    with pytest.raises(holdfast.BadInput, match=r"option is 'bind', and must be absent: .* `ctx: Context`"):

        @queue.task(bind=True)
        def resize(ctx: holdfast.Context, path: str) -> None: ...
