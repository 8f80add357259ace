"""Requests that take the server long: all others have their turn meanwhile."""

import asyncio
import json
import threading
import time

import pytest

from holdfast.serve.dashboard import parts
from holdfast.serve.http import jobs

# Far more than it takes to refuse a name, and far less than to look for one that is like it.
SOON_S = 5.0


def test_lines_are_read_a_few_at_a_time():
    """A request has up to three million of them."""
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def read():
        other = asyncio.create_task(count())
        found = await jobs._read_lines(b'{"task":"t","data":1}\n' * 10 * jobs.READ_AT_ONCE)
        other.cancel()
        return len(found)

    assert asyncio.run(read()) == 10 * jobs.READ_AT_ONCE
    assert turns >= 10


@pytest.mark.parametrize(
    "name", ["ab" * 10_000_000, "unknown field `" * 700_000 + "\n"], ids=("ab", "quoted")
)
def test_the_name_of_an_unknown_field_is_told_as_far_as_a_reader_needs_it(client, name):
    """However long it is: what it was meant to be is not looked for."""
    body = json.dumps({"task": "t", name: 1}).encode()
    began_s = time.process_time()

    reply = client.ask("POST", "/v1/jobs", body, {"Content-Type": "application/json"})

    assert reply.status == 400
    assert f"unknown field `{name[:100]}" in reply.json["detail"]
    assert len(reply.body) < 2_000
    assert time.process_time() - began_s < SOON_S


@pytest.mark.parametrize(("size", "is_elsewhere"), [(1_000, False), (200_000, True)])
def test_large_data_is_prepared_for_a_page_in_another_thread(monkeypatch, size, is_elsewhere):
    """That of most jobs is not."""
    threads = []
    show = parts._show

    def noted(*args, **options):
        threads.append(threading.get_ident())
        return show(*args, **options)

    monkeypatch.setattr(parts, "_show", noted)

    shown = asyncio.run(
        parts.show(json.dumps({"token": "x", "list": [{"password": "y"}] + [1] * (size // 3)}))
    )

    assert shown.hidden == 2
    assert (threads[0] != threading.get_ident()) is is_elsewhere
