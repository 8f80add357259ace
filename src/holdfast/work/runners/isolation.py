"""What separates contexts from the machine and from each other: found by trying, and built into commands.

root, bubblewrap works       namespaces made by root, then another user id for each context
not root, bubblewrap works   namespaces of a user namespace, the worker's own user id
root, without bubblewrap     another user id for each context, a new folder
neither                      limits, environment and folder only

A cgroup for each context, where this process may make some: then the kernel counts and limits its memory.

Version 2 only. Processes may not be beside groups that are limited. So this needs the root of the hierarchy,
or a service with `Delegate=memory` and `DelegateSubgroup=`, whose processes are in a group below its own.

The system calls that contexts may not make, as a program for the kernel (seccomp, classic BPF).

- Namespaces, mounts, `ptrace`, keys, BPF, modules, `io_uring` and others: a handler needs none of them, and
  errors of the kernel are often there.
- Memory that belongs to no process, as of `memfd_create` and of System V: only a cgroup would count it, as a
  descriptor that was sent over a socket and not received is in no table.

A call is refused with EPERM, or with ENOSYS where programs then do without it.
"""

import errno
import itertools
import json
import os
import platform
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ...core.errors import BadInput
from ...core.handler import RunnerOptions
from ..logs import TRUSTED_ONLY
from .settings import SYSTEM_PATH, RunnerSettings, find_interpreters

# Where a program finds the number of a call, its architecture and the lower half of its first two arguments.
NUMBER, ARCHITECTURE, FIRST, SECOND = 0, 4, 16, 24
# Instructions: load a word; jump if equal, greater or equal, or if any of these bits is set; return.
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
# Namespaces of every kind, as flags of `clone` and `unshare`; that of time is a flag of `unshare` alone.
NAMESPACES, TIME_NAMESPACE = 0x7E020000, 0x80
# Types a character into a terminal.
TIOCSTI = 0x5412
# On x86, the numbers of calls with 32-bit pointers begin here.
X32_CALLS = 0x40000000


class Architecture(Struct, frozen=True):
    """A kind of processor, and the numbers of its calls."""

    code: int
    clone: int
    unshare: int
    ioctl: int
    # Refused with EPERM, and as if they did not exist.
    forbidden: tuple[int, ...]
    missing: tuple[int, ...]


# Since 2019 a call has the same number everywhere: open_tree to fspick, pidfd_getfd, mount_setattr,
# quotactl_fd; io_uring, clone3 (a filter cannot read its flags, and libraries then use clone), memfd_secret.
NEW_FORBIDDEN = (*range(428, 434), 438, 442, 443)
NEW_MISSING = (425, 426, 427, 435, 447)
# In this order: ptrace, syslog, mount, umount2, swapon, swapoff, reboot, pivot_root, chroot, acct,
# init_module, delete_module, finit_module, quotactl, add_key, request_key, keyctl, kexec_load,
# kexec_file_load, perf_event_open, open_by_handle_at, setns, process_vm_readv, process_vm_writev, kcmp,
# bpf; then userfaultfd, memfd_create, shmget, msgget, semget, mq_open.
ARCHITECTURES = {
    "x86_64": Architecture(
        0xC000003E,
        clone=56,
        unshare=272,
        ioctl=16,
        forbidden=(101, 103, 165, 166, 167, 168, 169, 155, 161, 163, 175, 176, 313, 179, 248, 249, 250)
        + (246, 320, 298, 304, 308, 310, 311, 312, 321, *NEW_FORBIDDEN),
        missing=(323, 319, 29, 68, 64, 240, *NEW_MISSING),
    ),
    "aarch64": Architecture(
        0xC00000B7,
        clone=220,
        unshare=97,
        ioctl=29,
        forbidden=(117, 116, 40, 39, 224, 225, 142, 41, 51, 89, 105, 106, 273, 60, 217, 218, 219)
        + (104, 294, 241, 265, 268, 270, 271, 272, 280, *NEW_FORBIDDEN),
        missing=(282, 279, 194, 186, 190, 180, *NEW_MISSING),
    ),
}


def filter_program(machine: str = platform.machine()) -> bytes:
    """The filter for a kind of processor; empty if its calls are not known here."""
    if (known := ARCHITECTURES.get(machine)) is None:
        return b""
    missing, forbidden = _return(ERROR | errno.ENOSYS), _return(ERROR | errno.EPERM)
    program = [_step(LOAD, ARCHITECTURE), _step(EQUAL, known.code, 1, 0), _return(KILL)]
    program += [_step(LOAD, NUMBER), _step(AT_LEAST, X32_CALLS, 0, 1), missing]
    for numbers, refusal in ((known.missing, missing), (known.forbidden, forbidden)):
        for number in numbers:
            program += [_step(EQUAL, number, 0, 1), refusal]
    for number, where, test, bits in (
        (known.clone, FIRST, ANY_BIT, NAMESPACES),
        (known.unshare, FIRST, ANY_BIT, NAMESPACES | TIME_NAMESPACE),
        (known.ioctl, SECOND, EQUAL, TIOCSTI),
    ):
        program += [_step(EQUAL, number, 0, 4), _step(LOAD, where), _step(test, bits, 0, 1), forbidden]
        program += [_return(ALLOW)]
    return b"".join([*program, _return(ALLOW)])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """An instruction; of a jump, how many instructions are skipped in each case."""
    return struct.pack("HBBI", code, if_true, if_false, value)


def _return(value: int) -> bytes:
    return _step(RETURN, value)


MOUNT = Path("/sys/fs/cgroup")
# The mark of systemd on a group that it leaves to its service, for the service's user and for root.
DELEGATED = ("user.delegate", "trusted.delegate")
# Puts itself into the group that its first argument names, and becomes the command in the others.
JOIN = ("/bin/sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"')
# How often a group is tried to be removed: killed processes take a moment to go.
REMOVE_ROUNDS, REMOVE_WAIT_S = 200, 0.01

_numbers = itertools.count(1)


def find_cgroup(named: str = "") -> str:
    """The group below which contexts may have theirs, or ""; raises `BadInput` if the named one fails."""
    for folder in [Path(named)] if named else _delegated_groups():
        try:
            (folder / "cgroup.subtree_control").write_text("+memory")
            ContextCgroup(str(folder), 1 << 20).remove()
        except OSError as error:
            if named:
                needed = (
                    f"a cgroup of version 2 without processes, to be limited by this user ({error.strerror})"
                )
                raise BadInput("cgroup", named, needed=needed) from None
        else:
            return str(folder)
    return ""


def _delegated_groups() -> list[Path]:
    """The group of this process and the one above it, those of them that others do not manage."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    own = next((MOUNT / line[4:] for line in lines if line.startswith("0::/")), None)
    if own is None or "memory" not in _read(MOUNT / "cgroup.controllers").split():
        return []
    return [own] if own == MOUNT else [one for one in (own.parent, own) if _is_delegated(one)]


def _is_delegated(folder: Path) -> bool:
    for name in DELEGATED:
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:
            pass  # not marked, or not to be read by this user
    return False


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class ContextCgroup:
    """The group of one context."""

    def __init__(self, parent: str, memory_bytes: int) -> None:
        self.path = Path(parent) / f"holdfast-{os.getpid()}-{next(_numbers)}"
        self.path.mkdir()
        try:
            (self.path / "memory.max").write_text(str(memory_bytes))
            # Not one process alone: the others would wait for it.
            (self.path / "memory.oom.group").write_text("1")
            if (swap := self.path / "memory.swap.max").exists():
                swap.write_text("0")
        except OSError:
            self.path.rmdir()
            raise

    def join(self, command: list[str]) -> list[str]:
        """A command that runs in the group from its start."""
        return [*JOIN, str(self.path), *command]

    def was_out_of_memory(self) -> bool:
        """Whether the kernel has killed its processes for their memory."""
        events = dict(line.split() for line in _read(self.path / "memory.events").splitlines())
        return events.get("oom_kill", "0") != "0"

    def remove(self) -> None:
        """Kill what is in it, and remove it; one that stays is empty of processes and costs nothing."""
        for _ in range(REMOVE_ROUNDS):
            try:
                (self.path / "cgroup.kill").write_text("1")
                self.path.rmdir()
                return
            except OSError:
                time.sleep(REMOVE_WAIT_S)


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
