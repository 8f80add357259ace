"""How much memory a process has."""

import os
import subprocess
import sys
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int) -> int:
    """The memory that a process has in use; 0 where that cannot be told."""
    try:
        if sys.platform == "linux":
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
        words = ["ps", "-o", "rss=", "-p", str(pid)]
        return int(subprocess.run(words, capture_output=True, check=True).stdout) * 1024
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return 0
