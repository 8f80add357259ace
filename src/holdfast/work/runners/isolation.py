"""What separates contexts from the machine and from each other: found by trying, and built into commands.

root, bubblewrap works       namespaces made by root, then another user id for each context
not root, bubblewrap works   namespaces of a user namespace, the worker's own user id
root, without bubblewrap     another user id for each context, a new folder
neither                      limits, environment and folder only
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ...core.errors import BadInput
from ...core.handler import RunnerOptions
from ..logs import TRUSTED_ONLY
from .cgroup import ContextCgroup, find_cgroup
from .settings import SYSTEM_PATH, RunnerSettings, find_interpreters
from .system_calls import filter_program

CHILDREN = Path(__file__).parent / "children"
# Where contexts find those programs, and their own folder, behind the walls.
INNER_CHILDREN, INNER_FOLDER = "/holdfast", "/job"
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl")
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ca-certificates")
# Where a kernel has it, system calls can be refused.
SECCOMP = Path("/proc/sys/kernel/seccomp")
# Of bubblewrap since 0.8: a user namespace in which no other can be made.
NO_NESTED_USERS = "--disable-userns"
# User ids that belong to no account: those that systemd gives to services for the time that they run.
FIRST_USER, LAST_USER = 61184, 65519
TRIAL_S = 20.0
MB = 1 << 20


class Isolation(Struct, frozen=True, kw_only=True):
    """The walls that contexts have here."""

    settings: RunnerSettings
    # The path of a bubblewrap that works, or "" and the reason.
    bwrap: str = ""
    reason: str = ""
    # Whether contexts get user ids of their own.
    is_root: bool = False
    # The program that refuses system calls, and the group below which each context has one; empty without.
    filter: bytes = b""
    cgroup: str = ""
    # More arguments of bubblewrap, of those that work here.
    more: tuple[str, ...] = ()

    @property
    def interpreters(self) -> dict[str, tuple[str, ...]]:
        """The commands of the languages that can run here."""
        return find_interpreters(self.settings, readable=self.is_root and not self.bwrap)

    def describe(self) -> str:
        """One line for the log of a worker."""
        user = "a user id for each context" if self.is_root else "the user id of the worker"
        if not self.bwrap:
            return f"{TRUSTED_ONLY}: limits and {user}; network and files are open ({self.reason})"
        network = "open" if self.settings.network else "closed"
        limits = "limits by cgroups" if self.cgroup else "limits"
        return f"bubblewrap, {limits} and {user}; files closed, network {network}"


def find_isolation(settings: RunnerSettings) -> Isolation:
    """The walls that can be built here, by trying; raises `BadInput` if bubblewrap is required and fails."""
    plain = Isolation(
        settings=settings,
        is_root=os.geteuid() == 0,
        filter=filter_program() if SECCOMP.is_dir() else b"",
        cgroup=find_cgroup(settings.cgroup),
    )
    if settings.isolation == "none":
        return replace(plain, reason="isolation is none")
    if (path := shutil.which("bwrap")) is None:
        found = replace(plain, reason="bubblewrap is not installed")
    else:
        found = find_walls(plain, path)
    if found.reason and settings.isolation == "required":
        raise BadInput("isolation", "required", needed=f"a bubblewrap that works here: {found.reason}")
    return found


def find_walls(plain: Isolation, path: str) -> Isolation:
    """The same with the walls of a bubblewrap, or with the reason why it does not work."""
    walled = replace(plain, bwrap=path)
    if not plain.is_root and not _try_bwrap(nested := replace(walled, more=(NO_NESTED_USERS,))):
        return nested
    reason = _try_bwrap(walled)
    return replace(plain, reason=reason) if reason else walled


def _try_bwrap(walled: Isolation) -> str:
    """Run a program behind the walls; returns why that failed, or ""."""
    script = "cd /job && test ! -e /etc/passwd"
    command = [walled.bwrap, *_wall_arguments(walled), "--", "/bin/sh", "-c", script]
    try:
        done = subprocess.run(
            command,
            env={"PATH": SYSTEM_PATH},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot be run: {error}"
    if done.returncode:
        return f"bubblewrap fails: {done.stderr.decode(errors='replace').strip() or done.returncode}"
    return ""


def _wall_arguments(isolation: Isolation) -> list[str]:
    """The arguments of bubblewrap: what a context sees, and nothing else."""
    settings = isolation.settings
    arguments = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    arguments += ["--die-with-parent", "--new-session", "--hostname", "job"]
    arguments += [] if settings.network else ["--unshare-net"]
    if isolation.is_root:
        # Enough to become another user, which takes these away as well.
        arguments += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        arguments += ["--unshare-user", *isolation.more]
    for name in SYSTEM_FOLDERS:
        if Path(name).is_symlink():
            arguments += ["--symlink", str(Path(name).readlink()), name]
        elif Path(name).is_dir():
            arguments += ["--ro-bind", name, name]
    files = SYSTEM_FILES + (NETWORK_FILES if settings.network else ())
    prefix = (
        () if Path("/usr") in (Path(sys.base_prefix), *Path(sys.base_prefix).parents) else (sys.base_prefix,)
    )
    for name in (*files, *settings.folders, *prefix):
        arguments += [*_public_parents(name), "--ro-bind-try", name, name]
    arguments += ["--ro-bind", str(CHILDREN), INNER_CHILDREN]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    arguments += ["--perms", "1777", "--size", str(settings.folder_mb * MB), "--tmpfs", INNER_FOLDER]
    arguments += ["--symlink", INNER_FOLDER.removeprefix("/"), "/tmp"]
    return [*arguments, "--chdir", INNER_FOLDER, "--remount-ro", "/"]


def _public_parents(name: str) -> list[str]:
    """Arguments that make the folders above a path, so that every user can pass through them."""
    parents = [str(parent) for parent in reversed(Path(name).parents) if parent != Path("/")]
    return [word for parent in parents for word in ("--perms", "0755", "--dir", parent)]


class LaunchPlan(Struct, frozen=True, kw_only=True):
    """How to start a context: the command but for its descriptors, its environment and its folder."""

    isolation: Isolation
    limits: dict[str, int]
    command: tuple[str, ...]
    environment: dict[str, str]
    # On this machine; "" behind walls, where it is in memory.
    folder: str
    user: "ReservedUser | None"
    cgroup: ContextCgroup | None

    def arguments(self, requests_fd: int, replies_fd: int) -> list[str]:
        """The whole command."""
        settings = {
            "requests": requests_fd,
            "replies": replies_fd,
            "limits": self.limits,
            "user": self.user.id if self.user else None,
            "filter": self.isolation.filter.hex(),
            "walled": bool(self.isolation.bwrap),
        }
        children = INNER_CHILDREN if self.isolation.bwrap else str(CHILDREN)
        confine = [str(Path(sys.executable).resolve()), "-I", "-S", "-B", f"{children}/confine.py"]
        inner = [*confine, json.dumps(settings), *self.command]
        if self.isolation.bwrap:
            inner = [self.isolation.bwrap, *_wall_arguments(self.isolation), "--", *inner]
        return self.cgroup.join(inner) if self.cgroup else inner

    def clean_up(self) -> None:
        """Delete what the context has left, and free its user id."""
        if self.cgroup:
            self.cgroup.remove()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.user:
            self.user.release()


def plan_launch(
    isolation: Isolation,
    *,
    tenant: str,
    interpreter: Sequence[str],
    bootstrap: Sequence[str],
    options: RunnerOptions,
) -> LaunchPlan:
    """How to start a context; makes its folder and reserves its user id."""
    user = ReservedUser() if isolation.is_root else None
    folder = "" if isolation.bwrap else _make_folder(user)
    children = INNER_CHILDREN if isolation.bwrap else str(CHILDREN)
    home = folder or INNER_FOLDER
    return LaunchPlan(
        isolation=isolation,
        limits=resource_limits(
            options, isolation.settings, has_user=isolation.is_root or bool(isolation.bwrap)
        ),
        command=tuple(word.replace("{children}", children) for word in (*interpreter, *bootstrap)),
        environment={
            "PATH": SYSTEM_PATH,
            "HOME": home,
            "TMPDIR": home,
            "LANG": "C.UTF-8",
            "HOLDFAST_TENANT": tenant,
        },
        folder=folder,
        user=user,
        cgroup=_make_cgroup(isolation, options),
    )


def resource_limits(options: RunnerOptions, settings: RunnerSettings, *, has_user: bool) -> dict[str, int]:
    """The limits of the kernel for each process of a context, by their names in `resource`."""
    limits = {
        "RLIMIT_CORE": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_DATA": options.memory_mb * MB,
        "RLIMIT_FSIZE": settings.folder_mb * MB,
        "RLIMIT_NOFILE": options.open_files,
        # All jobs of a context together; the executor measures each.
        "RLIMIT_CPU": options.cpu_ms * options.context_jobs // 1000 + 60,
    }
    # Counted for a user, and so of use only where no other processes have the same one.
    return limits | ({"RLIMIT_NPROC": settings.processes} if has_user else {})


class ReservedUser:
    """A user id that no process has, and that no worker on this machine gives to another context.

    The reservation is the name of an abstract socket. The kernel frees it when the worker ends.
    """

    def __init__(self) -> None:
        running = {owner for path in Path("/proc").glob("[0-9]*") if (owner := _owner_of(path)) is not None}
        while (user := random.randint(FIRST_USER, LAST_USER)) in running or not self._reserve(user):
            pass
        self.id = user

    def _reserve(self, user: int) -> bool:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            if sys.platform == "linux":
                self._socket.bind(f"\0holdfast-user-{user}")
        except OSError:
            self._socket.close()
            return False
        return True

    def release(self) -> None:
        """Let other contexts have it; no process may have it any more."""
        self._socket.close()


def _owner_of(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _make_cgroup(isolation: Isolation, options: RunnerOptions) -> ContextCgroup | None:
    """The group of a context; its folder in memory counts there too."""
    if not isolation.cgroup:
        return None
    return ContextCgroup(isolation.cgroup, (options.memory_mb + isolation.settings.folder_mb) * MB)


def _make_folder(user: ReservedUser | None) -> str:
    folder = tempfile.mkdtemp(prefix="holdfast-job-")
    if user is not None:
        os.chown(folder, user.id, user.id)
    return folder
