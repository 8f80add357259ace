"""Everything that `holdfast bench` measures, by name, in the order of the table."""

from collections.abc import Callable

from . import measures as here
from . import workers as elsewhere
from .measures import Bench, Figure

# None: not to be had with this store, or on this machine.
MEASURES: dict[str, Callable[[Bench], Figure | None]] = {
    "add_many": here.add_many,
    "claim": here.claim_and_finish,
    "drain": lambda bench: elsewhere.drain_by(bench, 1),
    "drain2": lambda bench: elsewhere.drain_by(bench, 2),
    "add": lambda bench: here.add_by(bench, 1),
    "add64": lambda bench: here.add_by(bench, 64),
    "slow": here.add_slow,
    "backlog": here.backlog,
    "domains": here.domains,
    "latency": here.latency,
    "latency2": elsewhere.latency_other,
    "idle": elsewhere.idle,
    "asks": elsewhere.asks,
}
