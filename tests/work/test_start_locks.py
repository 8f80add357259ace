"""The locks of starts: one of two processes has a job, and what is over costs nothing."""

import os
from pathlib import Path

from holdfast.work.shared_files import SharedStartLocks, StartLocks


def count_locks(fd):
    """How many locks the kernel keeps of a file."""
    file = os.fstat(fd)
    name = f" {os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino} "
    # By their ranges, of several readings: while others come and go, one may be listed twice or not at all.
    lines = [line for _ in range(5) for line in Path("/proc/locks").read_text().splitlines()]
    return len({tuple(line.split()[-2:]) for line in lines if name in line})


def test_a_job_starts_or_is_taken_back():
    """Whichever process locks its number first has it; forgotten numbers stay with the executor."""
    ours = SharedStartLocks()
    theirs = StartLocks(ours.executor_fd)

    assert (theirs.try_lock(1), ours.try_lock(1)) == (True, False)
    assert (ours.try_lock(2), theirs.try_lock(2)) == (True, False)
    assert [theirs.is_taken(number) for number in (1, 2, 3)] == [False, True, False]
    ours.forget(2)
    assert not ours.try_lock(2)
    ours.close()


def test_jobs_that_are_over_leave_one_lock():
    """However many were taken back: the kernel looks through all locks of a file for each new one."""
    ours = SharedStartLocks()
    theirs = StartLocks(ours.executor_fd)
    for number in range(3_000):
        (theirs if number % 3 else ours).try_lock(number)
    before = count_locks(ours.executor_fd)
    for number in range(0, 3_000, 3):
        ours.forget(number)

    assert (before, count_locks(ours.executor_fd)) == (2_000, 1)
    ours.close()
