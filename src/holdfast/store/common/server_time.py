"""The time of a server, by which all machines agree: asked for now and then, reckoned in between."""

from collections.abc import Callable

from ...core.errors import Unavailable
from .clock import Clock, monotonic_s

# How long a server's clock is reckoned from what it last said.
TRUSTED_S = 30.0
# A moment that is ahead of us by no more than this comes from how exactly clocks are asked.
CLOCK_SLACK_MS = 1_000
Ask = Callable[[], int]


class Time:
    """The clock of a store: one that was given, or that of its server, which `ask` asks."""

    def __init__(self, clock: Clock | None, trusted_s: float = TRUSTED_S) -> None:
        self._clock, self._trusted_s = clock, trusted_s
        # What the server's clock said last, and when that was by ours.
        self._heard: tuple[int, float] | None = None

    def heard(self, now_ms: int) -> None:
        """The server has just said what time it is."""
        self._heard = (now_ms, monotonic_s())

    def now_ms(self, ask: Ask) -> int:
        """What time it is; while the server is away, what it should be by now."""
        if self._clock is not None:
            return self._clock()
        heard = self._heard
        if heard is not None and (passed_s := monotonic_s() - heard[1]) <= self._trusted_s:
            return heard[0] + int(passed_s * 1000)
        try:
            now_ms = ask()
            if self._heard is heard:
                # Else who asked has noted it, and knows better when it was.
                self.heard(now_ms)
            heard = self._heard
        except Unavailable:
            if heard is None:
                raise
        assert heard is not None
        return _since(heard)

    def reckoned(self) -> int | None:
        """What time it is by what the server said last, if that is not long ago."""
        if self._clock is not None:
            return self._clock()
        if (heard := self._heard) is None:
            return None
        passed_s = monotonic_s() - heard[1]
        return heard[0] + int(passed_s * 1000) if passed_s <= self._trusted_s else None

    def caught_up(self, at_ms: int, ask: Ask) -> bool:
        """Ask for the time anew; whether it is now what somebody else took it for, or near enough."""
        self.heard(ask())
        ahead_ms = at_ms - self.now_ms(ask)
        if 0 < ahead_ms <= CLOCK_SLACK_MS:
            self.heard(at_ms)
        # Else the server's clock was set back, and what lies ahead must not hold us up.
        return ahead_ms <= CLOCK_SLACK_MS


def _since(heard: tuple[int, float]) -> int:
    said_ms, at_s = heard
    return said_ms + int((monotonic_s() - at_s) * 1000)
