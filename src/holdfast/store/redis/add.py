"""The command that adds a single READY job (`lua/add.lua`), packed from parts that are made once per task."""

from collections.abc import Mapping

from ...core.job import Place
from ..contract import CountKey, NewJobs
from .connection import ADD, Packed, packed
from .keys import INLINE_BYTES, REMEMBERED, STAMP_BYTES, Keys, encode_job, plain_lease

_FIRST = (b"EVALSHA", ADD.sha)


def is_single(group: NewJobs) -> bool:
    """Whether the script can add this new job."""
    job = group.template
    return job.place is Place.READY and not job.mock and not job.expires_at and job.size < INLINE_BYTES


class Adding:
    """Makes the commands of one store."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        # Everything before the id, by tenant, task, version and message.
        self._heads: dict[tuple[str, str, bytes, bytes], bytes] = {}

    def command(
        self, group: NewJobs, counts: Mapping[CountKey, int], version: bytes, message: bytes, stamp: bytes
    ) -> Packed:
        """The command that adds a job."""
        job, data = group.template, group.rows[0][1]
        about = (job.tenant, job.task, version, message)
        head = self._heads.get(about)
        if head is None:
            head = self._head(*about, counts)
        body = b"b" + data if isinstance(data, bytes) else b"s" + data.encode()
        record, plain = encode_job(job), plain_lease(job)
        size = STAMP_BYTES + len(record) + 1 + len(plain) + len(body)
        command = Packed(_FIRST)
        command.data = b"%s$19\r\n%019d\r\n$16\r\n%016d\r\n$%d\r\n%s%s\0%s%s\r\n" % (
            *(head, job.id, job.rank, size, stamp, record, plain, body),
        )
        return command

    def _head(
        self, tenant: str, task: str, version: bytes, message: bytes, counts: Mapping[CountKey, int]
    ) -> bytes:
        if len(self._heads) >= REMEMBERED:
            self._heads = {}
        keys = self._keys
        (count,) = counts
        named = (*keys.of_every_add, keys.queue(tenant, task))
        # Of which three words are still to come: the id, the rank and the value.
        words = ADD.command(named, version, keys.count_field(count), message, b"", b"", b"")
        head = packed(words).removesuffix(b"$0\r\n\r\n" * 3)
        self._heads[tenant, task, version, message] = head
        return head
