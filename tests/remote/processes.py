"""Servers as people start them: processes of `holdfast serve`, which tests may kill and start again."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from holdfast.store.common.clock import monotonic_s
from tests.ports import free_port

# How long a server may take to be ready, on a busy machine.
PATIENCE_S = 60.0


class ServerProcess:
    """A `holdfast serve` on one store and one port. A `with` block ends it."""

    def __init__(self, store: str, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"grpc://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "holdfast", "serve", "--store", store]
        self._command += ["--grpc", f"127.0.0.1:{self.port}", *options]
        self._log = folder / "serve.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, env=os.environ | {"NO_COLOR": "1"}
            )
        assert self._process.stdout is not None
        until_s = monotonic_s() + PATIENCE_S
        ready, _, _ = select.select([self._process.stdout], [], [], until_s - monotonic_s())
        line = self._process.stdout.readline() if ready else b""
        assert line.startswith(b"ready"), self._log.read_text()

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it without a word."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Have it drain and end; how it ended."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)
        return process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
