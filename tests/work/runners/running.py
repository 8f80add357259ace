"""Helpers that run handlers in real contexts."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from holdfast.core.handler import Handler, RunnerOptions
from holdfast.work.runners.records import HandlerJob, RunEvents, RunResult
from holdfast.work.runners.runner import HandlerRunner


@contextmanager
def replying(reply: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server of an http handler, in a thread; its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), reply)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def handler(lang: str, body: str, *, task: str = "t", tenant: str = "acme", **fields: Any) -> Handler:
    """A handler; fields that are options go there."""
    options = {name: fields.pop(name) for name in list(fields) if name in RunnerOptions.__struct_fields__}
    return Handler(task=task, tenant=tenant, lang=lang, body=body, options=RunnerOptions(**options), **fields)


def value(result: RunResult) -> Any:
    """The JSON value of a result."""
    assert isinstance(result.body, str)
    return json.loads(result.body)


def run(
    runner: HandlerRunner,
    what: Handler,
    payloads: Sequence[bytes] = (b"{}",),
    *,
    limits_ms: Sequence[int] = (),
) -> list[RunResult]:
    """Run a job for each payload; returns their results in order, each started and ended exactly once."""
    started: list[int] = []
    ended: dict[int, RunResult] = {}

    def on_ended(job: HandlerJob, result: RunResult) -> None:
        assert job.id not in ended
        ended[job.id] = result

    def on_started(job: HandlerJob) -> bool:
        started.append(job.id)
        return True

    limits = limits_ms or [0] * len(payloads)
    jobs = [
        HandlerJob(id=n, task=what.task, payload=data, timeout_ms=limit)
        for n, (data, limit) in enumerate(zip(payloads, limits, strict=True), 1)
    ]
    runner.run(what, jobs, RunEvents(on_started, on_ended))
    assert started == [job.id for job in jobs] == list(ended)
    return [ended[job.id] for job in jobs]
