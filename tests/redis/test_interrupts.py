"""Ctrl-C during a call to Redis raises its exception, wherever it strikes."""

import subprocess
import sys

# Most of the time of the call is spent on the numbers of the command.
PROGRAM = """
import signal, sys
from holdfast.store.redis.connection import server_of
from holdfast.store.redis.url import parse

def strike(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, strike)
server = server_of(parse(sys.argv[1]), b"{test}")
numbers, struck = range(1_000_000), 0
for after_ms in range(10, 110, 10):
    try:
        signal.setitimer(signal.ITIMER_REAL, after_ms / 1000)
        server.call(b"EXISTS", *numbers)
    except KeyboardInterrupt:
        struck += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
assert struck
assert server.call(b"EXISTS", 1, 2) == 0
"""


def test_an_interrupt_while_a_command_is_written_does_not_crash_the_process(redis_url):
    """hiredis runs signal handlers while it writes a number, and does not look whether they raised."""
    subprocess.run([sys.executable, "-c", PROGRAM, redis_url], check=True, timeout=60)
