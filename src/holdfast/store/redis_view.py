"""A look at a Redis store: several questions, and whether anybody has committed between them.

Whoever waits for jobs, and was told of a commit, asks for all that upkeep and claims go by at once. What he
sees is kept: if nobody commits meanwhile his own batch, which follows, goes by it.
"""

from collections.abc import Sequence
from typing import Any

from .contract import Moments
from .redis_calm import Calm
from .redis_claim import pair_of
from .redis_keys import Keys
from .redis_link import Link, Words
from .redis_lists import RedisLists
from .redis_reads import HEADS, ROSTER


class RedisView(RedisLists):
    """A view of a store; see `ReadTxn` for what each verb promises."""

    def __init__(self, link: Link, keys: Keys, now_ms: int, *, calm: Calm) -> None:
        super().__init__(link, keys, now_ms)
        self._calm = calm
        # The number of the last commit, before the first question and after the last.
        self._first: bytes | None = None
        self._last: bytes | None = None

    @property
    def is_of_one_moment(self) -> bool:
        """Whether nobody has committed between its questions; one alone is taken as it is."""
        return self.trips < 2 or self._first == self._last

    def ask(self, commands: Sequence[Words]) -> list[Any]:
        """Replies to several commands, in one round trip, in which that number is asked for too."""
        if not commands:
            return []
        self.trips += 1
        tick = (b"GET", self.keys.tick)
        if self.trips == 1:
            self._first, *replies = self.link.many([tick, *commands])
        else:
            *replies, self._last = self.link.many([*commands, tick])
        return replies

    def moments(self) -> Moments:
        """When something becomes true by itself; with it comes what whoever asks will ask for next."""
        if self._heads is None:
            self.go_by(self._calm.saw(self.ask(self._calm.words(HEADS, ROSTER)), ROSTER))
        return super().moments()

    def ready_pairs(self) -> list[tuple[str, str]] | None:
        """The tenants' tasks that have READY jobs, where that is known and they are few."""
        return None if self.roster is None else [pair_of(name) for name in self.roster]
