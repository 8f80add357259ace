"""What a batch has read, and what it has written so far, before anything of it is committed."""

from collections.abc import Mapping

from ...core.job import Body, Job
from ..contract import UNCHANGED, CountKey, RowKey, TallyKey


class Seen:
    """What was read, as the server had it. None: it was not there. The commit checks that it is still so."""

    def __init__(self) -> None:
        # Jobs, and the stamps of those that are there.
        self.jobs: dict[int, Job | None] = {}
        self.stamps: dict[int, bytes] = {}
        self.archive: dict[int, Job | None] = {}
        self.archive_stamps: dict[int, bytes] = {}
        # The notice, and rows, with their stamps.
        self.notice: bytes | None = None
        self.rows: dict[RowKey, bytes | None] = {}
        # Tables that were read whole: the stamp of their last change, and their rows.
        self.tables: dict[str, tuple[bytes | None, dict[str, bytes]]] = {}
        # How many live jobs the domains have whose rows were read, by the key of the row.
        self.domain_sizes: dict[str, int] = {}
        # Bodies that came along with a claim, as they are kept. They need not stand still.
        self.data: dict[int, bytes] = {}


class Written:
    """What was written. None: it goes. Reads look here before they look at what was seen."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job | None] = {}
        self.archive: dict[int, Job | None] = {}
        # Ids of jobs that were added without looking whether they exist: the commit does.
        self.added: set[int] = set()
        self.data: dict[int, Body | None] = {}
        self.results: dict[int, Body | None] = {}
        self.counts: Mapping[CountKey, int] = {}
        self.tallies: Mapping[TallyKey, int] = {}
        self.rows: dict[RowKey, bytes | None] = {}
        self.dues: dict[RowKey, int] = {}
        self.notice: bytes | None = UNCHANGED
