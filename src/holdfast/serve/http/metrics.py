"""Metrics for Prometheus: what is in the store, read when it is asked for; see docs/metrics.md.

Tasks are labels, the busiest by name and all others as one, so that the number of series is bounded however
many tasks and tenants there are. A token of one tenant gets the numbers of that tenant.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response

from ...core import queries as q
from ...core.access import Grant
from ...core.history import EVER_MS, Bucket, GetHistory, TaskEnds
from ...core.indexed import Mark
from ...core.job import WaitKind
from ...engine.metrics import OTHERS, TASKS, TYPE, Family, Series, render
from ...store.common.clock import monotonic_s
from .exchange import Exchange

CONSUMERS = 100
STATES = ("ready", "held", "scheduled", "running", "paused", "failed", "finished", "cancelled")
OUTCOMES = ("finished", "failed", "cancelled", "retried")


async def metrics(exchange: Exchange, _request: Request, grant: Grant) -> Response:
    """All metrics of the store."""
    started_s = monotonic_s()
    overview: q.Overview = await exchange.ask(grant, q.GetOverview(only_own=True))
    (ever,) = await exchange.ask(grant, GetHistory(span_ms=EVER_MS))
    consumers: dict[str, Mark] = await exchange.ask(grant, q.ListConsumers(limit=CONSUMERS))
    families: list[Family] = [
        ("holdfast_jobs", "gauge", "Jobs by task and state.", _jobs(overview)),
        (
            "holdfast_oldest_waiting_seconds",
            "gauge",
            "How long the job waits that is claimed next.",
            _oldest(overview),
        ),
        ("holdfast_runs_total", "counter", "Runs that ended, by task and outcome.", _runs(ever)),
        ("holdfast_run_seconds_total", "counter", "How long runs took.", _seconds(ever)),
        ("holdfast_suspended_jobs", "gauge", "Functions by what they wait for.", _suspended(overview)),
        ("holdfast_workers", "gauge", "Workers that are alive.", [("", {}, overview.worker_count)]),
        ("holdfast_worker_jobs", "gauge", "Jobs that workers run.", [("", {}, overview.worker_jobs)]),
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


def _jobs(overview: q.Overview) -> Iterator[Series]:
    labels, sums = _labels(overview), dict[str, Counter[str]]()
    for task, counts in overview.tasks.items():
        states = sums.setdefault(labels[task], Counter())
        held = overview.held.get(task, 0)
        states["held"] += held
        states["ready"] += counts.get("WAITING", 0) - held
        for name, number in counts.items():
            states[name.lower()] += number
    for task, states in sums.items():
        for state in STATES:
            yield "", {"task": task, "state": state}, states[state]


def _suspended(overview: q.Overview) -> Iterator[Series]:
    labels, sums = _labels(overview), dict[str, Counter[str]]()
    for task, waits in overview.suspended.items():
        sums.setdefault(labels[task], Counter()).update(waits)
    for task, waits in sums.items():
        for kind in get_args(WaitKind):
            yield "", {"task": task, "waits_for": kind}, waits[kind]


def _oldest(overview: q.Overview) -> Iterator[Series]:
    oldest = dict[str, float]()
    for task, label in _labels(overview).items():
        due_at = overview.first_due.get(task, overview.now_ms)
        oldest[label] = max(oldest.get(label, 0.0), (overview.now_ms - due_at) / 1000)
    for label, waits_s in oldest.items():
        yield "", {"task": label}, waits_s


def _labels(overview: q.Overview) -> dict[str, str]:
    """The label of each task that has jobs: its name, for those with the most jobs that have not ended."""
    live = {
        task: sum(counts.get(name, 0) for name in ("WAITING", "SCHEDULED", "RUNNING", "PAUSED"))
        for task, counts in overview.tasks.items()
    }
    return _named(sorted(live, key=lambda task: (-live[task], task)))


def _ends(ever: Bucket) -> dict[str, TaskEnds]:
    """What ended by label. The store lists the same tasks for ever, so that no series decreases.

    A task that is named like the others is one of them.
    """
    found: dict[str, list[TaskEnds]] = {}
    for one in ever.tasks:
        found.setdefault(one.task or OTHERS, []).append(one)
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
    for name, mark in consumers.items():
        yield "", {"consumer": name}, mark.lag
