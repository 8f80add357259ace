"""All commands and queries by name, and the type of each reply: for clients in other processes."""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from . import commands as c
from . import queries as q
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
