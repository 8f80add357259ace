"""The conformance suite of stores: the promises of `store/contract.py`, as tests.

If you write a store, define three fixtures: `clock` (a `MovedClock`), `store` (a new, empty store that uses
it) and `another` (the same store, opened a second time, as by another process). Import the tests into your
module:

    from holdfast.testing.store_suite import *

    @pytest.fixture
    def store(clock, tmp_path):
        with closing(MyStore(tmp_path / "jobs", clock=clock)) as store:
            yield store

    @pytest.fixture
    def another(store, clock, tmp_path):
        with closing(MyStore(tmp_path / "jobs", clock=clock)) as another:
            yield another

No test depends on the kind of store.
"""

from .stores.batches import *  # noqa: F403
from .stores.claims import *  # noqa: F403
from .stores.jobs import *  # noqa: F403
from .stores.lifecycle import *  # noqa: F403
from .stores.orders import *  # noqa: F403
from .stores.plain import *  # noqa: F403
from .stores.rows import *  # noqa: F403
