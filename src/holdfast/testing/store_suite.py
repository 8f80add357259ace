"""What every store must show: the promises of `store/contract.py`, as tests.

For whoever writes a store. Make three fixtures, `clock` (a `MovedClock`), `store` (a new, empty store that
goes by it) and `another` (the same store, opened once more as another process would), and gather the tests
into a module of your own:

    from holdfast.testing.store_suite import *

    @pytest.fixture
    def store(clock, tmp_path):
        with closing(MyStore(tmp_path / "jobs", clock=clock)) as store:
            yield store

    @pytest.fixture
    def another(store, clock, tmp_path):
        with closing(MyStore(tmp_path / "jobs", clock=clock)) as another:
            yield another

No test asks which store it has.
"""

from .stores.batches import *  # noqa: F403
from .stores.claims import *  # noqa: F403
from .stores.interrupts import *  # noqa: F403
from .stores.isolation import *  # noqa: F403
from .stores.jobs import *  # noqa: F403
from .stores.lifecycle import *  # noqa: F403
from .stores.orders import *  # noqa: F403
from .stores.rows import *  # noqa: F403
from .stores.turns import *  # noqa: F403
