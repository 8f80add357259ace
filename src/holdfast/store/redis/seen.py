"""What a batch has read and written so far, before its commit."""

from collections.abc import Mapping

from ...core.job import Body, Job
from ..contract import UNCHANGED, CountKey, RowKey, TallyKey


class ReadSet:
    """What was read from the server; None for missing values. The commit checks that nothing has changed."""

    def __init__(self) -> None:
        # Jobs, and the stamps of those that exist.
        self.jobs: dict[int, Job | None] = {}
        self.stamps: dict[int, bytes] = {}
        self.archive: dict[int, Job | None] = {}
        self.archive_stamps: dict[int, bytes] = {}
        # Rows with their stamps.
        self.rows: dict[RowKey, bytes | None] = {}
        # Tables that were read whole: the stamp of their last change, and their rows.
        self.tables: dict[str, tuple[bytes | None, dict[str, bytes]]] = {}
        # The number of live jobs of domains whose rows were read, by the key of the row.
        self.domain_sizes: dict[str, int] = {}
        # The data of the jobs, as it is in their values. It may change before the commit.
        self.data: dict[int, bytes] = {}


class Written:
    """What was written; None for deleted values. Reads use it before `ReadSet`."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job | None] = {}
        self.archive: dict[int, Job | None] = {}
        # Ids of added jobs that were not looked up: the commit checks that they do not exist.
        self.added: set[int] = set()
        self.data: dict[int, Body | None] = {}
        self.results: dict[int, Body | None] = {}
        self.counts: Mapping[CountKey, int] = {}
        self.tallies: Mapping[TallyKey, int] = {}
        self.rows: dict[RowKey, bytes | None] = {}
        self.dues: dict[RowKey, int] = {}
        self.notice: bytes | None = UNCHANGED
