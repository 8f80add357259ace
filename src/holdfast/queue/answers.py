"""What a handler may raise or return besides a result, and what is raised in it."""

from ..core.durations import duration_ms
from .options import Duration


class Failed(Exception):
    """Raise or return it: the job ends FAILED, and is not tried again."""


class Retry(Exception):
    """Raise or return it: the job runs again after `delay`, or after its backoff.

    It spends an attempt unless `counts=False`, for a job that only waits for something.
    """

    def __init__(self, delay: Duration | None = None, *, counts: bool = True, reason: str = "") -> None:
        self.delay_ms = None if delay is None else duration_ms(delay, name="delay")
        self.counts = counts
        super().__init__(reason or "asked to run again")


class SoftTimeout(Exception):
    """Raised in a function that runs past its task's `soft_timeout`: time to clean up, or to hurry.

    Unless it is caught the run ends with it, as with any other exception.
    """

    def __init__(self, text: str = "it ran past its soft_timeout") -> None:
        super().__init__(text)
