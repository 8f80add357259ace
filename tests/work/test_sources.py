"""Which stores a worker can work: those that its executors, other processes, can see."""

from pathlib import Path

import pytest

from holdfast.core.errors import BadInput
from holdfast.work.messages import QueueInfo
from holdfast.work.options import WorkerOptions
from holdfast.work.supervisor.sources import JobSources


def sources_of(url: str) -> JobSources:
    return JobSources(WorkerOptions(names=("app:queue",)), [QueueInfo(url=url, tasks=("t",))])


@pytest.mark.parametrize("url", ["{0}/jobs.db", "sqlite:///{0}/folder?shards=2", "{0}/a.db {0}/b.db"])
def test_files_can_be_worked_also_where_they_are_several(tmp_path: Path, url: str) -> None:
    sources = sources_of(url.format(tmp_path))

    assert [source.tasks for source in sources.all] == [("t",)]
    sources.close()


@pytest.mark.parametrize("url", ["memory://"])
def test_what_only_its_own_process_sees_cannot(url: str) -> None:
    with pytest.raises(BadInput, match="one that other processes can see"):
        sources_of(url)
