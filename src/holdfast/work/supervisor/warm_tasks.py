"""Which stored handlers probably have a warm context here, and so are cheaper to run next."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from ...core.queries import Waiting
from ..scheduler import Pair

# As many contexts as an executor keeps while no job runs in them, by default.
MAX_WARM = 16
# How often the first task of the list may be passed over for warm ones.
MAX_PASSED = 4


# Tasks that ran last, the latest at the end. The claim loops of several stores share one, as executors share
# their contexts between stores.
WarmPairs = OrderedDict[Pair, None]


class WarmTasks:
    """The tasks that ran here last. They come first among equals, a few times in a row."""

    def __init__(self, pairs: WarmPairs | None = None) -> None:
        self._warm: WarmPairs = OrderedDict() if pairs is None else pairs
        self._passed = 0

    @property
    def has_passed(self) -> bool:
        """Whether the last order passed over the first task for warm ones."""
        return self._passed > 0

    def record(self, running: Iterable[Pair]) -> None:
        """These tasks have jobs here now."""
        for pair in running:
            self._warm[pair] = None
            self._warm.move_to_end(pair)
        while len(self._warm) > MAX_WARM:
            self._warm.popitem(last=False)

    def order(self, waiting: Sequence[Waiting]) -> list[Waiting]:
        """Waiting tasks with the warm ones first; as they are, when the first has been passed over enough."""
        warm = [one for one in waiting if (one.tenant, one.task) in self._warm]
        if not warm or waiting[0] is warm[0] or self._passed >= MAX_PASSED:
            self._passed = 0
            return list(waiting)
        self._passed += 1
        return warm + [one for one in waiting if (one.tenant, one.task) not in self._warm]
