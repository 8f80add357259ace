"""Runs a handler once with sample data, without a job: `holdfast handler run` and the dashboard."""

from ...core.handler import Handler
from .isolation import Isolation
from .records import HandlerJob, RunEvents, RunResult
from .runner import HandlerRunner


def run_once(handler: Handler, payload: bytes, isolation: Isolation) -> RunResult:
    """How a run of a handler ends in a context of its own."""
    results: list[RunResult] = []
    runner = HandlerRunner(isolation)
    try:
        events = RunEvents(lambda _job: True, lambda _job, result: results.append(result))
        job = HandlerJob(id=1, task=handler.task, payload=payload)
        runner.run(handler, [job], events)
    finally:
        runner.close()
    return results[0]
