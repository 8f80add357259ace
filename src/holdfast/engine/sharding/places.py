"""The shard that a command belongs to. See docs/decisions/0010."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core import handler as h
from ...core import ids, slots
from ...core.kinds import TOKEN
from ...core.limits import is_pattern
from ...core.sysid import TakeSysid
from ..commands import requests


def _job(command: Any) -> int:
    hold = getattr(command, "hold", None)
    return int(hold.job_id if hold is not None else command.job_id)


def _limit(command: c.SetLimit) -> int | None:
    return None if is_pattern(command.domain) else ids.slot_of(command.tenant, command.domain)


def _pause(command: c.Pause) -> int | None:
    return None if command.domain is None else ids.slot_of(command.tenant or "", command.domain)


def _schedule(command: c.SetSchedule) -> int:
    return slots.slot_of_schedule(command.schedule.name, job_of(command))


def _indexed(command: Any) -> int:
    return slots.slot_of_indexed(command.tenant)


def _handler(command: h.RollBackHandler | h.DeleteHandler) -> int:
    return ids.slot_of(command.tenant, command.task)


# The slot of a command, or the id of its job, whose slot it is; None: all shards.
_SLOTS: dict[type[c.Command], Callable[[Any], int | None]] = {
    **dict.fromkeys((c.Answer, c.Release, c.Extend, c.Report, c.Step, c.WriteLog, c.Update), _job),
    **dict.fromkeys((c.Cancel, c.Requeue, c.Delete, c.Await, c.SendSignal), _job),
    c.SetLimit: _limit,
    c.Pause: _pause,
    c.SetSchedule: _schedule,
    **dict.fromkeys((c.StartProgress, c.MoveProgress, c.SetProgress, c.Append, c.TrimLog), _indexed),
    c.CreateToken: lambda command: slots.slot_of_record(TOKEN, command.token.name),
    c.RevokeToken: lambda command: slots.slot_of_record(TOKEN, command.name),
    # The shard that leases a number.
    TakeSysid: lambda command: command.number,
    h.SetHandler: lambda command: ids.slot_of(command.handler.tenant, command.handler.task),
    **dict.fromkeys((h.RollBackHandler, h.DeleteHandler), _handler),
    requests.NoteRequest: requests.slot_of_request,
}


def slot_of(command: c.Command) -> int | None:
    """The slot of a command, or the id of its job; None: there is none."""
    find = _SLOTS.get(type(command))
    return None if find is None else find(command)


def slot_of_new(new: c.NewJob) -> int | None:
    """The slot of a new job, or its id if it has one; None: any slot."""
    return new.id & (ids.SLOTS - 1) if new.id else slots.slot_for(new)


def job_of(command: c.SetSchedule) -> c.NewJob:
    """The job that a schedule adds, of the schedule's tenant."""
    return replace(command.job, tenant=command.schedule.tenant)
