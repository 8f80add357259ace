"""A node that verifies a chain: each block is cut into chunks, each chunk is verified, none is left out.

    chain ──▶ cut (2 at once) ──▶ the log "chunks" ──▶ verify (15 at once)

It is what indexed consumers were thought up for. The node goes offline for a while, the chain grows on, and
when it is back it catches up from where its progress says it was. Run it with `python examples/blocks.py`.
"""

import hashlib
import tempfile
import threading

import msgspec

import holdfast
from holdfast.indexed import IndexedJob, Items, Log, consumers, pipeline, stage


class Block(msgspec.Struct, frozen=True):
    """A finalized block: as many chunks as its height says."""

    height: int
    chunks: int


class Chunk(msgspec.Struct, frozen=True):
    """A part of a block; its key is what makes a second cut of the block bring nothing new."""

    height: int
    number: int

    @property
    def key(self) -> str:
        """What it is known by."""
        return f"{self.height}/{self.number}"


class Chain:
    """A simulated chain: it has blocks up to a height, and grows when it is told to."""

    def __init__(self) -> None:
        self.height = 0

    def block(self, height: int) -> Block | None:
        """The block at a height, or None where there is none yet."""
        return Block(height, height % 4) if height <= self.height else None


class Node:
    """Cuts and verifies, and remembers in memory what it has verified; progress is in the store."""

    def __init__(self, chain: Chain, store: str) -> None:
        self.chain, self.store = chain, store
        self.verified: dict[str, str] = {}
        self._lock = threading.Lock()

    def cut(self, job: IndexedJob[Block]) -> list[Chunk]:
        """A block becomes its chunks; what is returned goes into the log."""
        return [Chunk(job.item.height, number) for number in range(job.item.chunks)]

    def verify(self, job: IndexedJob[Chunk]) -> None:
        """May run twice for one chunk after a crash: it comes to the same."""
        digest = hashlib.sha256(job.item.key.encode()).hexdigest()[:8]
        with self._lock:
            self.verified[job.item.key] = digest

    def online(self) -> None:
        """Be online until everything that there is has been verified."""
        with holdfast.connect(self.store) as queue:
            blocks = Items(Block).source(head=lambda: self.chain.height, at=self.chain.block)
            chunks = Log(queue, "chunks", Chunk, key=lambda chunk: chunk.key)
            stages = (
                stage(self.cut, max_processing=2, into=chunks),
                stage(self.verify, max_processing=15, max_ahead=1_000),
            )
            before = {name: mark.processed for name, mark in consumers(queue).items()}
            with pipeline(blocks, *stages, queue=queue, name="node") as line:
                assert line.drain(timeout=60)
            for name, mark in consumers(queue).items():
                print(f"  {name:<12} {before.get(name, 0):>6,} → {mark.processed:>6,}")


def main() -> None:
    """Online, offline while the chain grows, online again."""
    with tempfile.TemporaryDirectory() as folder:
        chain = Chain()
        node = Node(chain, f"{folder}/node.db")
        chain.height = 50
        print("The node is online, and the chain has 50 blocks:")
        node.online()
        chain.height = 2_000
        print("It was offline, and the chain has grown to 2,000 blocks. It catches up:")
        node.online()
        wanted = sum(height % 4 for height in range(1, 2_001))
        print(f"{len(node.verified):,} of {wanted:,} chunks are verified, none was left out.")
        assert len(node.verified) == wanted


if __name__ == "__main__":
    main()
