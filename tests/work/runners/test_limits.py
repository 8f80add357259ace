"""Limits that handlers try to get around: memory, files and system calls, and what jobs leave behind."""

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.core.errors import BadInput
from holdfast.core.handler import RunnerOptions
from holdfast.work.runners.isolation import (
    filter_program,
    find_cgroup,
    find_isolation,
    find_walls,
    plan_launch,
)
from holdfast.work.runners.runner import run_once
from holdfast.work.runners.settings import RunnerSettings
from holdfast.work.runners.usage import processes_of
from tests.queue_suite.tools import until

from .running import handler, run, value

HOG = "keep = []\nwhile True: keep.append(bytearray(10_000_000))"
MEMFDS = """
import os, time
for _ in range(12):
    fd = os.memfd_create("x")
    for _ in range(60): os.write(fd, bytes(1 << 20))
time.sleep(60)
"""
SEGMENTS = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(10):
    key = libc.shmget(0, 60 << 20, 0o1600)
    if key < 0: raise MemoryError("refused")
    at = libc.shmat(key, None, 0)
    ctypes.memset(at, 1, 60 << 20)
    libc.shmdt(ctypes.c_void_p(at))
time.sleep(60)
"""
GIVEN_UP = """
import mmap, time
keep = []
for _ in range(40):
    keep.append(mmap.mmap(-1, 15 << 20))
    keep[-1][::4096] = b"1" * (15 << 8)
    keep[-1].madvise(mmap.MADV_DONTNEED)
time.sleep(60)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root learns the size of shared memory")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(MEMFDS, id="memfds"),
        pytest.param(SEGMENTS, id="segments"),
        pytest.param(GIVEN_UP, id="given up", marks=needs_root),
    ],
)
def test_memory_that_no_process_has_is_limited(runner, body):
    """720 MB in descriptors, 600 MB in segments, 600 MB that were mapped and given up by `madvise`."""
    [result] = run(runner, handler("python", body, memory_mb=256, cpu_ms=20_000, timeout_ms=20_000))

    assert result.exit_code == 500
    assert result.error.startswith(("MEMORY_LIMIT", "MemoryError: refused", "OSError: [Errno 38]"))


BORN = "import os, random\nborn = random.random()\nkept = []\n"
LEFT = {
    "memory": "import mmap\nkept.append(mmap.mmap(-1, 100 << 20))\nkept[0][::4096] = b'1' * (100 << 8)",
    "thread": "import threading\ndef burn():\n    while True: pass\n"
    "threading.Thread(target=burn, daemon=True).start()",
    "process": "if not os.fork():\n    import time\n    time.sleep(600)",
    "detached": "if not os.fork():\n    os.setsid()\n    import time\n    if not os.fork(): time.sleep(600)\n"
    "    os._exit(0)\nos.wait()",
    "reply": 'os.write(4, b\'{"number": 3, "result": %s}\\n\' % str(born).encode())\nwhile True: pass',
}


@pytest.mark.parametrize("left", LEFT)
def test_what_a_job_leaves_ends_with_it(runner, left):
    """Too much memory, a busy thread, processes, or a reply before its end: the context is not kept."""
    before = set(processes_of(os.getpid()))

    [first] = run(runner, handler("python", f"{LEFT[left]}\nreturn born", before=BORN, memory_mb=90))
    until(lambda: set(processes_of(os.getpid())) <= before)
    [second] = run(runner, handler("python", "return born", before=BORN, memory_mb=90))

    # Memory may have been measured before the end of the job.
    assert first.exit_code == 200 or first.error.startswith("MEMORY_LIMIT")
    assert second.exit_code == 200
    assert first.body != second.body


def test_a_job_does_not_run_beside_what_another_has_left(walled):
    """The rest of the batch has another context, and `afterEach` runs in each."""
    body = (
        "import subprocess, time\nif data: subprocess.Popen(['sleep', '600'])\ntime.sleep(0.06)\nreturn born"
    )
    leaves = handler("python", body, before=BORN, after_each="print('J: after|1')")

    found = run(walled, leaves, [b"0", b"1", b"0", b"0"])

    assert [result.exit_code for result in found] == [200] * 4
    assert found[0].body == found[1].body != found[2].body == found[3].body


def test_processes_that_scripts_have_started_stay(walled):
    """Those of `before` as long as the context, those of `beforeEach` as long as the batch."""
    start = "import subprocess\nhelpers.append(subprocess.Popen(['sleep', '600']))"
    body = "return [born, sum(one.poll() is None for one in helpers)]"
    stop = "helper = helpers.pop()\nhelper.kill()\nhelper.wait()"
    scripts = {"before": BORN + "helpers = []\n" + start, "before_each": start, "after_each": stop}

    first, second = run(walled, handler("python", body, **scripts), [b"0", b"1"])
    [third] = run(walled, handler("python", body, **scripts))

    assert value(first)[1] == 2
    assert first.body == second.body == third.body


def test_a_context_is_stopped_between_batches(runner):
    """A thread that waits cannot begin to work there; the next batch finds everything as it was."""
    before = set(processes_of(os.getpid()))
    body = "import threading\nthreading.Timer(3600, print).start()\nreturn born"

    [first] = run(runner, handler("python", body, before=BORN))
    pids = set(processes_of(os.getpid())) - before
    # All but those around it, which no handler has a say in.
    until(lambda: [state_of(pid) for pid in pids].count("T") == 1)
    [second] = run(runner, handler("python", body, before=BORN))

    assert first.body == second.body


def state_of(pid):
    """The letter of the state of a process, or nothing if it has ended: some help to start a context."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_the_files_of_a_folder_are_limited(runner):
    """Empty ones too, which have no size."""
    body = "import time\nfor n in range(20_000): open(f'f{n}', 'w').close()\ntime.sleep(60)"

    [result] = run(runner, handler("python", body, cpu_ms=60_000, open_files=1_024))

    assert (result.exit_code, result.error) == (500, "FOLDER_LIMIT: more than 10,000 files in its folder")


def test_the_size_of_a_folder_is_limited_without_bubblewrap(bare):
    """Each file is below the limit."""
    body = "import time\nfor n in range(4):\n    with open(f'f{n}', 'wb') as f: f.write(bytes(20_000_000))"

    [result] = run(bare, handler("python", body + "\ntime.sleep(60)", cpu_ms=20_000))

    assert (result.exit_code, result.error) == (500, "FOLDER_LIMIT: more than 64 MB in its folder")


# The number on x86_64 and elsewhere, two arguments, and the error: EPERM or ENOSYS.
REFUSED = {
    "unshare user": (272, 97, 0x10000000, 0, 1),
    "unshare mount": (272, 97, 0x00020000, 0, 1),
    "clone user": (56, 220, 0x10000011, 0, 1),
    "clone3": (435, 435, 0, 0, 38),
    "mount": (165, 40, 0, 0, 1),
    "ptrace": (101, 117, 0, 0, 1),
    "keyctl": (250, 219, 0, 0, 1),
    "bpf": (321, 280, 0, 0, 1),
    "perf_event_open": (298, 241, 0, 0, 1),
    "userfaultfd": (323, 282, 0, 0, 38),
    "process_vm_readv": (310, 270, 1, 0, 1),
    "kexec_load": (246, 104, 0, 0, 1),
    "io_uring_setup": (425, 425, 1, 0, 38),
    "ioctl TIOCSTI": (16, 29, 0, 0x5412, 1),
    "x32 getpid": (0x40000027, 0x40000027, 0, 0, 38),
}


@pytest.mark.skipif(not filter_program(), reason="the calls of this processor are not known")
@pytest.mark.parametrize("as_root", [True, False])
def test_system_calls_are_refused(isolation, as_root):
    """Behind walls that root has built, and behind those of a user namespace, in which none can be made."""
    if not isolation.bwrap:
        pytest.skip(isolation.reason)
    if as_root != isolation.is_root and not isolation.is_root:
        pytest.skip("this is not root")
    walls = isolation if as_root else walls_of_others(isolation)
    column = 0 if platform.machine() == "x86_64" else 1
    body = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    ctypes.set_errno(0)
    return libc.syscall(*map(ctypes.c_long, words)), ctypes.get_errno()
return [call(*words) for words in data]
"""
    words = [(case[column], *case[2:4], 0, 0) for case in REFUSED.values()]

    result = run_once(handler("python", body), json.dumps(words).encode(), walls)

    assert value(result) == [[-1, case[4]] for case in REFUSED.values()]


def walls_of_others(isolation):
    """The walls that a worker has which is not root."""
    return find_walls(replace(isolation, is_root=False, bwrap=""), isolation.bwrap)


def test_a_cgroup_has_the_processes_of_a_context_and_its_limit(isolation, tmp_path):
    """A folder stands for it, in which the kernel would have made the files."""
    plan = plan_launch(
        replace(isolation, cgroup=str(tmp_path)),
        tenant="acme",
        interpreter=("/bin/true",),
        bootstrap=(),
        options=RunnerOptions(memory_mb=100),
    )
    [group] = tmp_path.iterdir()
    assert plan.cgroup is not None

    done = subprocess.run(plan.cgroup.join(["/bin/echo", "in", "it"]), capture_output=True, check=True)

    assert done.stdout == b"in it\n"
    assert (group / "cgroup.procs").read_text() == "0\n"
    assert (group / "memory.max").read_text() == str((100 + 64) << 20)
    assert not plan.cgroup.was_out_of_memory()
    (group / "memory.events").write_text("max 3\noom 1\noom_kill 2\n")
    assert plan.cgroup.was_out_of_memory()
    if plan.user is not None:
        plan.user.release()


@pytest.mark.skipif(not find_cgroup(), reason="there is no cgroup of version 2 that this process may divide")
def test_the_kernel_limits_the_memory_of_a_cgroup(walled):
    """All that its processes have in memory counts, and they end together."""
    [result] = run(walled, handler("python", HOG, memory_mb=128, cpu_ms=20_000))

    assert result.exit_code == 500
    assert result.error.startswith(("MEMORY_LIMIT", "MemoryError"))
    walled.close()
    assert not list(Path(find_cgroup()).glob(f"holdfast-{os.getpid()}-*"))


def test_a_cgroup_that_is_named_must_work(tmp_path):
    with pytest.raises(BadInput, match=r"cgroup is .* must be a cgroup of version 2"):
        find_isolation(RunnerSettings(cgroup=str(tmp_path / "none")))
