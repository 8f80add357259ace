"""Jobs found by index: consumers that process a source in order, skip nothing, and can be chained.

source ──at(index)──▶ consumer ──run(job)──▶ workers
   ▲                     │ progress: one number in the store
  log ◀── append         └─▶ the head of the next stage

source      the job at an index; `Items` turns items into jobs and back
scan        the walk over indexes: one pure function
keys        how an item's key is stored, and the id of its job
ledger      running indexes, and those that finished early, as ranges
progress    the progress of a consumer in the store
consumer    the walk, its workers and its progress, for threads; aio the same for asyncio
group       a pool around it, which checks for jobs by itself and restarts
log         a durable append-only log, itself a source
pipeline    stages, each the next one's source
"""

from ..core.errors import Backwards, Trimmed
from .aio import AsyncConsumer, AsyncConsumerGroup
from .asks import Appended
from .base import AlreadyStarted
from .consumer import Consumer
from .group import LATER, ConsumerGroup, Restart
from .log import AsyncLog, Log
from .pipeline import AsyncPipeline, Pipeline, pipeline
from .progress import AsyncProgress, Progress, consumers, set_by_hand
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
