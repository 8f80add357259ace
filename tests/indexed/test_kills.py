"""Consumers and pipelines whose processes are killed, at any moment, again and again.

life ──────✕   what it did and how far it was stands in a ledger outside the system
      └──▶ life ──────✕
                 └──▶ …  ──▶ a last life to the end ──▶ the ledger is read
"""

import random
import time

import pytest

import holdfast
from holdfast.indexed import Log, consumers
from tests.indexed import roles
from tests.stress.crew import Crew
from tests.stress.ledger import read

# The stores that outlive a process, by their addresses.
URLS = {"sqlite": lambda folder: str(folder / "jobs.db")}
KILLS = [pytest.param(5, id="small"), pytest.param(200, id="full", marks=pytest.mark.proof)]
# How long a life lasts that is cut off, and how much there is to do for each.
LIFE_S = 0.25
PER_LIFE = 250


@pytest.fixture(params=URLS)
def url(request, tmp_path):
    """The address of a fresh store."""
    return URLS[request.param](tmp_path)


@pytest.mark.parametrize("role", [roles.consume, roles.consume_async], ids=["threads", "asyncio"])
@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_consumer_skips_nothing_and_never_goes_back(url, tmp_path, role, kills):
    """Every index is done, each life goes on where the last one's progress was, and it only goes forward."""
    book, rng = tmp_path / "ledger", random.Random()
    last = kills * PER_LIFE
    with holdfast.connect(url) as queue:
        Log(queue, "log", int).append_many(range(1, last + 1))

    stored = []
    for _ in range(kills):
        with Crew() as crew:
            victim = crew.start(role, url=url, ledger=str(book), last=last)
            assert victim.hear() == "ready"
            time.sleep(rng.uniform(0, LIFE_S))
            crew.kill(victim)
        stored.append(progress_in(url))
    with Crew() as crew:
        survivor = crew.start(role, url=url, ledger=str(book), last=last)
        assert [survivor.hear(), survivor.hear(patience_s=600)] == ["ready", "over"]
        crew.finish(survivor)

    events = read(book)
    assert {event["index"] for event in events if event["event"] == "did"} == set(range(1, last + 1))
    assert stored == sorted(stored)
    assert progress_in(url) == last
    check_lives(events, stored)


def progress_in(url):
    """The progress that a store has."""
    with holdfast.connect(url) as queue:
        return consumers(queue)["c"].processed


def check_lives(events, stored):
    """Each life begins where the store says, does nothing below, and moves without a gap."""
    begins = [event["at"] for event in events if event["event"] == "life"]
    assert begins == [0, *stored]
    told = at = 0
    done: set[int] = set()
    for event in events:
        if event["event"] == "life":
            # What was told is stored; the last write may not have been told any more.
            assert event["at"] >= told
            at = told = event["at"]
        elif event["event"] == "moved":
            assert event["old"] == told
            assert event["new"] > event["old"]
            assert set(range(1, event["new"] + 1)) <= done
            told = event["new"]
        else:
            assert event["index"] > at
            done.add(event["index"])


@pytest.mark.parametrize("kills", KILLS)
def test_a_pipeline_whose_processes_are_killed_ends_with_the_same_result(url, tmp_path, kills):
    """Both stages, each in a process of its own; the result is that of a run without kills."""
    book, rng = tmp_path / "ledger", random.Random()
    head = kills * 60
    files = {"url": url, "ledger": str(book), "head": head}

    with Crew() as crew:
        members = {name: crew.start(roles.be_a_stage, **files, only=[name]) for name in ("cut", "verify")}
        for _ in range(kills):
            name = rng.choice(["cut", "verify"])
            assert members[name].hear() == "ready"
            time.sleep(rng.uniform(0, LIFE_S))
            crew.kill(members[name])
            members[name] = crew.start(roles.be_a_stage, **files, only=[name])
        wait_for(url, {"p.cut": head, "p.verify": chunk_count(head)})

    found = {(e["height"], e["number"]): e["value"] for e in read(book)}
    assert found == unkilled(head)
    with holdfast.connect(url) as queue:
        # No block that was cut twice has brought a chunk twice.
        assert Log(queue, "chunks", roles.Chunk).head() == chunk_count(head)


def chunk_count(head):
    """How many chunks so many blocks have."""
    return sum(len(roles.block_at(height).chunks) for height in range(1, head + 1))


def unkilled(head):
    """What comes of it when nobody is killed."""
    return {
        (height, number): roles.verified(roles.Chunk(height, number))
        for height in range(1, head + 1)
        for number in roles.block_at(height).chunks
    }


def wait_for(url, wanted):
    """Until consumers have come that far."""
    until = time.monotonic() + 600
    with holdfast.connect(url) as queue:
        while {name: mark.processed for name, mark in consumers(queue).items()} != wanted:
            assert time.monotonic() < until, consumers(queue)
            queue.connection.store.shards[0].wait(1.0)
