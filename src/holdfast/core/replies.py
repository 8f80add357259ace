"""All commands there are, and what is replied to each: for those who ask from another process."""

from typing import Any

from . import commands as c
from .indexed import Mark
from .job import Job
from .schedule import Schedule

AnyCommand = (
    c.Add
    | c.Claim
    | c.Answer
    | c.Release
    | c.Extend
    | c.Report
    | c.Step
    | c.Log
    | c.Update
    | c.Cancel
    | c.Requeue
    | c.RequeueAll
    | c.Delete
    | c.SetLimit
    | c.Pause
    | c.SetSchedule
    | c.DeleteSchedule
    | c.PauseSchedule
    | c.Purge
    | c.StartProgress
    | c.MoveProgress
    | c.SetProgress
    | c.Append
    | c.TrimLog
    | c.Await
    | c.Upkeep
    | c.Enlist
    | c.Publish
    | c.Dismiss
)

REPLIES: dict[type[c.Command], Any] = {
    c.Add: list[int],
    c.Claim: list[c.Claimed],
    **dict.fromkeys(
        (c.Answer, c.Release, c.Extend, c.Report, c.Step, c.Log, c.Update, c.Cancel, c.Requeue), Job
    ),
    **dict.fromkeys(
        (c.RequeueAll, c.Delete, c.SetLimit, c.Pause, c.DeleteSchedule, c.Enlist, c.Publish, c.Dismiss), None
    ),
    **dict.fromkeys((c.SetSchedule, c.PauseSchedule), Schedule),
    c.Purge: int,
    **dict.fromkeys((c.StartProgress, c.MoveProgress, c.SetProgress), Mark),
    c.Append: list[tuple[int, bool]],
    c.TrimLog: int,
    c.Await: c.Ended | str | None,
    c.Upkeep: int | None,
}
