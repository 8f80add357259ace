"""A look at a Redis store: several questions, and whether anybody has committed between them.

Whoever waits for jobs, and was told of a commit, asks for all that upkeep and claims go by at once. What he
sees is kept: if nobody commits meanwhile his own batch, which follows, goes by it.
"""

from collections.abc import Sequence
from typing import Any

from ...core.errors import Conflict
from ..contract import Moments
from .calm import Calm
from .connection import Link, Words
from .keys import Keys
from .lists import NOTICE, RedisLists
from .reads import HEADS, ROSTER


class RedisView(RedisLists):
    """A view of a store; see `ReadTxn` for what each verb promises."""

    def __init__(self, link: Link, keys: Keys, now_ms: int, *, calm: Calm) -> None:
        super().__init__(link, keys, now_ms)
        self._calm = calm
        # What stood on the door when it was last looked at, and whether that is gone by so far.
        self._believed: bytes | None = None
        self.believes = False
        # The number of the last commit, before the first question and after the last.
        self._first: bytes | None = None
        self._last: bytes | None = None

    def believe(self, notice: bytes | None) -> None:
        """Let this stand on the door until it is looked at, with the first question."""
        self._believed, self.believes = notice, True

    @property
    def is_of_one_moment(self) -> bool:
        """Whether nobody has committed between its questions; one alone is taken as it is."""
        return self.trips < 2 or self._first == self._last

    def ask(self, commands: Sequence[Words]) -> list[Any]:
        """Replies to several commands, in one round trip; that number, and at first the door, go along."""
        if not commands:
            return []
        if not self.trips:
            return self._begun(commands)
        self.trips += 1
        *replies, self._last = self.link.many([*commands, (b"GET", self.keys.tick)])
        return replies

    def _begun(self, commands: Sequence[Words]) -> list[Any]:
        self.trips = 1
        kind, name = NOTICE
        door = (b"HGET", self.keys.records(kind), name)
        self._first, notice, *replies = self.link.many([(b"GET", self.keys.tick), door, *commands])
        if self.believes and notice != self._believed:
            raise Conflict("another notice is on the door")
        self.seen.records[NOTICE], self.believes = notice, False
        return replies

    def notice(self) -> bytes | None:
        """What stands on the store's door, as far as is known from before until that is looked at."""
        return self._believed if self.believes else super().notice()

    def door(self) -> bytes | None:
        """What stands there; looked at, where nobody has asked for anything."""
        if not self.trips:
            self._begun([])
        return self.seen.records[NOTICE]

    def moments(self) -> Moments:
        """When something becomes true by itself; with it comes what whoever asks will ask for next."""
        if self._heads is None:
            self.go_by(self._calm.saw(self.ask(self._calm.words(HEADS, ROSTER)), ROSTER))
        return super().moments()
