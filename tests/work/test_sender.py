"""What an executor sends: whatever threads send at once, all of it arrives."""

import asyncio
import socket
import subprocess
import sys
import threading

import pytest

from holdfast.work.executor.session import Sender
from holdfast.work.messages import FrameReader, JobStarted


@pytest.fixture
def eager_switches():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_nothing_that_threads_send_at_once_is_lost(eager_switches):
    """Eight threads send; each of their messages arrives once."""
    ours, theirs = socket.socketpair()
    sender, threads, each = Sender(theirs, asyncio.new_event_loop()), 8, 6_000
    heard: list[int] = []

    def speak(first):
        for n in range(first, first + each, 3):
            sender.send([JobStarted(thread=1, number=1, started_s=0.0, job_id=n + k) for k in range(3)])

    speakers = [threading.Thread(target=speak, args=(n * each,)) for n in range(threads)]
    for speaker in speakers:
        speaker.start()
    frames = FrameReader()
    while len(heard) < threads * each:
        ours.settimeout(60)
        heard += [m.job_id for m in frames.feed(ours.recv(1 << 16)) if isinstance(m, JobStarted)]
    for speaker in speakers:
        speaker.join()
    ours.close()
    theirs.close()

    assert sorted(heard) == list(range(threads * each))


def test_an_executor_whose_supervisor_is_gone_ends_without_a_traceback():
    """No traceback: that a supervisor was killed is no news of its executors'."""
    script = (
        "import asyncio, socket\n"
        "from holdfast.work.executor.session import Sender; from holdfast.work.messages import JobStarted\n"
        "ours, theirs = socket.socketpair(); ours.close()\n"
        "start = JobStarted(thread=1, number=1, started_s=0.0, job_id=1)\n"
        "Sender(theirs, asyncio.new_event_loop()).send([start])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (1, "")
