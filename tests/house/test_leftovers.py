"""The guard that fails a test which leaves something running, seen at work."""

import subprocess
import sys
import threading

from tests.leftovers import Leftovers


def test_a_thread_left_behind_is_found():
    """One that keeps the interpreter alive, or one of ours; not a daemon of somebody else's."""
    leftovers, stop = Leftovers(), threading.Event()
    threads = [
        threading.Thread(target=stop.wait, name="plain"),
        threading.Thread(target=stop.wait, name="holdfast-renew", daemon=True),
        threading.Thread(target=stop.wait, name="somebody's", daemon=True),
    ]
    for thread in threads:
        thread.start()

    found = leftovers.wait(0.05)
    stop.set()

    assert sorted(found) == ["thread holdfast-renew", "thread plain"]
    assert leftovers.wait() == []


def test_a_process_left_behind_is_found_and_killed():
    """Also where a thread started it that has ended since."""
    leftovers = Leftovers()
    started: list[subprocess.Popen[bytes]] = []
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    thread = threading.Thread(target=lambda: started.append(subprocess.Popen(command, stdin=subprocess.PIPE)))
    thread.start()
    thread.join()

    found = leftovers.wait(0.05)

    with started[0] as process:
        assert len(found) == 1
        assert found[0].startswith(f"process {process.pid}: ")
    assert leftovers.wait() == []


def test_what_is_about_to_end_is_given_a_moment():
    """A thread and a process that end by themselves are no leftovers."""
    leftovers = Leftovers()
    threading.Timer(0.05, lambda: None).start()

    with subprocess.Popen([sys.executable, "-c", "pass"]):
        assert leftovers.wait() == []
