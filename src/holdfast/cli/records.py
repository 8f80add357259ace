"""Records as `--json` prints them: ids as text, times in ISO 8601, and always all fields.

Missing values are null. Keys and data may be any bytes: if they are not text, they are {"base64": "…"}.
"""

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from ..core.units import iso

if TYPE_CHECKING:
    from ..core.indexed import Mark
    from ..core.job import Job, Outcome
    from ..core.limits import Limit
    from ..core.notes import LogLine, StepResult
    from ..core.queries import Paused
    from ..core.schedule import Schedule
    from ..core.token import Token
    from ..core.worker import Worker

# An older rate of a consumer is not shown.
RATE_MS = 30_000


def moment(ms: int) -> str | None:
    """A time, or null for none."""
    return iso(ms) if ms else None


def number(job_id: int) -> str | None:
    """A job's id, or null for none."""
    return str(job_id) if job_id else None


def seconds(ms: int) -> float | None:
    """A duration in seconds, or null for none."""
    return ms / 1000 if ms else None


def plain(value: Any) -> Any:
    """A key or data: bytes that are not text as base64."""
    if not isinstance(value, bytes):
        return value
    return {"base64": b64encode(value).decode()}


def key(value: bytes | None) -> Any:
    """A domain or unique key: as text if it is valid UTF-8."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return plain(value)


def key_text(value: bytes | None) -> str:
    """The same for display."""
    return "" if value is None else value.decode(errors="backslashreplace")


def job_record(job: "Job") -> dict[str, Any]:
    """A job."""
    return {
        "id": str(job.id),
        "tenant": job.tenant,
        "task": job.task,
        "state": str(job.state),
        "place": job.place.name,
        "priority": job.priority,
        **_times(job),
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "losses": job.losses,
        "max_losses": job.max_losses,
        "timeout_s": seconds(job.timeout_ms),
        "retry_after": seconds(job.retry_after) if isinstance(job.retry_after, int) else job.retry_after,
        "repeat": job.repeat or None,
        "unique": key(job.unique),
        "domain": key(job.domain),
        "schedule": job.schedule or None,
        "parent_id": number(job.parent_id),
        "then": task_of(job.then),
        "on_failure": task_of(job.on_failure),
        "then_id": number(job.then_id),
        "children": {field: getattr(job.children, field) for field in ("pending", "failed", "kept")},
        "owner": job.owner or None,
        "claim": job.claim,
        "cancel_requested": job.cancel_requested,
        "progress": job.progress and {"fraction": job.progress.fraction, "note": job.progress.note},
        "reason": job.reason or None,
        "data_bytes": job.size,
        "steps_done": job.steps,
        "log_lines": job.log_lines,
        "trace_id": job.trace_id or None,
    }


def task_of(follower: str) -> str | None:
    """The task of a follow-up job, from its JSON."""
    return json.loads(follower)["task"] if follower else None


def _times(job: "Job") -> dict[str, str | None]:
    fields = ("created_at", "run_at", "started_at", "finished_at", "expires_at", "lease_until")
    return {field: moment(getattr(job, field)) for field in fields}


def line_record(line: "LogLine") -> dict[str, Any]:
    """A line of a job's log."""
    return {"at": moment(line.at), "claim": line.claim, "text": line.text}


def step_record(step: "StepResult") -> dict[str, Any]:
    """What a job has done, or waits for."""
    return {
        "number": step.number,
        "kind": step.kind,
        "name": step.name or None,
        "result": json.loads(step.result) if step.result else None,
        "at": moment(step.at),
        "claim": step.claim or None,
        "took_ms": step.took_ms or None,
        "until": moment(step.until),
        "ended": moment(step.ended),
        "jobs": [str(job_id) for job_id in step.jobs] or None,
    }


def outcome_record(end: "Outcome") -> dict[str, Any]:
    """How a run ended."""
    return {
        "code": str(end.code),
        "at": moment(end.at),
        "exit_code": end.exit_code,
        "error": end.error or None,
        "traceback": end.traceback or None,
        "cpu_ms": end.cpu_ms or None,
        "wall_ms": end.wall_ms or None,
    }


def limit_record(domain: bytes, limit: "Limit") -> dict[str, Any]:
    """A limit."""
    return {
        "domain": key(domain),
        "rate_per_s": limit.rate,
        "burst": limit.burst,
        "concurrency": limit.concurrency,
    }


def schedule_record(schedule: "Schedule", task: str, upcoming: list[int]) -> dict[str, Any]:
    """A schedule, with the task of its jobs and its next times."""
    return {
        "name": schedule.name,
        "tenant": schedule.tenant,
        "task": task,
        "cron": schedule.cron or None,
        "every_s": seconds(schedule.every_ms),
        "repeat": schedule.repeat or None,
        "tz": schedule.tz,
        "catch_up": schedule.catch_up,
        "overlap": schedule.overlap,
        "jitter_s": seconds(schedule.jitter_ms),
        "paused": schedule.paused,
        "ended": schedule.ended,
        "next": [moment(at) for at in upcoming],
        "last_at": moment(schedule.last_at),
        "last_id": number(schedule.last_id),
        "fired": schedule.fired,
        "skipped": schedule.skipped,
    }


def worker_record(worker: "Worker") -> dict[str, Any]:
    """A worker."""
    return {
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "started_at": moment(worker.started_at),
        "processes": worker.processes,
        "threads": worker.threads,
        "running": worker.running,
        "done": worker.done,
        "said_at": moment(worker.said_at),
        "stopping": worker.stopping,
        "blocked": [blocker.text() for blocker in worker.blocked if blocker.part != "slots"],
        "health_file": worker.health or None,
        "serves": [{"tenant": one.tenant, "tasks": list(one.tasks)} for one in worker.serves],
    }


def consumer_record(name: str, mark: "Mark", now: int) -> dict[str, Any]:
    """The progress of a consumer."""
    return {
        "name": name,
        "processed": mark.processed,
        "head": mark.head,
        "lag": mark.lag,
        "in_flight": mark.in_flight,
        "per_s": round(mark.per_s, 1) if now - mark.moved_ms <= RATE_MS else 0.0,
        "moved_at": moment(mark.moved_ms),
        "log": mark.log or None,
    }


def token_record(token: "Token") -> dict[str, Any]:
    """A token, without its hash."""
    return {
        "name": token.name,
        "tenant": token.tenant,
        "scopes": [str(scope) for scope in token.scopes],
        "expires_at": moment(token.expires_at),
        "created_at": moment(token.created_at),
    }


def pause_text(pause: "Paused") -> str:
    """A pause as text."""
    tenant, task, domain = pause
    if task is not None:
        return f"task {task}" if tenant is not None else f"task {task} of all tenants"
    if domain is not None:
        return f"domain {key_text(domain)}"
    return f"tenant {tenant}" if tenant else "all jobs"
