"""Jobs found by index: consumers that work through a source in order, leave none out, and can be chained.

source ──at(index)──▶ consumer ──run(job)──▶ workers
   ▲                     │ progress: one number in the store
  log ◀── append         └─▶ the head of the next stage

source      what is at an index; `Items` turns items into jobs and back
scan        the walk: one pure function, its invariant above it
ledger      what runs and what finished early, as ranges
progress    how far a consumer has come
consumer    the walk, its workers and its progress, for threads; aio the same for asyncio
group       a pool around it, which looks by itself and starts again
log         a durable append-only log, itself a source
pipeline    stages, each the next one's source
"""

from .aio import AsyncConsumer
from .aio_group import AsyncConsumerGroup
from .base import AlreadyStarted
from .consumer import Consumer
from .group import LATER, ConsumerGroup
from .log import AsyncLog, Log
from .progress import AsyncProgress, Progress, consumers, set_by_hand
from .restart import Restart
from .source import IndexedJob, Items, Source, UpTo

__all__ = [
    "LATER",
    "AlreadyStarted",
    "AsyncConsumer",
    "AsyncConsumerGroup",
    "AsyncLog",
    "AsyncProgress",
    "Consumer",
    "ConsumerGroup",
    "IndexedJob",
    "Items",
    "Log",
    "Progress",
    "Restart",
    "Source",
    "UpTo",
    "consumers",
    "set_by_hand",
]
