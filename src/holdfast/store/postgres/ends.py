"""What a batch on the PostgreSQL store takes away: jobs that are over, and bodies.

In a batch that reads nothing these are kept until its counts are known: then one call says it all (`finish`,
in the fifth migration).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...core.errors import Conflict
from ...core.job import Body, Job
from ..contract import Moments
from .reads import PostgresReads
from .rows import bodies as as_arrays
from .rows import kept
from .statements import numbers

_NO_RESULTS = {"result_ids": "{}", "result_bodies": "{}", "result_raws": "{}"}


class PostgresEnds(PostgresReads):
    """See `Txn` for what each verb promises."""

    wrote = False
    _blind = False
    _moments: Moments | None = None
    # The data of what was claimed, where it stands beside the job; None: it is kept apart.
    _beside: dict[int, Body | None]
    # What is over in a batch that reads nothing, as `finish` is told of it.
    _over: dict[str, Any] | None = None

    def _write(self, name: str, values: Any) -> int:
        self.wrote, self._moments = True, None
        return self.link.change(self.sql[name], values)

    def remove(self, jobs: Sequence[Job]) -> None:
        """Remove live jobs with data and result."""
        self._delete("remove", [(job.id, job.version) for job in jobs], {})

    def archive(self, jobs: Sequence[Job], *, keep: bool) -> None:
        """Move live jobs, as their next version, to the archive, or away."""
        jobs = sorted(jobs, key=lambda job: job.id)
        expected = [(job.id, job.version - 1) for job in jobs]
        if keep:
            self._delete("archive", expected, kept(jobs))
        else:
            self._delete("remove", expected, {})

    def _delete(self, name: str, expected: list[tuple[int, int]], values: dict[str, str]) -> None:
        if not expected:
            return
        self.wrote, self._moments = True, None
        ids, versions = zip(*expected, strict=True)
        values |= {"ids": numbers(ids), "versions": numbers(versions)}
        if self._blind and name == "archive" and self._over is None:
            self._over = values | _NO_RESULTS
        elif self.link.value(self.sql[name], values) != len(ids):
            raise Conflict(f"not all of {len(ids)} jobs are of their version")

    def forget(self, ids: Collection[int]) -> None:
        """Remove archived jobs with their bodies."""
        if ids:
            self._write("forget", {"ids": numbers(ids)})

    def purge(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        """Remove and return the first archived jobs that ended before a moment."""
        old = self._jobs("purge", {"before": before_ms, "tenant": tenant, "limit": limit})
        self.wrote = self.wrote or bool(old)
        return sorted(old, key=lambda job: (job.finished_at, job.id))

    def put_bodies(self, bodies: Mapping[int, Body], *, result: bool = False) -> None:
        """Write or replace data or results."""
        if not bodies:
            return
        values = {"ids": numbers(bodies)} | as_arrays(list(bodies.values()))
        if result and self._over is not None:
            self._over |= {f"result_{name}": array for name, array in values.items()}
            return
        self._write("put_results" if result else "put_data", values)
        if not result:
            for job_id in bodies:
                self._beside.pop(job_id, None)
