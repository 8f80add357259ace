"""Names that live where a test wants them."""

from itertools import count

from holdfast.core import ids
from holdfast.core.slots import shard_of
from tests.sharded.conftest import SHARDS


def of(job) -> int:
    """The shard that a job lives in."""
    return shard_of(int(getattr(job, "id", job)), SHARDS)


def all_up(queue) -> bool:
    """Whether every shard of a queue can be reached, as far as it knows."""
    return all(shard.is_up for shard in queue.connection.store.shards)


def domain_in(shard: int, *, tenant: str = "") -> bytes:
    """A domain that lives in a shard."""
    names = (f"domain-{n}".encode() for n in count())
    return next(name for name in names if ids.slot_of(tenant, name) % SHARDS == shard)


def key_in(shard: int, task: str, *, tenant: str = "") -> bytes:
    """A unique key that is at home in a shard."""
    names = (f"key-{n}".encode() for n in count())
    return next(name for name in names if ids.slot_of(tenant, task, name) % SHARDS == shard)
