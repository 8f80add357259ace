"""What every store must show: the promises of `store/contract.py`, as tests.

For whoever writes a store. Make two fixtures, `clock` (a `MovedClock`) and `store` (a new, empty store
that goes by it, closed afterwards), and gather the tests into a module of your own:

    from holdfast.testing.store_suite import *

    @pytest.fixture
    def store(clock, tmp_path):
        store = MyStore(tmp_path / "jobs", clock=clock)
        yield store
        store.close()

No test asks which store it has. Those marked `one_shard` demand an order over all jobs, or put jobs where
several shards would not have them; a store of shards is to be given to them with one.
"""

from .stores.batches import *  # noqa: F403
from .stores.claims import *  # noqa: F403
from .stores.jobs import *  # noqa: F403
from .stores.listings import *  # noqa: F403
from .stores.logs import *  # noqa: F403
from .stores.names import *  # noqa: F403
from .stores.orders import *  # noqa: F403
from .stores.turns import *  # noqa: F403
