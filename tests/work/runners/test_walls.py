"""Handlers that misbehave: stopped or walled off, with the right reason, and their neighbours unharmed."""

import os
import socket
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.core.errors import BadInput
from holdfast.work.runners import isolation
from holdfast.work.runners.isolation import find_isolation
from holdfast.work.runners.records import HandlerJob, RunEvents, RunResult
from holdfast.work.runners.settings import RunnerSettings
from holdfast.work.runners.usage import processes_of
from tests.queue_suite.tools import until

from .running import handler, run, value

# Every language behind the walls, and one without; the others by `make proof`.
CASES = [("walled", "python"), ("walled", "node"), ("walled", "shell"), ("bare", "python")]
CASES += [pytest.param("bare", lang, marks=pytest.mark.proof) for lang in ("node", "shell")]  # type: ignore[misc]
every_case = pytest.mark.parametrize(("runner", "lang"), CASES, indirect=["runner"])

LOOPS = {"python": "while True: pass", "node": "for (;;);", "shell": "while :; do :; done"}
HOGS = {
    "python": "keep = []\nwhile True: keep.append(bytearray(10_000_000))",
    "node": "const keep = []; for (;;) keep.push(Buffer.alloc(1e7, 1))",
    "shell": "x=0123456789; while :; do x=$x$x; done",
}
FLOODS = {
    "python": "while True: print('x' * 1000)",
    "node": "for (;;) console.log('x'.repeat(1000))",
    "shell": "while :; do echo 0123456789012345678901234567890123456789; done",
}
FORKS = {
    "python": "import os, time\nwhile True:\n    if not os.fork(): time.sleep(60); os._exit(0)",
    "node": "const {spawn} = require('child_process'); const all = [];\n"
    "await new Promise((_, no) => {\n"
    "  for (let n = 0; n < 200; n++) all.push(spawn('sleep', ['60']).on('error', no)) })",
    "shell": "while :; do sleep 60 & done",
}
LIMIT_REASONS = ("MEMORY_LIMIT", "EXITED", "MemoryError", "exit status", "RangeError", "Error")
FORK_REASONS = ("PROCESS_LIMIT", "EXITED", "BlockingIOError", "exit status", "Error")


@pytest.fixture
def neighbour(runner):
    """Runs jobs of another tenant in the same runner during the test; all of them must succeed."""
    stop = threading.Event()
    results: list[RunResult] = []

    def work():
        while not stop.is_set() or len(results) < 5:
            results.extend(run(runner, handler("python", "return data + 1", tenant="other"), [b"1"]))
            stop.wait(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join()
    assert {(result.exit_code, result.body, result.error) for result in results} == {(200, "2", "")}


def check_next_job_runs(runner, lang):
    """The same tenant's next job runs, in a new context."""
    body = {"python": "return 7", "node": "return 7", "shell": "echo 7 >&3"}[lang]
    assert run(runner, handler(lang, body))[0].body == "7"


@every_case
def test_a_loop_ends_at_its_cpu_limit(runner, neighbour, lang):
    """The next job of the batch runs all the same."""
    body = {
        "python": "if data: return 7\n",
        "node": "if (data) return 7;",
        "shell": "read n; [ $n = 0 ] || { echo 7 >&3; exit; }\n",
    }

    looped, well = run(runner, handler(lang, body[lang] + LOOPS[lang], cpu_ms=300), [b"0", b"1"])

    assert (looped.exit_code, looped.error.split(":")[0]) == (500, "CPU_LIMIT")
    assert looped.cpu_ms >= 300
    assert (well.exit_code, well.body) == (200, "7")


@pytest.mark.parametrize(
    "body", ["import time\ntime.sleep(60)", "import threading\nthreading.Event().wait()"]
)
def test_a_job_that_waits_ends_at_its_time_limit(walled, body):
    """Without CPU time being used."""
    [result] = run(walled, handler("python", body, timeout_ms=300))

    assert (result.exit_code, result.error.split(":")[0]) == (500, "TIMEOUT")
    assert result.wall_ms >= 300


@every_case
def test_memory_is_limited(runner, neighbour, lang):
    """The job gets an error of its language, or its context is killed."""
    [result] = run(runner, handler(lang, HOGS[lang], memory_mb=128, cpu_ms=20_000))

    assert result.exit_code == 500
    assert result.error.startswith(LIMIT_REASONS)
    check_next_job_runs(runner, lang)


def test_the_memory_of_all_processes_counts(walled):
    """Ten processes of 40 MB are above the limit of 200 MB, though none of them is."""
    body = """
import os, time
for _ in range(10):
    if not os.fork():
        x = bytearray(b'1') * 40_000_000
        break
time.sleep(60)
"""

    [result] = run(walled, handler("python", body, memory_mb=200, cpu_ms=20_000))

    assert (result.exit_code, result.error.split(":")[0]) == (500, "MEMORY_LIMIT")


def test_shared_memory_counts_once(walled):
    """It is that of no process alone: four that share 100 MB are below the limit, and 300 MB are above it."""
    body = """
import mmap, os, time
shared = mmap.mmap(-1, data << 20)
children = [os.fork(), os.fork()]
shared[::4096] = b"1" * (data << 8)
time.sleep(0.5 if all(children) else 60)
return data
"""

    small, large = run(walled, handler("python", body, memory_mb=250, cpu_ms=20_000), [b"100", b"300"])

    assert (small.exit_code, small.body) == (200, "100")
    assert (large.exit_code, large.error.split(":")[0]) == (500, "MEMORY_LIMIT")


@every_case
def test_processes_are_limited_and_end_with_their_context(runner, neighbour, lang):
    """A fork bomb gets an error, or its context is killed; nothing of it is left."""
    [result] = run(runner, handler(lang, FORKS[lang], cpu_ms=20_000, timeout_ms=60_000))

    assert result.exit_code == 500
    assert result.error.startswith(FORK_REASONS)
    # Whoever was killed takes a moment to go.
    until(lambda: not [pid for pid in processes_of(os.getpid()) if b"sleep" in command_of(pid)])
    check_next_job_runs(runner, lang)


def command_of(pid):
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@every_case
def test_output_is_limited(runner, neighbour, lang):
    """The last lines are its log."""
    [result] = run(runner, handler(lang, FLOODS[lang], output_kb=64, cpu_ms=20_000))

    assert (result.exit_code, result.error.split(":")[0]) == (500, "OUTPUT_LIMIT")
    assert len(result.lines) > 10
    check_next_job_runs(runner, lang)


def test_a_result_is_limited(walled):
    """17 MB are an error of the job; 40 MB end the context as well."""
    found = run(
        walled, handler("python", "return 'x' * data", memory_mb=512), [b"17000000", b"40000000", b"1"]
    )

    assert [result.exit_code for result in found] == [500, 500, 200]
    assert all(result.error.startswith("RESULT_LIMIT") for result in found[:2])


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it reads all that node can write")
def test_a_result_that_is_nested_too_deeply_ends_the_context(walled):
    [result] = run(walled, handler("node", "let x = []; for (let n = 0; n < 3000; n++) x = [x]; return x"))

    assert result.error.startswith("INVALID_RESPONSE")


def test_open_files_are_limited(runner):
    """A handler that opens every file gets the error of the system."""
    body = "keep = []\nwhile True: keep.append(open('/dev/null'))"

    [result] = run(runner, handler("python", body, open_files=64))

    assert (result.exit_code, result.error.split(":")[0]) == (500, "OSError")
    assert "Too many open files" in result.error


def test_large_files_and_full_folders(walled):
    """The folder has a size, whatever number of files share it."""
    body = "for n in range(100):\n    with open(f'file{n}', 'wb') as f: f.write(bytes(1_000_000))"

    [result] = run(walled, handler("python", body))

    assert result.error.startswith("OSError: [Errno 28]")


WRITES = """
import os
written = []
library = os.path.dirname(os.__file__)
for folder in ['/', '/etc', '/usr', '/usr/bin', '/var', '/dev', '/dev/shm', '/holdfast', library, data]:
    try:
        open(os.path.join(folder, 'holdfast-was-here'), 'w').close()
        written.append(folder)
    except OSError:
        pass
open('mine', 'w').close()
return written
"""


def test_nothing_is_written_outside_the_folder(walled, tmp_path):
    """Neither to the system, nor to folders that every user may write to."""
    tmp_path.chmod(0o777)

    [result] = run(walled, handler("python", WRITES), [str(tmp_path).encode()])

    assert (result.exit_code, result.body) == (200, "[]")
    assert not list(tmp_path.iterdir())


def test_a_user_id_is_given_to_one_context_at_a_time(monkeypatch):
    """Also by another worker on this machine: one context would be killed with the other."""
    monkeypatch.setattr(isolation, "FIRST_USER", 70_000)
    monkeypatch.setattr(isolation, "LAST_USER", 70_001)

    first, second = isolation.ReservedUser(), isolation.ReservedUser()
    assert {first.id, second.id} == {70_000, 70_001}
    first.release()
    third = isolation.ReservedUser()

    assert third.id == first.id
    for one in (second, third):
        one.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives contexts other user ids")
def test_another_user_cannot_write_without_bubblewrap(bare, tmp_path):
    """The user id of a context owns nothing but its folder, which is removed."""
    tmp_path.chmod(0o755)

    [result] = run(bare, handler("python", WRITES), [str(tmp_path).encode()])
    [where] = run(bare, handler("python", "import os\nreturn os.getcwd()"))

    assert (result.exit_code, result.body) == (200, '["/dev/shm"]')
    Path("/dev/shm/holdfast-was-here").unlink()
    bare.close()
    assert not Path(value(where)).exists()


def test_the_files_of_the_machine_cannot_be_read(walled, tmp_path):
    """Not even their names."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    tmp_path.chmod(0o777)
    body = (
        "import os\nreturn [path for path in ['/etc/passwd', '/home', '/var', data] if os.path.exists(path)]"
    )

    assert run(walled, handler("python", body), [str(secret).encode()])[0].body == "[]"


# The five that are set, and what programs and locales add by themselves.
ALLOWED_NAMES = {"HOME", "HOLDFAST_TENANT", "LANG", "PATH", "TMPDIR", "PWD", "LC_CTYPE"}


def test_the_environment_is_clean(runner, monkeypatch):
    """A secret of the worker is not in the environment, nor in that of a process that can be seen."""
    monkeypatch.setenv("HOLDFAST_TEST_SECRET", "hunter2-secret")
    body = """
import glob, os
found = [str(dict(os.environ))]
for path in glob.glob('/proc/*/environ'):
    try:
        found.append(open(path, errors='replace').read())
    except OSError:
        pass
return [os.getuid(), sorted(os.environ), any('hunter2' in one for one in found)]
"""
    [result] = run(runner, handler("python", body))

    user, names, has_secret = value(result)
    assert user != 0
    assert {"HOME", "HOLDFAST_TENANT", "LANG", "PATH", "TMPDIR"} <= set(names) <= ALLOWED_NAMES
    assert not has_secret


def test_privileges_are_gone(runner):
    """No capabilities, none to be gained, and none of the worker's descriptors."""
    body = """
import os
status = dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)
return [int(status['CapEff'], 16), status['NoNewPrivs'], sorted(map(int, os.listdir('/proc/self/fd')))[:5]]
"""
    [result] = run(runner, handler("python", body))

    assert result.body == '[0,"1",[0,1,2,3,4]]'


CONNECTS = """
import socket
try:
    socket.create_connection(('127.0.0.1', data), timeout=3).close()
    return 'connected'
except OSError as error:
    return type(error).__name__
"""


def test_the_network_is_closed_by_bubblewrap(walled):
    """A port of this machine cannot be reached, and there is no way to another one."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        [result] = run(walled, handler("python", CONNECTS), [str(server.getsockname()[1]).encode()])
        [names] = run(
            walled, handler("python", "import socket\nreturn [name for _, name in socket.if_nameindex()]")
        )

    assert result.body == '"ConnectionRefusedError"'
    assert names.body == '["lo"]'


def test_a_handler_can_signal_nobody_else(runner, neighbour):
    """It may end its own context: an error of its job."""
    if os.geteuid() != 0 and not runner._isolation.bwrap:
        pytest.skip("it has the user id of this process")
    body = """
import os, signal
for pid in (-1, os.getppid()):
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        pass
"""

    [result] = run(runner, handler("python", body))

    assert result.exit_code in (200, 500)
    check_next_job_runs(runner, "python")


@pytest.mark.parametrize("lang", ["python", "node", "shell"])
def test_forged_replies_end_the_context(walled, lang):
    """A reply that cannot be read, of another number, or none: an error. The next job has a new context."""
    body = {
        "python": """
import os
if data == 0: os.write(4, b'junk\\n')
if data == 1: os.write(4, b'{"number": 99}\\n')
if data == 2: os.close(4)
if data == 4: os.write(4, b'{"number": 2, "base64": "a"}\\n')
if data == 5: os.write(4, b'{"number": 2, "result": "\\xff"}\\n')
return 7
""",
        "node": """
const fs = require('fs')
if (data === 0) fs.writeSync(4, 'junk\\n')
if (data === 1) fs.writeSync(4, '{"number": 99}\\n')
if (data === 2) fs.closeSync(4)
if (data > 3) fs.writeSync(4, '[]\\n')
return 7
""",
        "shell": """
read n
case $n in 0) kill -9 $PPID;; 1) kill -9 -1;; 2) kill -9 $$;; 3) echo 7 >&3;; *) exit 9;; esac
""",
    }

    found = run(walled, handler(lang, body[lang]), [b"0", b"1", b"2", b"4", b"5", b"3"])

    assert [result.exit_code for result in found] == [500] * 5 + [200]
    assert found[5].body == "7"
    assert all(
        result.error.startswith(("INVALID_RESPONSE", "EXITED", "OSError", "Error", "exit status"))
        for result in found[:5]
    )


def test_a_running_job_is_cancelled(walled):
    """Its context is killed, at once."""
    started = threading.Event()
    results = []
    body = "import time\nopen('/dev/null').close()\ntime.sleep(600)"

    def on_started(job):
        started.set()
        return True

    def work():
        events = RunEvents(on_started, lambda job, result: results.append(result))
        walled.run(handler("python", body), [HandlerJob(id=1, task="t", payload=b"1")], events)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait(60)
    walled.cancel((0, 1))
    thread.join(60)

    assert results[0].error.startswith("CANCELLED")


def test_walls_may_be_required(monkeypatch, tmp_path):
    """Where bubblewrap is not on the path, or does not work, a worker says why it does not start."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="bubblewrap is not installed"):
        find_isolation(RunnerSettings(isolation="required"))

    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no namespaces here >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(BadInput, match="no namespaces here"):
        find_isolation(RunnerSettings(isolation="required"))

    assert (
        "network and files are open (bubblewrap fails: no namespaces"
        in find_isolation(RunnerSettings()).describe()
    )
