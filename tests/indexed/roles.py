"""What processes that are killed do: consume a log, be a stage of a pipeline."""

import asyncio
import random
import threading
import time
from typing import Any

import msgspec

import holdfast
from holdfast.indexed import (
    AsyncConsumerGroup,
    AsyncLog,
    AsyncProgress,
    ConsumerGroup,
    Items,
    Log,
    Progress,
    pipeline,
    stage,
)
from tests.stress.actor import Post
from tests.stress.ledger import Ledger

# Jobs take up to this long, so that they end out of order.
LONGEST_S = 0.003


def consume(post: Post, *, url: str, ledger: str, last: int) -> None:
    """Work off a log with threads, writing down what is done and how far it is."""
    book, over = Ledger(ledger), threading.Event()

    def run(job: Any) -> None:
        time.sleep(random.uniform(0, LONGEST_S))
        book.write("did", index=job.item)

    def advanced(old: int, new: int) -> None:
        book.write("moved", old=old, new=new)
        if new >= last:
            over.set()

    with holdfast.connect(url) as queue:
        group = ConsumerGroup(
            Log(queue, "log", int),
            Progress(queue, "c"),
            run,
            max_processing=4,
            max_ahead=50,
            on_advance=advanced,
        )
        book.write("life", at=group.processed)
        with group:
            post.say("ready")
            if group.processed < last:
                over.wait()
    post.say("over")


def consume_async(post: Post, *, url: str, ledger: str, last: int) -> None:
    """The same with coroutines."""
    asyncio.run(_consume_async(post, url, Ledger(ledger), last))


async def _consume_async(post: Post, url: str, book: Ledger, last: int) -> None:
    over = asyncio.Event()

    async def run(job: Any) -> None:
        await asyncio.sleep(random.uniform(0, LONGEST_S))
        book.write("did", index=job.item)

    def advanced(old: int, new: int) -> None:
        book.write("moved", old=old, new=new)
        if new >= last:
            over.set()

    async with holdfast.connect_async(url) as queue:
        progress = AsyncProgress(queue, "c")
        begun = await progress.initialize()
        book.write("life", at=begun)
        group: AsyncConsumerGroup[int] = AsyncConsumerGroup(
            AsyncLog(queue, "log", int), progress, run, max_processing=4, max_ahead=50, on_advance=advanced
        )
        async with group:
            post.say("ready")
            if begun < last:
                await over.wait()
    post.say("over")


class Block(msgspec.Struct, frozen=True):
    """A block of a chain that anybody can compute."""

    height: int
    chunks: tuple[int, ...]


class Chunk(msgspec.Struct, frozen=True):
    """A part of a block that is to be verified."""

    height: int
    number: int


def block_at(height: int) -> Block:
    """The block at a height: none to five chunks."""
    return Block(height, tuple(range(height * 7 % 6)))


def chain(head: int) -> Any:
    """A source of that many blocks."""
    return Items(Block, key=lambda block: f"block-{block.height}").source(head=lambda: head, at=block_at)


def verified(chunk: Chunk) -> int:
    """What is found out about a chunk."""
    return chunk.height * 1_000 + chunk.number * chunk.number


def be_a_stage(post: Post, *, url: str, ledger: str, head: int, only: list[str]) -> None:
    """Run some of the stages: blocks are cut into chunks, chunks are verified."""
    book = Ledger(ledger)

    def cut(job: Any) -> list[Chunk]:
        time.sleep(random.uniform(0, LONGEST_S))
        return [Chunk(job.item.height, number) for number in job.item.chunks]

    def verify(job: Any) -> None:
        time.sleep(random.uniform(0, LONGEST_S))
        chunk = job.item
        book.write("verified", height=chunk.height, number=chunk.number, value=verified(chunk))

    with holdfast.connect(url) as queue:
        chunks = Log(queue, "chunks", Chunk, key=lambda chunk: f"{chunk.height}/{chunk.number}")
        stages = stage(cut, max_processing=2, into=chunks), stage(verify, max_processing=4, max_ahead=100)
        with pipeline(chain(head), *stages, queue=queue, name="p", only=only):
            post.say("ready")
            post.hear()
