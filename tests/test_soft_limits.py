"""What a soft limit leaves behind in its process: nothing."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
from holdfast import SoftTimeout
from holdfast.queue.timers import TimerThread
from holdfast.queue.running import SoftLimit

def spin():
    while True:
        pass

limit = SoftLimit(TimerThread(), 20 if sys.argv[1] == "reached" else 60_000)
try:
    limit.run(spin if sys.argv[1] == "reached" else int)
except SoftTimeout:
    print("reached")
threading.setprofile(lambda *_: None)
profiled = threading.Thread(target=int, daemon=True)
profiled.start()
profiled.join(40)
print("hangs" if profiled.is_alive() else "runs")
"""


@pytest.mark.parametrize("end", ["reached", "not reached"])
def test_threads_can_be_profiled_after_a_run_with_a_soft_limit(end):
    """In Python 3.11 they spun in their first instruction once an exception had been taken back."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, end], capture_output=True, text=True, timeout=60)

    expected = ["reached", "runs"] if end == "reached" else ["runs"]
    assert done.stdout.split() == expected, done.stderr
