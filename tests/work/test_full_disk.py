"""A worker whose disk is full: it says so and waits, also where it has not claimed anything yet."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.work.conftest import Bench, lines_of


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]).returncode:
        pytest.skip("no file system can be made here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write until nothing more can be written; the file to delete."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return path


def test_a_worker_on_a_full_disk_waits_before_its_first_claim(small_disk):
    """With a line that says so; when there is room it goes on."""
    bench = Bench(small_disk)
    try:
        job = bench.queue.add("double", {"n": 1})
        filler = fill(small_disk)
        worker = bench.start("--until-empty")
        assert any(" waiting up to " in line for line in lines_of(worker))
        filler.unlink()

        assert job.result(wait=60) == 2
        assert worker.wait(60) == 0
    finally:
        bench.close()
