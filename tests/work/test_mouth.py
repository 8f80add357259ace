"""The executor's mouth: whatever threads say at once, all of it is heard."""

import socket
import subprocess
import sys
import threading

import pytest

from holdfast.work.executor.mouth import Mouth
from holdfast.work.messages import Began, Frames


@pytest.fixture
def eager_switches():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_nothing_that_is_noted_while_another_speaks_is_lost(eager_switches):
    """Eight threads note and flush; each of their words arrives once."""
    ours, theirs = socket.socketpair()
    mouth, threads, each = Mouth(theirs), 8, 6_000
    heard: list[int] = []

    def speak(first):
        for n in range(first, first + each):
            mouth.note(Began(number=1, job_id=n))
            if n % 3:
                mouth.flush()
        mouth.flush()

    speakers = [threading.Thread(target=speak, args=(n * each,)) for n in range(threads)]
    for speaker in speakers:
        speaker.start()
    frames = Frames()
    while len(heard) < threads * each:
        ours.settimeout(30)
        heard += [m.job_id for m in frames.feed(ours.recv(1 << 16)) if isinstance(m, Began)]
    for speaker in speakers:
        speaker.join()
    ours.close()
    theirs.close()

    assert sorted(heard) == list(range(threads * each))


def test_who_speaks_to_a_supervisor_that_is_gone_ends_without_a_word():
    """No traceback: that a supervisor was killed is no news of its executors'."""
    script = (
        "import socket\n"
        "from holdfast.work.executor.mouth import Mouth; from holdfast.work.messages import Began\n"
        "ours, theirs = socket.socketpair(); ours.close(); Mouth(theirs).send(Began(number=1, job_id=1))"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)

    assert (done.returncode, done.stderr) == (1, "")
