"""What the rules make of a batch's commands, but for claims: all that they touch is loaded by one read."""

from collections.abc import Iterable, Sequence
from typing import Any

from ...core import commands as c
from ...core.errors import Conflict, HoldfastError
from ..batch.batch import Batch
from .ending import end
from .verbs import VERBS


def _preload(batch: Batch, commands: Iterable[c.Command], *, trust: bool) -> None:
    """Load what the batch touches in one read."""
    wanted: set[int] = set()
    for command in commands:
        if (
            isinstance(command, c.Answer)
            and trust
            and command.held is not None
            and not command.held.parent_id
        ):
            batch.bring(command.held)
        elif isinstance(command, c.Add):
            wanted |= {new.parent_id for new in command.jobs if new.parent_id}
        elif hold := getattr(command, "hold", None):
            wanted.add(hold.job_id)
        elif job_id := getattr(command, "job_id", 0):
            wanted.add(job_id)
    if wanted:
        batch.load(wanted)


def decided(batch: Batch, commands: Sequence[c.Command], ends: dict[int, c.Answer] | None) -> dict[int, Any]:
    """The replies of the verbs, by where they stand in the batch.

    `ends` are those that end a job plainly; None: nothing that a holder says it has is believed.
    """
    trust, ends = ends is not None, ends or {}
    rest = {at: command for at, command in enumerate(commands) if at not in ends}
    _preload(batch, rest.values(), trust=trust)
    replies: dict[int, Any] = {at: end(batch, answer) for at, answer in ends.items()}
    for at, command in rest.items():
        if type(command) in VERBS:
            replies[at] = _decide(batch, command, trust)
    return replies


def _decide(batch: Batch, command: c.Command, trust: bool) -> Any:
    try:
        reply = VERBS[type(command)](batch, command)
    except Conflict:
        raise
    except HoldfastError as error:
        if trust and isinstance(command, c.Answer):
            # It may have been refused for what is no longer so.
            raise Conflict("look again") from None
        batch.drop()
        return error
    batch.keep()
    return reply
