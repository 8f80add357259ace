"""Metrics for Prometheus: what is in the store, read when it is asked for; see docs/metrics.md.

Tasks are labels, the busiest by name and all others as one, so that the number of series is bounded however
many tasks and tenants there are. A token of one tenant gets the numbers of that tenant.
"""

from collections.abc import Iterable, Iterator

from starlette.requests import Request
from starlette.responses import Response

from ...core import queries as q
from ...core.access import Grant
from ...core.history import EVER_MS, Bucket, GetHistory, TaskEnds
from ...core.indexed import Mark
from ...core.searching import ListTasks, TaskState
from ...engine.metrics import OTHERS, TASKS, TYPE, Family, Series, render
from ...store.common.clock import monotonic_s
from .exchange import Exchange

CONSUMERS = 100
STATES = ("ready", "held", "scheduled", "running", "paused", "failed", "finished", "cancelled")
OUTCOMES = ("finished", "failed", "cancelled", "retried")


async def metrics(exchange: Exchange, _request: Request, grant: Grant) -> Response:
    """All metrics of the store."""
    started_s = monotonic_s()
    now_ms: int = await exchange.ask(grant, q.GetTime())
    tasks: list[TaskState] = await exchange.ask(grant, ListTasks(limit=10_000))
    (ever,) = await exchange.ask(grant, GetHistory(span_ms=EVER_MS))
    workers = await exchange.ask(grant, q.ListWorkers())
    running = sum(worker.running for worker in workers)
    consumers: dict[str, Mark] = await exchange.ask(grant, q.ListConsumers())
    families: list[Family] = [
        ("holdfast_jobs", "gauge", "Jobs by task and state.", _jobs(tasks)),
        (
            "holdfast_oldest_waiting_seconds",
            "gauge",
            "How long the job waits that is claimed next.",
            _oldest(tasks, now_ms),
        ),
        ("holdfast_runs_total", "counter", "Runs that ended, by task and outcome.", _runs(ever)),
        ("holdfast_run_seconds_total", "counter", "How long runs took.", _seconds(ever)),
        ("holdfast_workers", "gauge", "Workers that are alive.", [("", {}, len(workers))]),
        ("holdfast_worker_jobs", "gauge", "Jobs that workers run.", [("", {}, running)]),
        ("holdfast_consumer_lag", "gauge", "Items that a consumer has yet to process.", _lag(consumers)),
        (
            "holdfast_store_read_seconds",
            "gauge",
            "How long the store took to answer for these metrics.",
            [("", {}, monotonic_s() - started_s)],
        ),
    ]
    if grant.tenant is None:
        families += exchange.commits.families()
    return Response(render(families), 200, None, TYPE)


def _named(tasks: Iterable[str]) -> dict[str, str]:
    """The label of each task; those beyond the first are others."""
    return {task: task if at < TASKS else OTHERS for at, task in enumerate(dict.fromkeys(tasks))}


def _jobs(tasks: list[TaskState]) -> Iterator[Series]:
    labels, sums = _named(one.task for one in tasks), dict[tuple[str, str], int]()
    for one in tasks:
        for state in STATES:
            key = (labels[one.task], state)
            sums[key] = sums.get(key, 0) + getattr(one, state)
    for (task, state), number in sums.items():
        yield "", {"task": task, "state": state}, number


def _oldest(tasks: list[TaskState], now_ms: int) -> Iterator[Series]:
    labels, oldest = _named(one.task for one in tasks), dict[str, float]()
    for one in tasks:
        waits_s = max(now_ms - one.first_due_at, 0) / 1000 if one.first_due_at else 0.0
        oldest[labels[one.task]] = max(oldest.get(labels[one.task], 0.0), waits_s)
    for task, waits_s in oldest.items():
        yield "", {"task": task}, waits_s


def _ends(ever: Bucket) -> dict[str, TaskEnds]:
    """What ended by label: of all tenants together, in the order of how busy they are."""
    labels = _named(one.task for one in ever.tasks if one.task)
    found: dict[str, list[TaskEnds]] = {}
    for one in ever.tasks:
        found.setdefault(labels.get(one.task, OTHERS), []).append(one)
    fields = (*OUTCOMES, "run_ms")
    return {
        label: TaskEnds(**{field: sum(getattr(one, field) for one in ends) for field in fields})
        for label, ends in found.items()
    }


def _runs(ever: Bucket) -> Iterator[Series]:
    for task, ends in _ends(ever).items():
        for outcome in OUTCOMES:
            yield "", {"task": task, "outcome": outcome}, getattr(ends, outcome)


def _seconds(ever: Bucket) -> Iterator[Series]:
    for task, ends in _ends(ever).items():
        yield "", {"task": task}, ends.run_ms / 1000


def _lag(consumers: dict[str, Mark]) -> Iterator[Series]:
    for name, mark in list(consumers.items())[:CONSUMERS]:
        yield "", {"consumer": name}, mark.lag
