"""A process with more open files than `select` takes waits for other processes as any does."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from tests.stores import SERVED

# The first descriptor that `select` refuses.
REFUSED = 1024


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The address of an empty store in a file."""
    return f"sqlite:///{tmp_path}/many.db"


@pytest.fixture
def _many_files() -> Iterator[None]:
    """As many open files as a server with a thousand clients has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * REFUSED:
        pytest.skip(f"a process may have {hard} open files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * REFUSED), hard))
    files: list[int] = []
    try:
        while not files or files[-1] < REFUSED:
            files.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("address", ["sqlite_url", *SERVED])
@pytest.mark.usefixtures("_many_files")
def test_a_process_with_very_many_files_is_woken(address: str, request: pytest.FixtureRequest) -> None:
    """By the commit of another process, also after it has announced its name."""
    url = request.getfixturevalue(address)
    with holdfast.connect(url) as adds, holdfast.connect(url) as waits:
        adds.add("t")
        waits.counts()
        (store,) = waits.connection.store.shards
        store.appear("a-process")
        while store.wait(0.1):
            pass

        adds.add("t")

        assert store.wait(60.0)
