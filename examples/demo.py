"""The whole of Holdfast on one file: a server with the dashboard, a worker, and jobs that come and go.

`make demo` runs it until Ctrl-C. It keeps its store in a folder of its own, which is deleted at the end.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ADDRESS = os.environ.get("DEMO_HTTP", "127.0.0.1:8080")
TEXT = f"""\
dashboard   http://{ADDRESS}/
metrics     http://{ADDRESS}/metrics
API         http://{ADDRESS}/v1/openapi.json
Try: open a failed job and retry it; pause the task resize; lift the limit of shop.example; change the handler
discount and try it; run a schedule now.
Ctrl-C ends it."""


def start(*words: str) -> subprocess.Popen[bytes]:
    """A command of Holdfast beside the tasks of the demo."""
    program = [sys.executable, "-m", "holdfast", *words]
    return subprocess.Popen(program, cwd=Path(__file__).parent, stdout=subprocess.DEVNULL)


def run(store: str) -> None:
    """Serve, work and add jobs, until Ctrl-C."""
    os.environ["DEMO_STORE"] = store
    processes = [start("serve", "--store", store, "--http", ADDRESS)]
    processes.append(start("worker", "demo_tasks:queue", "--threads", "4", "--drain-timeout", "1s"))
    try:
        # Its queue is that of the store above.
        import demo_tasks

        with demo_tasks.queue:
            print(f"{TEXT}\nstore       {store}", flush=True)
            demo_tasks.seed()
            while all(process.poll() is None for process in processes):
                demo_tasks.feed()
                time.sleep(0.5)
        sys.exit(f"the server or the worker has ended; is {ADDRESS} free?")
    except KeyboardInterrupt:
        print("ending")
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        run(f"{folder}/jobs.db")
