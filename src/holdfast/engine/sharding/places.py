"""The shard that a command belongs to. See docs/decisions/0010."""

from collections.abc import Callable
from typing import Any

from ...core import commands as c
from ...core import handler as h
from ...core import ids, slots
from ...core.errors import BadInput
from ...core.kinds import OUTBOX, TOKEN
from ...core.limits import is_pattern
from ...core.managing import RunSchedule
from ...core.sysid import TakeSysid
from ...core.unique import key_of
from ..commands import keys, outbox, requests
from ..commands.adding import CHILD_DOMAIN


def _job(command: Any) -> int:
    hold = getattr(command, "hold", None)
    return int(hold.job_id if hold is not None else command.job_id)


def _limit(command: c.SetLimit) -> int | None:
    return None if is_pattern(command.domain) else ids.slot_of(command.tenant, command.domain)


def _pause(command: c.Pause) -> int | None:
    return None if command.domain is None else ids.slot_of(command.tenant or "", command.domain)


def _schedule(command: c.DeleteSchedule | c.PauseSchedule | RunSchedule) -> int:
    return slots.slot_of_schedule(command.tenant, command.name)


def _indexed(command: Any) -> int:
    return slots.slot_of_indexed(command.tenant)


def _handler(command: h.RollBackHandler | h.DeleteHandler) -> int:
    return ids.slot_of(command.tenant, command.task)


# The slot of a command, or the id of its job, whose slot it is; None: all shards.
_SLOTS: dict[type[c.Command], Callable[[Any], int | None]] = {
    **dict.fromkeys((c.Answer, c.Release, c.Extend, c.Report, c.Step, c.WriteLog, c.Update), _job),
    **dict.fromkeys((c.Cancel, c.Requeue, c.Delete, c.Await), _job),
    c.SetLimit: _limit,
    c.Pause: _pause,
    c.SetSchedule: lambda command: slots.slot_of_schedule(command.schedule.tenant, command.schedule.name),
    **dict.fromkeys((c.DeleteSchedule, c.PauseSchedule, RunSchedule), _schedule),
    **dict.fromkeys((c.StartProgress, c.MoveProgress, c.SetProgress, c.Append, c.TrimLog), _indexed),
    c.CreateToken: lambda command: slots.slot_of_record(TOKEN, command.token.name),
    c.RevokeToken: lambda command: slots.slot_of_record(TOKEN, command.name),
    # The shard that leases a number.
    TakeSysid: lambda command: command.number,
    h.SetHandler: lambda command: ids.slot_of(command.handler.tenant, command.handler.task),
    **dict.fromkeys((h.RollBackHandler, h.DeleteHandler), _handler),
    requests.NoteRequest: requests.slot_of_request,
    outbox.RemoveMessage: lambda command: slots.slot_of_record(OUTBOX, command.name),
    keys.TakeKey: lambda command: slots.slot_of_key(command.key),
    keys.FreeKey: lambda command: slots.slot_of_key(command.key),
    keys.Hit: lambda command: command.holder,
}


def slot_of(command: c.Command) -> int | None:
    """The slot of a command, or the id of its job; None: there is none."""
    find = _SLOTS.get(type(command))
    return None if find is None else find(command)


def slot_of_new(new: c.NewJob) -> int | None:
    """The slot of a new job, or its id if it has one; None: any slot."""
    return new.id & (ids.SLOTS - 1) if new.id else slots.slot_for(new)


def is_away(new: c.NewJob, shards: int) -> bool:
    """Whether a new job belongs in another shard than the home of its unique key."""
    key = key_of(new)
    slot = slot_of_new(new)
    return key is not None and slot is not None and (slots.slot_of_key(key) - slot) % shards != 0


def check_place(new: c.NewJob) -> None:
    """Refuse a job that would belong in two shards, before anything is written."""
    if new.parent_id and new.domain is not None:
        parent = ids.unpack(new.parent_id).slot
        if ids.slot_of(new.tenant, new.domain) != parent:
            raise BadInput("domain", new.domain, needed=CHILD_DOMAIN)
    if new.id and (new.parent_id or new.domain is not None):
        fixed = slots.slot_for(new)
        if new.id & (ids.SLOTS - 1) != fixed:
            raise BadInput("id", new.id, needed=f"of slot {fixed}, where its parent or its domain is")
