"""When a group that failed starts again."""

from collections.abc import Callable

from ..core.checks import check_whole
from ..core.errors import BadInput
from ..core.units import duration_ms
from ..queue.options import Duration


class Restart:
    """Start again after an error, first after `delay`, then after twice that, up to `most`.

    At most `times` in a row without progress. `when` says of an error whether to; what is no `Exception` (an
    interrupt, an exit) never is.
    """

    def __init__(
        self,
        times: int | None = None,
        *,
        delay: Duration = 1,
        most: Duration = 60,
        when: Callable[[Exception], bool] | None = None,
    ) -> None:
        if times is not None:
            check_whole("times", times, 1, 1_000_000)
        if when is not None and not callable(when):
            raise BadInput("when", type(when).__name__, needed="a function of an error")
        self._times, self._when = times, when
        self._first_s = duration_ms(delay, name="delay") / 1000
        self._most_s = duration_ms(most, name="most") / 1000

    def delay_s(self, error: BaseException, failures: int) -> float | None:
        """How long to wait after this many failures in a row; None: do not restart."""
        if not isinstance(error, Exception) or (self._when is not None and not self._when(error)):
            return None
        if self._times is not None and failures > self._times:
            return None
        # Far fewer doublings than this are longer than any life.
        return float(min(self._first_s * 2 ** min(failures - 1, 50), self._most_s))
