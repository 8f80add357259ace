"""What every queue must show, whatever store it stands on: the promises of Holdfast, as tests.

For whoever writes a store. Make one fixture, `open_store`, a function that opens the store under test as
another process would, by the `clock` that the suite brings, and gather the tests into a module of your own:

    from tests.queue_suite import *

    @pytest.fixture
    def open_store(clock, tmp_path):
        return lambda: MyStore(tmp_path / "jobs", clock=clock)

No test asks which store it has, and none sleeps: the clock is moved. The longest are marked `proof`; those
that demand an order over all jobs `one_shard`, and a store of shards is to be given to them with one.
"""

from .adding import *  # noqa: F403
from .aio import *  # noqa: F403
from .arguments import *  # noqa: F403
from .at_most_once import *  # noqa: F403
from .bad_input import *  # noqa: F403
from .bad_verbs import *  # noqa: F403
from .basics import *  # noqa: F403
from .claims import *  # noqa: F403
from .contexts import *  # noqa: F403
from .defaults import *  # noqa: F403
from .durable import *  # noqa: F403
from .families import *  # noqa: F403
from .fixtures import *  # noqa: F403
from .following import *  # noqa: F403
from .functions import *  # noqa: F403
from .groups import *  # noqa: F403
from .handlers import *  # noqa: F403
from .handling import *  # noqa: F403
from .history import *  # noqa: F403
from .life import *  # noqa: F403
from .limits import *  # noqa: F403
from .logs import *  # noqa: F403
from .numbers import *  # noqa: F403
from .outcomes import *  # noqa: F403
from .pauses import *  # noqa: F403
from .port_families import *  # noqa: F403
from .port_verbs import *  # noqa: F403
from .races import *  # noqa: F403
from .rates import *  # noqa: F403
from .repeats import *  # noqa: F403
from .schedules import *  # noqa: F403
from .starts import *  # noqa: F403
from .states import *  # noqa: F403
from .steps import *  # noqa: F403
from .tasks import *  # noqa: F403
from .tenants import *  # noqa: F403
from .undoing import *  # noqa: F403
from .unique import *  # noqa: F403
from .waiting import *  # noqa: F403
from .workers import *  # noqa: F403
