"""Programs that tests need and Python does not bring: found on the path, else installed.

What cannot be had is skipped with a loud line, and fails where CI runs it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import NoReturn, TypeVar

import pytest

T = TypeVar("T")
APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=240")


class Missing(Exception):
    """A program cannot be had here."""


@cache
def install(package: str) -> None:
    """Install a package of Debian's, as root on a Debian; elsewhere this does nothing."""
    if os.getuid() == 0 and shutil.which("apt-get"):
        sys.stderr.write(f"\ninstalling {package}\n")
        # A fresh machine does not know of any package before it has asked for the list.
        if _apt("install", "-y", "--no-install-recommends", package):
            _apt("update")
            _apt("install", "-y", "--no-install-recommends", package)


def _apt(*words: str) -> int:
    # No service of the system's own is to be started by an installation.
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    return subprocess.run([*APT, *words], capture_output=True, check=False, timeout=300, env=quiet).returncode


def program(name: str, package: str) -> str:
    """The path of a program, installed from a package if need be."""
    if shutil.which(name) is None:
        install(package)
    if (found := shutil.which(name)) is None:
        raise Missing(f"there is no {name}: install {package}")
    return found


def or_skip(make: Callable[[], T], *, what: str) -> T:
    """What `make` makes, or the test is skipped: loudly, and not where CI runs it."""
    try:
        return make()
    except Missing as error:
        _leave_out(f"NOT TESTED {what}: {error}")


def _leave_out(text: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(text, pytrace=False)
    sys.stderr.write(f"\n{text}\n")
    pytest.skip(text)
