"""Connections: waiting, going away, closing, being many, and being fed nonsense."""

import asyncio
import os
import random
import socket
import statistics
import threading
import time

import pytest

from holdfast.core import commands as c
from holdfast.core.bounds import PORT_BODY_BYTES, PORT_CONNECTIONS, PORT_LINES_BYTES
from holdfast.core.ids import PORT_SYSID
from tests.queue_suite.tools import until
from tests.serve.clients import Client, request
from tests.serve.test_wire import SEED, mutated

NOTHING = "404 No job found"
# What asyncio reads at once.
READ_BYTES = 256 * 1024
PATIENT = {"Connection": "wait", "timeout": "60000"}


def claims_waiting(served):
    """How many claims wait for something to come."""
    # On shards a claim waits in every lane.
    way = served.committer._submitter
    lanes = getattr(way, "_committers", [way])
    return min(sum(not ticket.abandoned for ticket in lane._waiter._claims) for lane in lanes)


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_client_gets_the_job_when_it_comes(served, client):
    """By its pattern; others of its connection are answered after it."""
    with served.client() as other:
        other.send(request("GetJob", name="foo/*", **PATIENT) + request("Ping"))
        until(lambda: claims_waiting(served) == 1)

        client.create("bar")
        job_id = client.create("foo/1")

        assert other.receive().json["jobID"] == job_id
        assert other.receive().status == "200 OK"


def test_a_waiting_client_is_told_when_its_time_is_up(client):
    """With the same words as one that did not wait."""
    assert client.status("GetJobs", name="foo", numResults="5", Connection="wait", timeout="20") == NOTHING


def test_a_waiting_client_gets_what_is_put_back(served, client):
    """Retried, requeued or past its time."""
    job_id = client.create()
    client.take()
    with served.client() as other:
        other.send(request("GetJob", name="foo", **PATIENT))
        until(lambda: claims_waiting(served) == 1)

        client.ok("RetryJob", jobID=job_id)

        assert other.receive().json["jobID"] == job_id


def test_who_goes_away_while_waiting_gets_nothing(served, client):
    """However it goes; the next in line has the job at once, as if it had been alone."""
    for go in (Client.vanish, Client.close):
        other = Client(served.address)
        other.send(request("GetJob", name="foo", **PATIENT))
        until(lambda: claims_waiting(served) == 1)
        go(other)
        until(lambda: not served.server.connections - {_own(served, client)})

        job_id = client.create()

        assert client.take()["jobID"] == job_id
        client.ok("FinishJob", jobID=job_id)
        assert client.status("GetJob", name="foo") == NOTHING
        until(lambda: claims_waiting(served) == 0)


def _own(served, client):
    name = client.socket.getsockname()
    return next(one for one in served.server.connections if one._transport.get_extra_info("peername") == name)


# ── going away ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", ["GetJob", "GetJobs"])
@pytest.mark.parametrize("go", [Client.vanish, Client.close], ids=["vanish", "close"])
def test_a_job_whose_reply_was_not_delivered_is_back_at_once(served, client, go, verb):
    """Whether the client went before or after the reply was written; and it does not count."""
    job_id = client.create(retryAfter="+1 DAY")
    extra = {"numResults": "3"} if verb == "GetJobs" else {}

    for _ in range(20):
        other = Client(served.address)
        other.send(request(verb, name="foo", **extra))
        go(other)
        until(lambda: len(served.server.connections) == 1)
        until(lambda: client.state(job_id) == "QUEUED")

    # The last one may be on its way in yet.
    assert client.take(**PATIENT)["data"] == {}


def test_a_program_that_dies_before_it_reads_has_not_got_its_job(served, client):
    """Its kernel had it, and says so with a reset."""
    job_id = client.create()
    other = Client(served.address)
    other.send(request("GetJob", name="foo"))
    until(lambda: client.state(job_id) == "RUNNING")
    other.socket.recv(1, socket.MSG_PEEK)

    other._file.close()
    other.socket.close()

    until(lambda: client.state(job_id) == "QUEUED")
    assert client.take()["jobID"] == job_id


def test_a_job_that_must_not_run_twice_is_kept_if_it_may_have_been_read(served, client):
    """A reset does not say how much was read before it."""
    once, again = served.ask(c.Add(jobs=(c.NewJob(task="foo", max_losses=1), c.NewJob(task="foo"))))
    other = Client(served.address)
    assert len(other.ok("GetJobs", name="foo", numResults="2")["jobs"]) == 2

    other.vanish()

    until(lambda: client.state(again) == "QUEUED")
    assert client.state(once) == "RUNNING"


def test_a_client_that_has_read_its_job_keeps_it(served, client):
    """Also when it closes right after."""
    job_id = client.create()
    with served.client() as other:
        assert other.take()["jobID"] == job_id
    until(lambda: len(served.server.connections) == 1)

    assert client.state(job_id) == "RUNNING"


def test_a_client_that_has_sent_its_last_word_is_answered(served, client):
    """As with `printf … | nc`: all that was asked, and then the connection is closed."""
    job_id = client.create()
    with served.client() as other:
        other.send(request("Ping") + request("GetJob", name="foo"))
        other.socket.shutdown(socket.SHUT_WR)

        assert other.receive().status == "200 OK"
        assert other.receive().json["jobID"] == job_id
        assert other.receive() is None
    assert client.state(job_id) == "RUNNING"


def test_connection_close_closes_after_the_reply(served):
    """And says so; what follows it is not read."""
    with served.client() as other:
        other.send(request("Ping", Connection="close") + request("Ping"))

        reply = other.receive()

        assert (reply.status, reply.headers["Connection"]) == ("200 OK", "close")
        assert other.receive() is None


def test_connection_forget_answers_first_and_does_it_then(served, client):
    """What a forgotten GetJob was given goes back; what is wrong is nobody's affair."""
    for verb, parameters in (("CreateJob", {"name": "foo"}), ("GetJob", {"name": "foo"}), ("CreateJob", {})):
        with served.client() as other:
            reply = other.ask(verb, **parameters, Connection="forget")
            assert (reply.status, reply.headers["Connection"]) == ("202 Successfully queued", "close")
            assert other.receive() is None
        until(lambda: not served.server._forgotten)

    assert client.take()["name"] == "foo"


def test_a_server_that_stops_lets_everybody_finish(served, client):
    """Those who wait hear that there is nothing, and all connections are closed."""
    with served.client() as other:
        other.send(request("GetJob", name="foo", **PATIENT))
        until(lambda: claims_waiting(served) == 1)

        served.stop()

        reply = other.receive()
        assert (reply.status, reply.headers["Connection"]) == (NOTHING, "close")
        assert other.receive() is None
        assert client.receive() is None


def test_jobs_that_are_given_back_just_before_the_store_is_closed_are_released(serve):
    """No task waits for it: closing commits what was submitted."""
    served, other = serve(), serve()
    with other.client() as client:
        job_ids = [client.create() for _ in range(20)]
        claimed = served.ask(c.Claim(limit=20, lease_ms=60_000, owner=PORT_SYSID))
        assert len(claimed) == 20
        served.stop()

        served.server.port.give_back(claimed)
        served.close()

        assert {client.state(job_id) for job_id in job_ids} == {"QUEUED"}


# ── being many ───────────────────────────────────────────────────────────────────────────────────


async def _speak(address, raw):
    reader, writer = await asyncio.open_connection(*address)
    writer.write(raw)
    return reader, writer


async def _hear(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(head.rsplit("Content-Length: ", 1)[1])
    return head.split("\r\n", 1)[0], await reader.readexactly(length)


async def _one_of_many(served, waiters, trials):
    """How long it took, each time, from CreateJob to the one reply."""
    took, asked = [], request("GetJob", name="foo", **PATIENT)
    lines = [await _speak(served.address, asked) for _ in range(waiters)]
    await asyncio.to_thread(until, lambda: claims_waiting(served) == waiters)
    replies = {asyncio.ensure_future(_hear(reader)): (reader, writer) for reader, writer in lines}
    maker = await _speak(served.address, b"")
    for _ in range(trials):
        started = time.perf_counter()
        maker[1].write(request("CreateJob", name="foo"))
        done, _ = await asyncio.wait(replies, return_when=asyncio.FIRST_COMPLETED)
        took.append((time.perf_counter() - started) * 1000)
        await _hear(maker[0])
        # Ask for something else, which is answered after all that was on its way.
        maker[1].write(request("Ping"))
        await _hear(maker[0])
        assert len([reply for reply in replies if reply.done()]) == 1
        (reply,) = done
        assert reply.result()[0] == "200 OK"
        reader, writer = replies.pop(reply)
        writer.write(asked)
        replies[asyncio.ensure_future(_hear(reader))] = (reader, writer)
        await asyncio.to_thread(until, lambda: claims_waiting(served) == waiters)
    for reply, (_, writer) in replies.items():
        reply.cancel()
        writer.close()
    maker[1].close()
    await asyncio.gather(*replies, return_exceptions=True)
    return took


def test_of_two_hundred_that_wait_exactly_one_gets_the_job(served):
    """And the others go on waiting."""
    assert len(asyncio.run(_one_of_many(served, 200, 5))) == 5


@pytest.mark.proof
def test_of_two_hundred_that_wait_one_gets_the_job_soon(served, record_property):
    """In the median of fifty trials within 20 ms, on a machine that does nothing else."""
    took = asyncio.run(_one_of_many(served, 200, 50))
    record_property("median of 50, ms", statistics.median(took))
    print(f"median {statistics.median(took):.1f} ms, worst {max(took):.1f} ms")  # noqa: T201

    assert statistics.median(took) < 20


def test_a_hundred_clients_share_a_thousand_jobs(served, client):
    """Each is handed out once."""
    client.ok("CreateJobs", jobs=[{"name": f"foo/{n % 7}"} for n in range(1_000)])
    found, lock = [], threading.Lock()

    async def drain():
        reader, writer = await _speak(served.address, b"")
        while True:
            writer.write(request("GetJob", name="foo/*"))
            status, body = await _hear(reader)
            if status == NOTHING:
                break
            found.append(body)
        writer.close()

    async def all_of_them():
        await asyncio.gather(*(drain() for _ in range(100)))

    with lock:
        asyncio.run(all_of_them())

    assert (len(found), len(set(found))) == (1_000, 1_000)


def test_beyond_a_number_of_connections_the_door_is_closed(served, monkeypatch):
    """Politely, and only until somebody leaves."""
    monkeypatch.setattr("holdfast.serve.bedrock.server.PORT_CONNECTIONS", 3)
    assert PORT_CONNECTIONS > 1_000
    clients = [Client(served.address) for _ in range(3)]
    assert all(one.status("Ping") == "200 OK" for one in clients)

    with served.client() as late:
        assert late.receive().status == "503 Too many connections"
    clients[0].close()
    until(lambda: len(served.server.connections) == 2)
    with served.client() as later:
        assert later.status("Ping") == "200 OK"
    for one in clients[1:]:
        one.close()


def test_what_is_sent_and_not_read_is_bounded(served, monkeypatch):
    """Beyond what all requests together may keep, who brings more is sent away."""
    monkeypatch.setattr("holdfast.serve.bedrock.server.PORT_BUFFERED_BYTES", 1_000_000)
    with served.client() as greedy, served.client() as other:
        try:
            greedy.send(b"CreateJob\ndata: ")
            for _ in range(100):
                greedy.send(b"x" * 100_000)
        except OSError:
            pass
        until(lambda: len(served.server.connections) == 1)
        assert served.server.buffered < 1_000

        assert other.status("Ping") == "200 OK"


REFUSED_HALFWAY = {
    "endless line": (b"CreateJob\nname: ", b"x" * 4_096),
    "endless lines": (b"CreateJob\n", b"a: b\r\n" * 500),
    "too large a body": (b"CreateJob\nContent-Length: %d\n\n" % (PORT_BODY_BYTES + 1), b"x" * 4_096),
}


@pytest.mark.parametrize("kind", REFUSED_HALFWAY)
def test_who_is_refused_while_still_sending_reads_why(served, kind, monkeypatch):
    """The reply is not lost to a reset, the connection is closed after it, and little was kept."""
    # However slowly it is sent on a busy machine.
    monkeypatch.setattr("holdfast.serve.bedrock.server.LINGER_S", 60.0)
    start, more = REFUSED_HALFWAY[kind]
    with served.client() as wordy, served.client() as other:
        wordy.send(start)
        for _ in range(256):  # 1 MB: far more than is needed to be refused
            wordy.send(more)
            assert served.server.buffered <= PORT_LINES_BYTES + READ_BYTES
        reply = wordy.receive()

        assert (reply.status, reply.headers["Connection"]) == ("413 Request too large", "close")
        assert wordy.receive() is None
        assert other.status("Ping") == "200 OK"
    until(lambda: not served.server.connections)
    assert served.server.buffered == 0


def test_who_never_stops_sending_is_cut_off(served, monkeypatch):
    """A little later, and whether it reads or not."""
    monkeypatch.setattr("holdfast.serve.bedrock.server.LINGER_S", 0.05)
    with served.client() as wordy:
        try:
            while True:
                wordy.send(b"x" * 4_096)
        except OSError:
            pass
    until(lambda: not served.server.connections)


def test_a_client_that_does_not_read_is_not_read_from(served):
    """Ten thousand requests at once do not pile up as replies; all are answered when it does."""
    with served.client() as client:
        sending = threading.Thread(target=client.send, args=(request("Status") * 10_000,))
        sending.start()
        replies = [client.receive().status for _ in range(10_000)]
        sending.join()

    assert set(replies) == {"200 OK"}


# ── nonsense ─────────────────────────────────────────────────────────────────────────────────────


def _fuzz(served, count, seed):
    """Mutated requests, a few to a connection; after each lot the next well-formed one is answered."""
    rng = random.Random(seed)
    sent = 0
    with served.client() as calm:
        while sent < count:
            # Few at a time: one that cannot be read to its end closes the connection.
            lot = [mutated(rng) for _ in range(5)]
            sent += len(lot)
            with served.client() as wild:
                try:
                    # Nothing of it may wait for a minute.
                    wild.send(b"".join(lot).replace(b"wait", b"w4it"))
                    wild.socket.shutdown(socket.SHUT_WR)
                    while wild.receive() is not None:
                        pass
                except (OSError, AssertionError):
                    pass
            assert calm.status("Ping") == "200 OK", (seed, sent)
        until(lambda: len(served.server.connections) == 1)
        until(lambda: served.server.buffered == 0)


def test_a_server_that_is_fed_nonsense_goes_on(served, request):
    """A thousand mutated requests, others on each store, the same each time; nothing is logged or kept."""
    _fuzz(served, 1_000, f"{SEED} {request.node.name}")


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_a_server_that_is_fed_new_nonsense_goes_on(served):
    """Twenty thousand more, new ones each time."""
    _fuzz(served, 20_000, int.from_bytes(os.urandom(8), "big"))
