"""Runs a handler once with sample data, without a job: `holdfast handler run` and the dashboard."""

from ...core.handler import Handler
from .isolation import Isolation
from .records import HandlerJob, RunEvents, RunResult
from .runner import HandlerRunner


def run_once(handler: Handler, payload: bytes, isolation: Isolation, *, timeout_ms: int = 0) -> RunResult:
    """How a run of a handler ends in a context of its own; `timeout_ms` 0: the handler's limit alone."""
    results: list[RunResult] = []
    runner = HandlerRunner(isolation)
    try:
        events = RunEvents(lambda _job: True, lambda _job, result: results.append(result))
        job = HandlerJob(id=1, task=handler.task, payload=payload, timeout_ms=timeout_ms)
        runner.run(handler, [job], events)
    finally:
        runner.close()
    return results[0]
