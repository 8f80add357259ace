"""Jobs on their way into one transaction: of the last that are alike, only the first is a record."""

from typing import Any

from msgspec.structs import replace

from ..core import commands as c
from ..core.creating import alike
from ..core.job import Body


class Parcel:
    """What was put in since the last `take`."""

    def __init__(self) -> None:
        self._jobs: list[c.NewJob] = []
        self._more: list[Body] = []
        self.size = 0
        self._last: c.NewJob | None = None
        # What is said of the last one but its data, once that was asked for.
        self._said: tuple[Any, ...] | None = None

    @property
    def count(self) -> int:
        """How many jobs there are."""
        return len(self._jobs) + len(self._more)

    def put(self, new: c.NewJob | Body) -> None:
        """A job; or the data of one that is like the last, which may have gone already."""
        if not isinstance(new, c.NewJob):
            self._put_like(new)
        elif self._is_like(new):
            self._put_like(new.data)
        else:
            self._jobs += [replace(self._jobs[-1], data=data) for data in self._more]
            self._more.clear()
            self._jobs.append(new)
            self.size += len(new.data)
            self._last, self._said = new, None

    def _put_like(self, data: Body) -> None:
        assert self._last is not None
        if self._jobs:
            self._more.append(data)
        else:
            self._jobs.append(replace(self._last, data=data))
        self.size += len(data)

    def _is_like(self, new: c.NewJob) -> bool:
        if self._last is None or new.id or self._last.id:
            return False
        if self._said is None:
            self._said = alike(self._last)
        return alike(new) == self._said

    def take(self, hold: c.Hold | None) -> c.Add:
        """All of it as one command."""
        command = c.Add(jobs=tuple(self._jobs), more=tuple(self._more), hold=hold)
        self._jobs, self._more, self.size = [], [], 0
        return command
