"""The verbs: each has one row, from which HTTP, its OpenAPI document and the command line are made.

A row names the record that is asked (its fields are the options), its path over HTTP and its command. Fields
in the path are named there and are arguments of the command; the others are in the query of a GET or DELETE,
in the JSON body of all else, and options of the command. A holder's verbs have `owner` and `claim` instead of
a `hold`. `cli/verbs.py` has what the command line adds: how a reply is shown, and what asks more than once.

`REPLIES` has all commands and queries by name, and the type of each reply: for clients in other processes.
"""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from . import commands as c
from . import handler as h
from . import queries as q
from .bounds import DEFAULT_LEASE_MS
from .commands import RunSchedule, SetRetention, StopWorker, TakenSysid, TakeSysid
from .defaults import Defaults
from .errors import Fault
from .handler import (
    DeleteHandler,
    FindHandlers,
    GetHandler,
    Handler,
    ListHandlers,
    ListHandlerVersions,
    RollBackHandler,
    SetHandler,
)
from .history import Bucket, GetHistory
from .ids import IdRange
from .indexed import Mark
from .job import Body, Job
from .notes import JobLog, StepResult
from .queries import GetRetention, JobPage, ListTasks, SearchJobs, TaskState
from .schedule import Schedule
from .token import Token
from .worker import Worker

REPLIES: dict[type[c.Command | q.Query], Any] = {
    **dict.fromkeys((c.Add, RunSchedule), list[int]),
    c.Claim: list[c.Claimed],
    # A refused answer has an error in its place, which is sent as a `Fault`.
    c.AnswerAll: list[Job | Fault],
    **dict.fromkeys(
        (c.Answer, c.Release, c.Extend, c.Report, c.Step, c.WriteLog, c.Update, c.Cancel, c.Requeue), Job
    ),
    **dict.fromkeys(
        (
            c.RequeueAll,
            c.Delete,
            c.SendSignal,
            c.SetLimit,
            c.Pause,
            c.DeleteSchedule,
            c.Enlist,
            c.Publish,
            c.Dismiss,
            StopWorker,
            SetRetention,
            c.RevokeToken,
            DeleteHandler,
        ),
        None,
    ),
    **dict.fromkeys((c.SetSchedule, c.PauseSchedule), Schedule),
    c.Purge: int,
    **dict.fromkeys((c.StartProgress, c.MoveProgress, c.SetProgress), Mark),
    c.Append: list[tuple[int, bool]],
    c.TrimLog: int,
    c.Await: c.Ended | str | None,
    c.Upkeep: int | None,
    c.CreateToken: Token,
    c.ReserveIds: list[IdRange],
    TakeSysid: TakenSysid,
    **dict.fromkeys((SetHandler, RollBackHandler, GetHandler), Handler),
    q.GetJob: Job,
    q.GetData: Body,
    q.GetSteps: list[StepResult],
    q.LoadEnded: list[c.Ended],
    q.GetLog: JobLog,
    q.Explain: str,
    q.LoadJobs: q.Loaded,
    q.LoadFamilies: dict[int, q.Family],
    **dict.fromkeys((q.ListJobs, q.ListChildren), list[Job]),
    q.SelectJobs: bytes,
    q.CountJobs: list[tuple[q.JobKind, int]],
    q.CheckCounts: list[tuple[q.JobKind, int, int]],
    q.HasUnfinished: bool,
    **dict.fromkeys((q.CountReady, q.GetTime, GetRetention), int),
    q.ListWaiting: list[q.Waiting],
    q.ListLimits: list[q.LimitLoad],
    q.ListSchedules: list[q.Planned],
    q.ListPauses: list[q.Paused],
    q.ListDefaults: list[tuple[str | None, str, Defaults]],
    q.ListWorkers: list[Worker],
    q.GetOverview: q.Overview,
    q.GetNextMoment: int | None,
    q.GetReport: tuple[dict[str, str], list[str]],
    q.ListTokens: list[Token],
    q.FindToken: Token | None,
    q.ListConsumers: dict[str, Mark],
    q.GetProgress: Mark,
    q.ReadLog: q.LogPage,
    GetHistory: list[Bucket],
    SearchJobs: JobPage,
    ListTasks: list[TaskState],
    **dict.fromkeys((FindHandlers, ListHandlers, ListHandlerVersions), list[Handler]),
}

# For decoders; the type checker knows `Command`.
if TYPE_CHECKING:
    AnyCommand = c.Command
else:
    AnyCommand = reduce(or_, (kind for kind in REPLIES if issubclass(kind, c.Command)))


Asked = type[c.Command | q.Query]


class VerbRow(NamedTuple):
    """One verb. `reply` names what is replied, in an object; "": it is an object itself, or nothing."""

    method: str
    path: str
    kind: Asked
    # The command, perhaps one below another ("workers stop"), or an option of one ("schedule --run"). "": it
    # is only for programs, such as workers.
    command: str = ""
    reply: str = ""
    # Fields that the verb settles.
    fixed: dict[str, Any] = {}
    # Fields that have another default here than in the record.
    defaults: dict[str, Any] = {}
    status: int = 200
    # It may wait: `wait`, in seconds.
    waits: bool = False
    # HTTP reads its request or writes its reply by hand (`serve/http/api.py`).
    by_hand: bool = False

    @property
    def name(self) -> str:
        """What it is called in the OpenAPI document."""
        words = (
            self.path.replace("{", "by/")
            .replace("}", "")
            .removeprefix("/v1/")
            .replace(":path", "")
            .split("/")
        )
        return self.method.lower() + "".join(word.capitalize() for word in words)

    @property
    def description(self) -> str:
        """What it does, in a sentence or more."""
        return " ".join((self.kind.__doc__ or "").split())

    @property
    def summary(self) -> str:
        """What it does, in one sentence."""
        return self.description.partition(". ")[0].rstrip(".") + "."


VERBS = (
    # Jobs
    VerbRow("POST", "/v1/jobs", c.Add, "add", by_hand=True),
    VerbRow("GET", "/v1/jobs", q.ListJobs, "jobs", by_hand=True),
    VerbRow("GET", "/v1/jobs/{job_id}", q.GetJob, "show"),
    VerbRow("PATCH", "/v1/jobs/{job_id}", c.Update, "update", fixed={"hold": None}),
    VerbRow("DELETE", "/v1/jobs/{job_id}", c.Delete, "delete", status=204),
    VerbRow("POST", "/v1/jobs/{job_id}/cancel", c.Cancel, "cancel"),
    VerbRow("POST", "/v1/jobs/{job_id}/requeue", c.Requeue, "requeue"),
    VerbRow("POST", "/v1/jobs/{job_id}/signals/{name}", c.SendSignal, "signal", status=204, by_hand=True),
    VerbRow("GET", "/v1/jobs/{job_id}/data", q.GetData, "show", by_hand=True),
    VerbRow("GET", "/v1/jobs/{job_id}/result", c.Await, "show", by_hand=True),
    VerbRow("GET", "/v1/jobs/{job_id}/children", q.ListChildren, "show", by_hand=True),
    VerbRow("GET", "/v1/jobs/{job_id}/steps", q.GetSteps, "show", reply="steps"),
    VerbRow("GET", "/v1/jobs/{job_id}/log", q.GetLog, "show"),
    VerbRow("GET", "/v1/jobs/{job_id}/why", q.Explain, "why", reply="why"),
    # For workers. A claim without an end is none of these: a client that dies would keep its jobs forever.
    VerbRow("POST", "/v1/claims", c.Claim, reply="jobs", defaults={"lease_ms": DEFAULT_LEASE_MS}, waits=True),
    VerbRow("POST", "/v1/jobs/{job_id}/answer", c.Answer),
    VerbRow("POST", "/v1/jobs/{job_id}/release", c.Release),
    VerbRow("POST", "/v1/jobs/{job_id}/extend", c.Extend),
    VerbRow("POST", "/v1/jobs/{job_id}/progress", c.Report),
    VerbRow("POST", "/v1/jobs/{job_id}/steps", c.Step),
    VerbRow("POST", "/v1/jobs/{job_id}/log", c.WriteLog),
    VerbRow("POST", "/v1/ids", c.ReserveIds, reply="ranges"),
    # The store
    VerbRow("GET", "/v1/counts", q.CountJobs, "counts", reply="counts"),
    VerbRow("GET", "/v1/overview", q.GetOverview, "top"),
    VerbRow("GET", "/v1/time", q.GetTime, reply="now_ms"),
    VerbRow("POST", "/v1/purge", c.Purge, "purge", reply="purged"),
    VerbRow("GET", "/v1/retention", GetRetention, "retention", reply="retention_ms"),
    VerbRow("PUT", "/v1/retention", SetRetention, "retention", status=204),
    VerbRow("GET", "/v1/workers", q.ListWorkers, "workers", reply="workers"),
    VerbRow("POST", "/v1/workers/{name}/stop", StopWorker, "workers stop", status=204),
    # Limits, pauses and schedules
    VerbRow("GET", "/v1/limits", q.ListLimits, "limits", reply="limits"),
    VerbRow("PUT", "/v1/limits/{domain:path}", c.SetLimit, "limit", status=204),
    VerbRow(
        "DELETE", "/v1/limits/{domain:path}", c.SetLimit, "limit --off", fixed={"limit": None}, status=204
    ),
    VerbRow("GET", "/v1/pauses", q.ListPauses, "counts", reply="pauses"),
    VerbRow("POST", "/v1/pauses", c.Pause, "pause", status=204),
    VerbRow("DELETE", "/v1/pauses", c.Pause, "resume", fixed={"on": False}, status=204),
    VerbRow("GET", "/v1/schedules", q.ListSchedules, "schedules", reply="schedules"),
    VerbRow("PUT", "/v1/schedules/{name}", c.SetSchedule, "schedule"),
    VerbRow("DELETE", "/v1/schedules/{name}", c.DeleteSchedule, "schedule --delete", status=204),
    VerbRow("POST", "/v1/schedules/{name}/pause", c.PauseSchedule, "schedule --pause", fixed={"on": True}),
    VerbRow("POST", "/v1/schedules/{name}/resume", c.PauseSchedule, "schedule --resume", fixed={"on": False}),
    VerbRow("POST", "/v1/schedules/{name}/run", RunSchedule, "schedule --run", reply="ids"),
    # Handlers
    VerbRow("GET", "/v1/handlers", h.ListHandlers, "handler list", reply="handlers"),
    VerbRow("GET", "/v1/handlers/{task}", h.GetHandler, "handler get"),
    VerbRow("PUT", "/v1/handlers/{task}", h.SetHandler, "handler set"),
    VerbRow("DELETE", "/v1/handlers/{task}", h.DeleteHandler, "handler delete", status=204),
    VerbRow("GET", "/v1/handlers/{task}/versions", h.ListHandlerVersions, "handler list", reply="versions"),
    VerbRow("POST", "/v1/handlers/{task}/rollback", h.RollBackHandler, "handler rollback"),
    # Consumers and logs
    VerbRow("GET", "/v1/consumers", q.ListConsumers, "consumers", reply="consumers"),
    VerbRow("GET", "/v1/consumers/{name}", q.GetProgress, "consumers"),
    VerbRow("PUT", "/v1/consumers/{name}", c.SetProgress, "consumers set"),
    VerbRow("GET", "/v1/logs/{log}", q.ReadLog),
    VerbRow("POST", "/v1/logs/{log}", c.Append, reply="appended"),
    # Tokens
    VerbRow("GET", "/v1/tokens", q.ListTokens, "token list", reply="tokens"),
    VerbRow("POST", "/v1/tokens", c.CreateToken, "token create", by_hand=True),
    VerbRow("DELETE", "/v1/tokens/{name}", c.RevokeToken, "token revoke", status=204),
)


def in_path(path: str) -> list[str]:
    """The fields that are in a path."""
    return [word[1:-1].removesuffix(":path") for word in path.split("/") if word.startswith("{")]


# A field has the same meaning wherever its name occurs, so it is described once. `core.incoming` and
# `core.checks` refuse what is outside the bounds.
FIELDS: dict[str, str] = {
    "after": "Only what comes after this id, index or cursor.",
    "after_domain": "Only limits after that of this domain; from the last entry of the page before.",
    "after_each": "The script that runs after each job.",
    "after_name": "Only what comes after this name; from the last entry of the page before.",
    "after_task": "Only tasks after this one.",
    "after_tenant": "Only what comes after this tenant; from the last entry of the page before.",
    "again_at": "When a repeated job runs again.",
    "answers": "The answers, each with the claim that it is for.",
    "archived": "Whether jobs in the archive are included: finished and cancelled ones.",
    "as_claimed": "Whether the job is returned as it was when it was claimed.",
    "at": "When it happened.",
    "attempts": "Runs that ended in an error or a retry.",
    "backoff": "The delay before another run: the first one, the longest, and the random part of it.",
    "batch_size": "How many jobs one call of the handler gets.",
    "before": "Only what comes before this id; of a step, entries of the run that come before it.",
    "before_each": "The script that runs before each job.",
    "before_ms": "Only jobs that ended before this time.",
    "body": "The script that runs for each job.",
    "burst": "How many starts may come at once.",
    "cancel_requested": "Whether the handler was asked to stop.",
    "catch_up": "What to do about missed times: run none, one or all of them.",
    "children": "Counts of the job's children.",
    "claim": "The number of the claim. It only rises; an answer with an older number is refused.",
    "client": "The tenant.",
    "code": "How the run ended: ok, failed, retry, error or suspend.",
    "compensates": "Whether it runs once more, to undo its steps, if it is cancelled or fails between runs.",
    "undoes": "Why the job fails, after this run or the next one, which undoes its steps.",
    "concurrency": "How many jobs of the domain may run at once.",
    "context_age_ms": "How old a context of the handler may become.",
    "context_jobs": "How many jobs a context of the handler runs.",
    "count": "How many.",
    "counts": "Whether the run counts as an attempt.",
    "cpu_ms": "Processor time that one job may use.",
    "created_at": "When the job was added.",
    "cron": "Five fields, such as '30 4 * * 1-5', or @daily, @hourly …",
    "crowd": "How many jobs that process ran.",
    "cursor": "Where the next page begins; from the page before.",
    "data": "What the task gets: any JSON value.",
    "delay_ms": "How long from now.",
    "domain": "What limits count jobs by, for example a host or a customer.",
    "eid": "Which of a tenant's contexts a job runs in.",
    "ended": "How the job ended.",
    "error": "What went wrong, in a line.",
    "errors": "The last runs that ended in an error or a retry.",
    "every_ms": "The interval between two runs, in whole seconds.",
    "exit_code": "How the run ended, as a number.",
    "expires_at": "After this time the job neither starts nor runs again; a token is refused.",
    "expires_in_ms": "How long until it expires.",
    "failed": "How many have failed.",
    "finished_at": "When the job ended.",
    "first_ms": "The first delay.",
    "force": "End a running job at once, without asking its handler; no step is undone.",
    "forgive": "How many of its losses are forgotten; null: all.",
    "fraction": "How much is done, from 0 to 1.",
    "from_step": "The name or number of a step: it and all after it are done again.",
    "glob": "Only tasks whose names match this pattern.",
    "handled": "Whether only tasks with a stored handler are claimed.",
    "has_result": "Whether the job has a result.",
    "head": "The last index of the log.",
    "hold": "The claim of a job: its id, the owner and the number of the claim.",
    "holding": "Whether only domains are listed whose limits hold jobs back.",
    "id": "The id.",
    "ids": "Ids that were reserved for the jobs.",
    "mark_existing": "Reply the ids of jobs that had their unique key before as negative numbers.",
    "ignore_repeat": "Whether a repeated job ends for good.",
    "into": "The field of the next job's data that gets the result.",
    "items": "The items, in order.",
    "jitter": "The random part of a delay, from 0 to 1.",
    "jitter_ms": "Spread starts randomly over this time.",
    "job": "The job.",
    "job_id": "The id of a job.",
    "job_ids": "Ids of jobs.",
    "jobs": "Jobs, in order.",
    "key": "A key by which an item is added once.",
    "kind": "What an entry is: step, error, version, sleep, signal, call or undo.",
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
    "merged": "Whether the jobs of all tenants are counted together.",
    "method": "The language of the script.",
    "mock": "Whether it is a job for tests, which only such claims get.",
    "more": "The data of further jobs that are like the first.",
    "most_ms": "The longest delay.",
    "name": "The name.",
    "next_at": "When it runs next.",
    "note": "What is done, in words.",
    "number": "The number of an entry: of a call whose results these are.",
    "on": "Whether it is paused.",
    "on_conflict": "If another job holds the unique key: keep that one, or merge into or replace its data.",
    "only_own": "Whether only jobs of workers that the client knows are counted.",
    "options": "The limits of the handler.",
    "outcome": "How the last run ended.",
    "overlap": "What to do while the job before still runs.",
    "owner": "The number of the process that has the claim.",
    "parent_id": "The job whose child it is.",
    "paused": "Whether it is paused.",
    "payload": "What the task gets: any JSON value.",
    "picks": "How many jobs of which tenant and task.",
    "place": "Where the store keeps the job.",
    "priority": "0 to 1000, higher first; 500 unless it is set.",
    "processed": "All items up to this index were processed.",
    "progress": "What the handler reported last.",
    "ran_ms": "How long the run took.",
    "rate": "Starts in a second.",
    "reason": "Why it ended so.",
    "redacted": "Whether secrets in data are replaced; always for tokens without scope data, work or manage.",
    "repeat": "When it runs again: 'FINISHED, +1 HOUR', or HOURLY.",
    "result": "What the task returned: any JSON value.",
    "retention_ms": "How long ended jobs are kept in the archive.",
    "retry_after": "After this time without an answer the job is claimed again.",
    "run_after_secs": "How long from now, in seconds.",
    "run_at": "Do not start before this time.",
    "running": "How many run now, or which.",
    "schedule": "The name of a schedule.",
    "scheduled_at": "The time for which the schedule added the job.",
    "scopes": "What the token allows.",
    "secret": "The secret of the token. It is shown once.",
    "size": "Bytes of data.",
    "start": "Where to begin.",
    "started_at": "When the job was claimed last.",
    "step": "The number of an entry among the steps of the job.",
    "state": "The state of a job.",
    "step_bytes": "The bytes of the job's steps.",
    "step_ms": "How much time each point stands for.",
    "steps": "What the job has done: steps, sleeps, signals and calls.",
    "strict": "Whether the job follows the rules of job commands.",
    "task": "The name of the task.",
    "tasks": "Names of tasks.",
    "tenant": "Whom jobs belong to; empty where there is only one.",
    "tenants": "Names of tenants.",
    "suspend": "What the job waits for until it goes on; with the code suspend.",
    "text": "The text.",
    "then": "The job that is added when this one has finished.",
    "on_failure": "The job that is added when this one has failed.",
    "timeout_ms": "How long a run may take.",
    "to": "The index to move to.",
    "token": "The token.",
    "took_ms": "How long the function of the step took.",
    "traceback": "The end of the traceback.",
    "traceparent": "The span that added the job, as in the W3C header.",
    "type": "The name of the task.",
    "tz": "The time zone of cron and repeat, such as Europe/Berlin.",
    "unique": "A key that one unfinished job can hold.",
    "unique_for_ms": "How long the key is held on after the end.",
    "until": "When a wait ends by itself; 0: it does not.",
    "unless_running": "Whether a job that runs now is refused.",
    "up_to": "The last index that is removed.",
    "version": "The version.",
    "wait": "How long to wait for a reply, in seconds.",
    "wait_for_failed": "Whether a failed child keeps its parent waiting.",
    "wall_ms": "How long one job may take.",
    "workers": "Workers.",
}
