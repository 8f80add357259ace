"""`holdfast serve --journal`: clients add while the store is stopped."""

from contextlib import closing

import holdfast
from tests.http.served import Client
from tests.ports import free_port
from tests.remote.processes import ServerProcess
from tests.servers import postgres_or_skip


def test_clients_add_while_the_store_is_stopped(tmp_path):
    """Over HTTP, singly and by many, and over gRPC."""
    port = free_port()
    options = ("--journal", str(tmp_path / "j"), "--http", f"127.0.0.1:{port}")
    with (
        closing(postgres_or_skip()) as store,
        ServerProcess(store.url(connect_timeout="1"), tmp_path, *options) as server,
        Client(("127.0.0.1", port)) as client,
        holdfast.connect(server.url) as remote,
    ):
        added = [remote.add("work", "before").id]
        store.stop(immediately=True)

        added.append(int(client.ok("POST", "/v1/jobs", {"task": "work", "data": 1})["id"]))
        lines = client.ask(
            "POST",
            "/v1/jobs",
            b'{"task":"work","data":2}\n{"task":"work","data":3}\n',
            {"Content-Type": "application/x-ndjson"},
        ).lines
        added += [int(line["id"]) for line in lines]
        added += [one.id for one in remote.add_many([("work", n) for n in range(4, 50)])]
        store.start()
        found = {job: remote.data(job) for job in added}

    assert list(found.values()) == ["before", *range(1, 50)]
