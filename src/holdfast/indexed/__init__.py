"""Jobs found by index: consumers that work through a source in order, leave none out, and can be chained.

source ──at(index)──▶ consumer ──run(job)──▶ workers
   ▲                     │ progress: one number in the store
  log ◀── append         └─▶ the head of the next stage

source      what is at an index; `Items` turns items into jobs and back
scan        the walk: one pure function, its invariant above it
keys        what is stored of an item's key, and the id of its job
ledger      what runs and what finished early, as ranges
progress    how far a consumer has come
consumer    the walk, its workers and its progress, for threads; aio the same for asyncio
group       a pool around it, which looks by itself and starts again
log         a durable append-only log, itself a source
pipeline    stages, each the next one's source
"""

from ..core.errors import Backwards, Trimmed
from .aio import AsyncConsumer
from .aio_group import AsyncConsumerGroup
from .aio_pipeline import AsyncPipeline
from .asks import Appended
from .base import AlreadyStarted
from .consumer import Consumer
from .group import LATER, ConsumerGroup
from .log import AsyncLog, Log
from .pipeline import Pipeline, pipeline
from .progress import AsyncProgress, Progress, consumers, set_by_hand
from .restart import Restart
from .source import AsyncUpTo, IndexedJob, Items, Source, UpTo
from .stages import Stage, stage

__all__ = [
    "LATER",
    "AlreadyStarted",
    "Appended",
    "AsyncConsumer",
    "AsyncConsumerGroup",
    "AsyncLog",
    "AsyncPipeline",
    "AsyncProgress",
    "AsyncUpTo",
    "Backwards",
    "Consumer",
    "ConsumerGroup",
    "IndexedJob",
    "Items",
    "Log",
    "Pipeline",
    "Progress",
    "Restart",
    "Source",
    "Stage",
    "Trimmed",
    "UpTo",
    "consumers",
    "pipeline",
    "set_by_hand",
    "stage",
]
