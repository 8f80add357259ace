"""Replies that are lost, connections that are cut in one direction or both, servers that drain."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from holdfast.core import commands as c
from holdfast.core.errors import BadInput, LeaseLost, StoreError, Unavailable, Unsettled
from holdfast.core.job import Place, State
from holdfast.core.queries import CountJobs
from holdfast.core.token import Scope, Token, hash_of, secret_of
from holdfast.queue.connect import connect
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.remote.address import parse
from holdfast.remote.connection import RemoteConnection
from tests.ports import free_port
from tests.queue_suite.tools import LONG_S, outcome, until, waiting
from tests.remote.proxy import Proxy
from tests.remote.served import Served


@pytest.fixture
def proxy(served: Served) -> Iterator[Proxy]:
    """What can be cut between the server and `queue`."""
    with Proxy(served.port) as made:
        yield made


@pytest.fixture
def queue(proxy: Proxy) -> Iterator[Queue]:
    """A queue by way of the proxy, which has said something already."""
    with connect(proxy.url) as made:
        made.add("first")
        assert made.next(["first"]) is not None
        yield made


@pytest.fixture
def direct(served: Served) -> Iterator[Queue]:
    """A queue of another process, which is never cut."""
    with connect(f"grpc://127.0.0.1:{served.port}") as made:
        yield made


def lose_the_reply(proxy: Proxy, has_happened: Any) -> None:
    """Let something happen whose reply does not come through, then break the connection and heal it."""
    until(has_happened)
    proxy.reset()
    proxy.down.is_open.set()


def test_an_add_whose_reply_is_lost_adds_once(queue, direct, proxy):
    """Its ids were known beforehand: one job alone, and many, which are all there."""
    for _ in range(2):
        # The second time so many ids are reserved that the next add has its own already.
        queue.add_many([("known", n) for n in range(100)])
    proxy.down.is_open.clear()

    with waiting(lambda: queue.add_many([("work", n) for n in range(50)])) as added:
        lose_the_reply(proxy, lambda: direct.counts().get("work", {}).get("QUEUED") == 50)

    assert len({job.id for job in added.result()}) == 50
    assert direct.counts()["work"] == {"QUEUED": 50}
    assert {direct.get(job).task for job in added.result()} == {"work"}


@pytest.fixture
def owned(served: Served, proxy: Proxy) -> Iterator[Queue]:
    """A queue with a token of one tenant, by way of the proxy."""
    secret = secret_of("t", b"1" * 24)
    token = Token(name="t", scopes=tuple(Scope), tenant="a", hash=hash_of(secret))
    served.connection.ask(c.CreateToken(token=token))
    with connect(f"{proxy.url}?token={secret}", tenant="a") as made:
        for _ in range(2):
            made.add_many([("known", n) for n in range(100)])
        yield made


def is_added(served: Served) -> bool:
    """Whether the work of tenant a is there."""
    return any(key.task == "work" for key, _ in served.connection.ask(CountJobs(tenant="a")))


def test_an_add_with_a_token_of_one_tenant_adds_once(owned, served, proxy):
    """The server knows in the next session which ids it has lent."""
    proxy.down.is_open.clear()

    with waiting(lambda: owned.add("work")) as added:
        lose_the_reply(proxy, lambda: is_added(served))

    assert [job.id for job in owned.jobs(task="work")] == [added.result().id]


def test_an_add_with_a_token_of_one_tenant_is_unsettled_at_another_server(owned, served, proxy):
    """That does not know the ids. What is added after that has ids of the new session."""
    proxy.down.is_open.clear()

    with waiting(lambda: outcome(lambda: owned.add("work"))) as added:
        until(lambda: is_added(served))
        served.forget_lent_ids()
        proxy.reset()
        proxy.down.is_open.set()

    assert isinstance(added.result(), Unsettled)
    assert owned.get(owned.add("later")).task == "later"


def test_an_answer_whose_reply_is_lost_is_settled(queue, direct, proxy):
    """It was done the first time, and says so."""
    job = queue.add("work")
    held = queue.next(["work"])
    proxy.down.is_open.clear()

    with waiting(lambda: held.done("result")) as done:
        lose_the_reply(proxy, lambda: direct.get(job).state is State.FINISHED)

    assert done.exception() is None
    assert (done.result().state, direct.result(job)) == (State.FINISHED, "result")


def test_many_answers_whose_reply_is_lost_are_settled_each(queue, direct, proxy):
    """As a worker sends them; one of them is refused by itself."""
    queue.add_many([("work", n) for n in range(3)])
    held = [job.record for job in queue.claim(["work"], limit=3, renew=False)]
    direct.cancel(held[2].id, force=True)
    command = c.AnswerAll(answers=tuple(c.Answer(hold=c.hold_of(job)) for job in held), held=tuple(held))
    proxy.down.is_open.clear()

    with waiting(lambda: queue.connection.ask(command)) as replied:
        lose_the_reply(proxy, lambda: direct.counts()["work"].get("FINISHED") == 2)

    first, second, third = replied.result()
    assert (first.state, second.state) == (State.FINISHED, State.FINISHED)
    assert isinstance(third, LeaseLost)


def test_a_job_that_may_have_arrived_is_released_unless_it_must_not_run_twice(served, queue, direct, proxy):
    """Its client has it, and was cut off before it could say so."""
    with waiting(lambda: queue.claim(["work"], limit=2, wait=LONG_S, renew=False)) as claimed:
        until(lambda: served.pending() == 1)
        proxy.up.is_open.clear()
        jobs = (c.NewJob(task="work", max_losses=1), c.NewJob(task="work"))
        ids = direct.connection.ask(c.Add(jobs=jobs))
        once, again = claimed.result(LONG_S)
        proxy.reset()
        proxy.up.is_open.set()

    assert [once.id, again.id] == ids
    until(lambda: direct.get(again).place is Place.READY)
    assert isinstance(outcome(again.done), LeaseLost)
    assert once.done().state is State.FINISHED


def test_a_claim_whose_reply_is_lost_is_made_again(queue, direct, proxy):
    """The server releases what it claimed; no loss is counted."""
    job = direct.add("work")
    proxy.down.is_open.clear()

    with waiting(lambda: queue.next(["work"], wait=LONG_S, renew=False)) as claimed:
        lose_the_reply(proxy, lambda: direct.get(job).place is Place.RUNNING)

    held = claimed.result()
    assert (held.id, held.claim, held.record.losses, held.record.attempts) == (job.id, 2, 0, 0)
    held.done()


def test_what_cannot_be_asked_again_is_unsettled(queue, direct, proxy):
    """It may have been done, and the caller hears that."""
    job = direct.add("work")
    direct.next(["work"]).fail("why")
    proxy.down.is_open.clear()

    with waiting(lambda: outcome(lambda: queue.requeue(job))) as requeued:
        lose_the_reply(proxy, lambda: direct.get(job).state is State.QUEUED)

    assert isinstance(requeued.result(), Unsettled)


@pytest.fixture
def impatient(proxy: Proxy) -> Iterator[RemoteConnection]:
    """A connection by way of the proxy that soon gives a server up, and has ids."""
    made = RemoteConnection(parse(proxy.url), patience_s=0.5)
    made.ask(c.Add(jobs=(c.NewJob(task="first"),)))
    yield made
    made.close()


def test_what_was_sent_to_a_server_that_does_not_come_back_is_unsettled(impatient, direct, proxy):
    """The job is there, so its caller must not hear that nothing was changed."""
    proxy.down.is_open.clear()

    with waiting(lambda: outcome(lambda: impatient.ask(c.Add(jobs=(c.NewJob(task="work"),))))) as added:
        until(lambda: direct.counts().get("work") == {"QUEUED": 1})
        proxy.close()

    assert isinstance(added.result(), Unsettled)


def test_an_answer_that_cannot_be_looked_up_is_unsettled(impatient, direct, proxy):
    """The reply and the server are lost; whether the job was answered cannot be known."""
    direct.add("work")
    (claimed,) = impatient.ask(c.Claim(tasks=("work",), lease_ms=60_000))
    proxy.down.is_open.clear()

    with waiting(lambda: outcome(lambda: impatient.ask(c.Answer(hold=c.hold_of(claimed.job))))) as done:
        until(lambda: direct.counts()["work"] == {"FINISHED": 1})
        proxy.close()

    assert isinstance(done.result(), Unsettled)


@pytest.mark.parametrize("command", [c.Delete(job_id=64), c.Requeue(job_id=64), c.Cancel(job_id=64)])
def test_what_never_reached_a_server_changed_nothing(command):
    """No doubt is left, whether or not the command could be asked for again."""
    connection = RemoteConnection(parse(f"grpc://127.0.0.1:{free_port()}"), patience_s=0.2)

    error = outcome(lambda: connection.ask(command))
    connection.close()

    assert type(error) is Unavailable
    assert "cannot be reached" in str(error)


def test_a_command_waits_for_a_server_that_starts(served):
    """Also one that can be asked for once only: it was not sent before."""
    port = served.port
    with connect(f"grpc://127.0.0.1:{port}") as queue:
        job = queue.add("work")
    served.close()

    with connect(f"grpc://127.0.0.1:{port}") as queue, waiting(lambda: queue.delete(job)) as deleted:
        served._start()

    assert deleted.exception() is None


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_worker_that_is_cut_off_in_one_direction_is_fenced(queue, direct, proxy, way):
    """Its extensions do not arrive, or it does not hear of them: the job runs elsewhere."""
    job = direct.add("work")
    held = queue.next(["work"], lease=1)
    direction = getattr(proxy, way)
    direction.is_open.clear()

    taken = direct.next(["work"], wait=LONG_S)
    assert (taken.id, taken.claim) == (job.id, held.claim + 1)
    with waiting(lambda: outcome(lambda: held.done("late"))) as refused:
        direction.is_open.set()
    taken.done("in time")

    assert isinstance(refused.result(), LeaseLost)
    assert direct.result(job) == "in time"


def test_a_queue_that_vanishes_leaves_its_waiting_claim_to_nobody(queue, direct, proxy):
    """What comes then is for those who are there."""
    with waiting(lambda: outcome(lambda: queue.next(["work"], wait=1))):
        proxy.reset()
    direct.add("work")

    assert direct.next(["work"], wait=LONG_S).claim >= 1


def test_a_server_that_is_not_there_is_unavailable_after_a_while():
    """And the error names it."""
    url = f"grpc://127.0.0.1:{free_port()}"
    connection = RemoteConnection(parse(url), patience_s=0.3)

    with pytest.raises(Unavailable, match=url):
        connection.ask(CountJobs())
    connection.close()


def test_what_is_no_server_of_holdfast_is_told():
    """A port that speaks something else."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with (
        connect(f"grpc://127.0.0.1:{port}") as queue,
        pytest.raises(StoreError, match="no server of Holdfast"),
    ):
        queue.counts()
    server.stop(None).wait()


def test_calls_go_on_at_the_next_server(served):
    """One drains while a claim waits and jobs are added; another listens on its port then."""
    with connect(f"grpc://127.0.0.1:{served.port}") as queue:
        queue.add("first")
        with waiting(lambda: queue.next(["work"], wait=LONG_S, renew=False)) as claimed:
            port = served.port
            served.restart(port)
            queue.add("work")
        assert isinstance(job := claimed.result(), ClaimedJob)
        assert job.task == "work"


@pytest.mark.parametrize(
    ("call", "needed"),
    [
        (lambda queue: queue.add("work", connection=object()), "your transaction is on another connection"),
        (lambda queue: connect("grpc://h", retention="1d").counts(), "where the server's store is opened"),
        (lambda queue: connect("grpc://h grpc://i"), "alone"),
        (lambda queue: connect("grpc://"), "grpc://HOST:PORT"),
        (lambda queue: connect("grpc://h?tokn=1"), "token or ca"),
    ],
)
def test_what_a_server_cannot_do_is_refused_clearly(direct, call, needed):
    """Before anything is sent."""
    with pytest.raises(BadInput, match=needed):
        call(direct)
