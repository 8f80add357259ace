"""`make demo`: it says where it is, its pages answer, and Ctrl-C ends it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.ports import free_port

ROOT = Path(__file__).parents[2]
SECONDS = 120


def text_of(url: str) -> str:
    """A page, once the server answers."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            with urlopen(url, timeout=SECONDS) as reply:
                found: str = reply.read().decode()
                return found
        except URLError:
            assert time.monotonic() < until, f"{url} does not answer"
            time.sleep(0.05)


def wait_for(url: str, wanted: str) -> None:
    """Wait until a page shows a text."""
    until = time.monotonic() + SECONDS
    while wanted not in text_of(url):
        assert time.monotonic() < until, f"{url} never showed {wanted}"
        time.sleep(0.1)


def test_the_demo_runs_until_it_is_interrupted(tmp_path):
    """With a worker, jobs that end, a schedule, a limit, and a handler that the server runs."""
    address = f"127.0.0.1:{free_port()}"
    environment = os.environ | {"DEMO_HTTP": address, "TMPDIR": str(tmp_path)}
    program = [sys.executable, str(ROOT / "examples" / "demo.py")]
    demo = subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    try:
        said = [demo.stdout.readline() for _ in range(4)]
        assert f"http://{address}/" in said[0]
        wait_for(f"http://{address}/workers", "resize")
        for page, wanted in (
            ("schedules", "thumbnails"),
            ("limits", "shop.example"),
            ("handlers", "discount"),
        ):
            assert wanted in text_of(f"http://{address}/{page}")
        wait_for(f"http://{address}/jobs?q=state:finished", "resize")
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=SECONDS)
    finally:
        demo.kill()
        demo.wait()
        demo.stdout.close()
    assert demo.returncode == 0, rest
    assert re.search("^ending$", rest, re.MULTILINE)
    assert list(tmp_path.glob("holdfast-demo-*")) == []
