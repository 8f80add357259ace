"""The system calls that contexts may not make, as a program for the kernel (seccomp, classic BPF).

- Namespaces, mounts, `ptrace`, keys, BPF, modules, `io_uring` and others: a handler needs none of them, and
  errors of the kernel are often there.
- Memory that belongs to no process, as of `memfd_create` and of System V: only a cgroup would count it, as a
  descriptor that was sent over a socket and not received is in no table.

A call is refused with EPERM, or with ENOSYS where programs then do without it.
"""

import errno
import platform
import struct

from msgspec import Struct

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
