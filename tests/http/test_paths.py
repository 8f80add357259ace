"""Paths and methods: names that are escaped in a path, and the heads of replies."""

from urllib.parse import quote

import pytest


@pytest.mark.parametrize("name", ["mail/send", "/", "a%2Fb", "50%", "ä/ö"])
def test_a_name_with_a_slash_can_be_in_a_path(client, name):
    """Escaped, as any other character that a path gives a meaning."""
    path = f"/v1/schedules/{quote(name, safe='')}"

    made = client.ok("PUT", path, {"every_ms": 600_000, "job": {"task": "t"}})
    paused = client.ok("POST", f"{path}/pause")
    client.ok("DELETE", path)

    assert (made["name"], paused["name"]) == (name, name)
    assert client.ok("GET", "/v1/schedules") == {"schedules": []}


def test_the_head_of_events_has_an_end(client):
    """The connection is free for the next request."""
    reply = client.ask("HEAD", "/v1/events")

    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert client.get("/healthz").json == {"status": "ok"}
