"""What the fields of requests and replies mean, and their bounds, for the OpenAPI document.

A field has the same meaning wherever its name occurs, so it is described once. `core.incoming` and
`core.checks` refuse what is outside the bounds.
"""

from typing import Any

from ...core import bounds as b
from ...core.ids import SYSIDS
from ...core.incoming import MOST_AT_ONCE

ABOUT: dict[str, str] = {
    "after": "Only what comes after this id, index or cursor.",
    "after_each": "The script that runs after each job.",
    "after_task": "Only tasks after this one.",
    "again_at": "When a repeated job runs again.",
    "answers": "The answers, each with the claim that it is for.",
    "archived": "Whether jobs in the archive are included: finished and cancelled ones.",
    "as_claimed": "Whether the job is returned as it was when it was claimed.",
    "at": "When it happened.",
    "attempts": "Runs that ended in an error or a retry.",
    "backoff": "The delay before another run: the first one, the longest, and the random part of it.",
    "batch_size": "How many jobs one call of the handler gets.",
    "before": "Only what comes before this id.",
    "before_each": "The script that runs before each job.",
    "before_ms": "Only jobs that ended before this time.",
    "body": "The script that runs for each job.",
    "burst": "Starts that may follow each other at once.",
    "cancel_requested": "Whether the handler was asked to stop.",
    "catch_up": "What becomes of times that were missed: none, one or all of them run.",
    "children": "Counts of the job's children.",
    "claim": "The number of the claim. It only rises; an answer with an older number is refused.",
    "client": "The tenant.",
    "code": "How the run ended: ok, failed, retry or error.",
    "concurrency": "Jobs of the domain that may run at once.",
    "context_age_ms": "How old a context of the handler may become.",
    "context_jobs": "How many jobs a context of the handler runs.",
    "count": "How many.",
    "counts": "Whether the run counts as an attempt.",
    "cpu_ms": "Processor time that one job may use.",
    "created_at": "When the job was added.",
    "cron": "The times as a cron line of five fields.",
    "crowd": "How many jobs that process ran.",
    "cursor": "Where the next page begins; from the page before.",
    "data": "What the task gets: any JSON value.",
    "delay_ms": "How long from now.",
    "domain": "What limits count jobs by, for example a host or a customer.",
    "eid": "Which of a tenant's contexts a job runs in.",
    "ended": "How the job ended.",
    "error": "What went wrong, in a line.",
    "errors": "The last runs that ended in an error or a retry.",
    "every_ms": "The interval between two runs.",
    "exit_code": "How the run ended, as a number.",
    "expires_at": "After this time the job neither starts nor runs again; a token is refused.",
    "expires_in_ms": "How long until it expires.",
    "failed": "How many have failed.",
    "finished_at": "When the job ended.",
    "first_ms": "The first delay.",
    "force": "Whether a running job is ended at once, without asking its handler.",
    "forgive": "How many of its losses are forgotten; null: all.",
    "fraction": "How much is done, from 0 to 1.",
    "glob": "Only tasks whose names match this pattern.",
    "handled": "Whether only tasks with a stored handler are claimed.",
    "has_result": "Whether the job has a result.",
    "head": "The last index of the log.",
    "hold": "The claim of a job: its id, the owner and the number of the claim.",
    "id": "The id.",
    "ids": "Ids that were reserved for the jobs.",
    "ignore_repeat": "Whether a repeated job ends for good.",
    "into": "The field of the next job's data that gets the result.",
    "items": "The items, in order.",
    "jitter": "The random part of a delay, from 0 to 1.",
    "jitter_ms": "By how much a run may be late, at random.",
    "job": "The job.",
    "job_id": "The id of a job.",
    "job_ids": "Ids of jobs.",
    "jobs": "Jobs, in order.",
    "key": "A key by which an item is added once.",
    "lang": "The language of the handler.",
    "last_run": "When the job was claimed before; 0: never.",
    "lease_ms": "How long the claim holds unless it is extended.",
    "lease_until": "When the claim ends unless it is extended.",
    "limit": "How many at the most; of a domain, its limit.",
    "lines": "Lines of the job's log.",
    "log": "The name of a log.",
    "losses": "Runs whose process died, or whose lease ran out.",
    "lost": "Whether the process that ran it died.",
    "max_attempts": "Runs that may end in an error or a retry before the job has failed.",
    "max_losses": "Runs that may be lost before the job has failed. 1: the job runs at most once.",
    "memory_mb": "Memory that a context of the handler may use.",
    "method": "The language of the script.",
    "mock": "Whether it is a job for tests, which only such claims get.",
    "more": "The data of further jobs that are like the first.",
    "most_ms": "The longest delay.",
    "name": "The name.",
    "next_at": "When it runs next.",
    "note": "What is done, in words.",
    "on": "Whether it is paused.",
    "on_conflict": "If another job holds the unique key: keep that one, or merge into or replace its data.",
    "only_own": "Whether only jobs of workers that the client knows are counted.",
    "options": "The limits of the handler.",
    "outcome": "How the last run ended.",
    "overlap": "What becomes of a run that is due while the one before still runs: skip, wait or allow.",
    "owner": "The number of the process that has the claim.",
    "parent_id": "The job whose child it is.",
    "paused": "Whether it is paused.",
    "payload": "What the task gets: any JSON value.",
    "picks": "How many jobs of which tenant and task.",
    "place": "Where the store keeps the job.",
    "priority": "Higher ones run first; 500 unless it is set.",
    "processed": "All items up to this index were processed.",
    "progress": "What the handler reported last.",
    "ran_ms": "How long the run took.",
    "rate": "Starts in a second.",
    "reason": "Why it ended so.",
    "repeat": "When the job runs again after it has finished, as job commands write it.",
    "result": "What the task returned: any JSON value.",
    "retention_ms": "How long ended jobs are kept in the archive.",
    "retry_after": "After this time without an answer the job is claimed again.",
    "run_after_secs": "How long from now, in seconds.",
    "run_at": "When the job is due.",
    "running": "How many run now, or which.",
    "schedule": "The name of a schedule.",
    "scheduled_at": "The time for which the schedule added the job.",
    "scopes": "What the token allows.",
    "secret": "The secret of the token. It is shown once.",
    "size": "Bytes of data.",
    "start": "Where to begin.",
    "started_at": "When the job was claimed last.",
    "state": "The state of a job.",
    "step_ms": "How much time each point stands for.",
    "strict": "Whether the job follows the rules of job commands.",
    "task": "The name of the task.",
    "tasks": "Names of tasks.",
    "tenant": "Whom jobs belong to; empty where there is only one.",
    "tenants": "Names of tenants.",
    "text": "The text.",
    "then": "The job that is added when this one has finished.",
    "timeout_ms": "How long a run may take.",
    "to": "The index to move to.",
    "token": "The token.",
    "traceback": "The end of the traceback.",
    "traceparent": "The span that added the job, as in the W3C header.",
    "type": "The name of the task.",
    "tz": "The time zone, as in `Europe/Berlin`.",
    "unique": "A key that one unfinished job can hold.",
    "unique_for_ms": "How long the key is held on after the end.",
    "up_to": "The last index that is removed.",
    "version": "The version.",
    "wait": "How long to wait for a reply, in seconds.",
    "wait_for_failed": "Whether a failed child keeps its parent waiting.",
    "wall_ms": "How long one job may take.",
    "workers": "Workers.",
}

_TIME, _DURATION, _INDEX = (0, b.MAX_TIME_MS), (0, b.MAX_DURATION_MS), (0, b.MAX_INDEX)
BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("run_at", "expires_at", "before_ms", "created_at", "started_at", "finished_at"), _TIME),
    **dict.fromkeys(("lease_until", "scheduled_at", "again_at", "next_at", "last_run"), _TIME),
    **dict.fromkeys(("delay_ms", "expires_in_ms", "timeout_ms", "unique_for_ms", "ran_ms"), _DURATION),
    **dict.fromkeys(("every_ms", "jitter_ms", "retention_ms", "wall_ms", "cpu_ms"), _DURATION),
    **dict.fromkeys(("to", "up_to", "resets", "keep_keys", "processed", "head"), _INDEX),
    "priority": (0, b.MAX_PRIORITY),
    "max_attempts": (0, b.MAX_ATTEMPTS),
    "max_losses": (0, b.MAX_ATTEMPTS),
    "limit": (0, MOST_AT_ONCE),
    "owner": (0, SYSIDS - 1),
    "exit_code": (-(1 << 31), (1 << 31) - 1),
    "rate": (b.MIN_RATE_PER_S, b.MAX_RATE_PER_S),
    "burst": (0, b.MAX_BURST),
    "concurrency": (0, b.MAX_CONCURRENCY),
    "fraction": (0, 1),
    "jitter": (0, 1),
    "wait": (0, b.HTTP_WAIT_S),
    "run_after_secs": (0, b.MAX_DURATION_MS / b.SECOND_MS),
    **dict.fromkeys(("forgive", "crowd"), _INDEX),
}


def describe_field(name: str, schema: dict[str, Any]) -> None:
    """Add the description and the bounds of a field to its schema."""
    if name in ABOUT:
        schema.setdefault("description", ABOUT[name])
    for one in (schema, *schema.get("anyOf", ())):
        if name in BOUNDS and one.get("type") in ("integer", "number"):
            one["minimum"], one["maximum"] = BOUNDS[name]


def describe_all(found: Any) -> None:
    """Add the descriptions and bounds of all fields to the schemas in a part of the document."""
    if isinstance(found, dict):
        for name, schema in found.get("properties", {}).items():
            describe_field(name, schema)
        for value in found.values():
            describe_all(value)
    elif isinstance(found, list):
        for value in found:
            describe_all(value)
