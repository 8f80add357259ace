"""Handlers in warm contexts: what they get, what they return, and how contexts are shared."""

import json
import os
import select
import signal
from functools import partial

import pytest

from holdfast.core.job import Code
from holdfast.work.runners.isolation import find_isolation
from holdfast.work.runners.runner import HandlerRunner
from holdfast.work.runners.settings import RunnerSettings
from tests.programs import or_skip, program

from .running import handler, run, value

ECHO = {
    "python": "print('seen', data['n'])\nprint('J: next|' + str(data['n']))\nreturn {'got': data['n'] + one}",
    "node": "console.log('seen', data.n)\nconsole.log(`J: next|${data.n}`)\nreturn {got: data.n + one}",
    "shell": 'read line; n=${line#*: }; n=${n%\\}}\necho "seen $n"\necho "J: next|$n"\n'
    'echo "{\\"got\\":$((n + one))}" >&3',
}
BEFORE = {"python": "one = 1", "node": "const one = 1", "shell": "one=1"}


@pytest.mark.parametrize("lang", ECHO)
def test_a_handler_gets_its_job_and_returns_a_result(runner, lang):
    """Output lines are its log or new jobs, and the value that it returns is its result."""
    results = run(runner, handler(lang, ECHO[lang], before=BEFORE[lang]), [b'{"n": 1}', b'{"n": 2}'])

    assert [value(result) for result in results] == [{"got": 2}, {"got": 3}]
    assert [result.lines for result in results] == [("seen 1",), ("seen 2",)]
    assert [result.new_jobs for result in results] == [(("next", b"1"),), (("next", b"2"),)]
    assert all(result.exit_code == 200 and result.code is Code.OK for result in results)
    assert all(result.wall_ms > 0 and result.cpu_ms > 0 for result in results)


STATUS = {
    "python": "return exitcode(data, 'why')",
    "node": "return exitcode(data, 'why')",
    "shell": "read n; echo why >&3; echo $n >&4",
}


@pytest.mark.parametrize("lang", STATUS)
def test_a_handler_chooses_its_exit_code(walled, lang):
    """Each of the four kinds, with a result."""
    results = run(walled, handler(lang, STATUS[lang]), [b"102", b"201", b"404", b"503"])

    codes = [Code.RETRY, Code.OK, Code.FAILED, Code.ERROR]
    assert [(result.exit_code, result.code) for result in results] == list(
        zip((102, 201, 404, 503), codes, strict=True)
    )
    assert {result.body for result in results} == {'"why"'}


@pytest.mark.parametrize("lang", STATUS)
def test_an_exit_code_outside_100_to_599_is_an_error(walled, lang):
    """A program that says 7 or 600 has not said that it is done."""
    results = run(walled, handler(lang, STATUS[lang]), [b"7", b"600", b"-200", b"0", b'"x"', b"2e99"])

    assert [result.exit_code for result in results] == [500] * len(results)
    assert "exit code 7: a number from 100 to 599 is needed" in results[0].error


@pytest.mark.parametrize("lang", ["python", "node", "shell"])
def test_no_data_is_taken_for_an_exit_code(walled, lang):
    """A result is what it is: a number, or an object that has the names of an exit code."""
    body = "cat >&3" if lang == "shell" else "return data"
    data = [b"100", b"404", b"599", b'{"exitcode":404,"body":1}', b'{"exit_code":500}', b'{"code":404}']

    results = run(walled, handler(lang, body), data)

    assert [(result.exit_code, value(result)) for result in results] == [
        (200, json.loads(one)) for one in data
    ]


def test_shell_statuses(walled):
    """Exit statuses of sysexits.h, a number on descriptor 4, and text as the result."""
    bodies = (
        "exit 0",
        "exit 65",
        "exit 75",
        "exit 3",
        "echo 404 >&4",
        "echo hello >&3",
        "echo x >&3; exit 75",
        "echo 201 >&4; echo 102 >&4; exit 3",
        "echo 201 >&4; exit 3",
    )

    found = [run(walled, handler("shell", body))[0] for body in bodies]

    assert [result.exit_code for result in found] == [200, 400, 100, 500, 404, 200, 100, 102, 500]
    assert found[3].error == "exit status 3"
    assert found[5].body == '"hello"'


def test_an_exception_is_an_error_with_its_traceback(walled):
    """The traceback shows the handler's own lines and nothing of the bootstrap."""
    [python] = run(walled, handler("python", "x = 1\nreturn x / 0"))
    [node] = run(walled, handler("node", "throw new RangeError('too far')"))
    [exits] = run(walled, handler("python", "raise SystemExit(3)"))

    assert (python.exit_code, python.error) == (500, "ZeroDivisionError: division by zero")
    assert 'File "body", line 2' in python.traceback
    assert "return x / 0" in python.traceback
    assert "python_context" not in python.traceback
    assert node.error == "RangeError: too far"
    assert exits.error == "SystemExit: 3"


@pytest.mark.parametrize(
    ("lang", "body", "error"),
    [
        ("python", "return float('nan')", "ValueError: Out of range float"),
        ("python", "return '\\udcff'", "UnicodeEncodeError"),
        ("python", "raise ValueError('a\\udcff')", "ValueError: a?"),
        ("python", "class E(Exception):\n  def __str__(self): return 1 / 0\nraise E", "E: its text cannot"),
        ("node", "throw ''", "an empty value was thrown"),
        ("node", "throw new Error('\\ud83d')", "Error: "),
    ],
)
def test_an_error_that_is_hard_to_tell_is_told(walled, lang, body, error):
    """What JSON cannot say, an empty error, one without a text: the job has an error all the same."""
    [result] = run(walled, handler(lang, body))

    assert (result.exit_code, result.error[: len(error)]) == (500, error)


def test_only_json_is_decoded(walled):
    """NaN and Infinity are words, not numbers; and text in a result stays as it is."""
    found = run(
        walled, handler("python", "return [data]"), [b"NaN", b"-Infinity", "é\U0001f600".encode(), b"1e3"]
    )

    assert [value(result) for result in found] == [["NaN"], ["-Infinity"], ["é\U0001f600"], [1000.0]]


def test_a_handler_may_replace_its_standard_output(walled):
    """Its context goes on."""
    found = run(walled, handler("python", "import sys\nsys.stdout = None\nreturn data"), [b"1", b"2"])

    assert [result.body for result in found] == ["1", "2"]


def test_a_context_is_reused_and_never_shared_by_tenants(walled):
    """Tasks with the same eid share a context; other tasks and other tenants have their own."""
    count = "seen.append(data)\nreturn len(seen)"
    one = handler("python", count, before="seen = []", eid="shared", task="one")
    two = handler("python", "return len(seen)", before="seen = []", eid="shared", task="two")
    alone = handler("python", "return len(seen)", before="seen = []", task="one")
    other = handler("python", "return len(seen)", before="seen = []", eid="shared", tenant="other")

    bodies = [run(walled, what)[0].body for what in (one, one, two, alone, other)]

    assert bodies == ["1", "2", "2", "0", "0"]


def test_a_context_ends_after_its_jobs_and_after_an_error(walled):
    """The third job of a context with two jobs has a new one, and so has the batch after an error."""
    body = "seen.append(data)\nif data == 'fail': raise ValueError\nreturn len(seen)"
    short = handler("python", body, before="seen = []", context_jobs=2)
    plain = handler("python", body, before="seen = []")

    assert [result.body for result in run(walled, short, [b"1", b"2", b"3"])] == ["1", "2", "1"]
    assert [result.body for result in run(walled, plain, [b"fail", b"2"])] == [None, "2"]
    assert [result.body for result in run(walled, plain, [b"3"])] == ["1"]


@pytest.mark.parametrize("act", ["os._exit(3)", "os.write(4, b'junk')", "os.close(4)"])
@pytest.mark.parametrize("before_each", ["", "pass"])
def test_a_context_that_broke_while_it_was_idle_is_not_used(runner, act, before_each):
    """Its process has ended, or written something after its last reply: the next jobs have a new one."""
    before = f"import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: {act})"
    what = handler("python", "return data", before=before, before_each=before_each)
    run(runner, what, [b"0"])
    [idle] = runner._contexts._idle.values()
    os.kill(idle._child._interpreter, signal.SIGUSR1)
    idle.resume()
    assert select.select([idle._child._replies], [], [], 30)[0]

    found = run(runner, what, [b"1", b"2"])

    assert [(result.exit_code, result.body) for result in found] == [(200, "1"), (200, "2")]


@pytest.mark.parametrize("lang", ["python", "node", "shell"])
def test_scripts_around_a_batch(walled, lang):
    """`before` once for each context, `before_each` and `after_each` once for each batch."""
    scripts = {
        "python": ("n = 0", "n += 1", "n += 10", "return n"),
        "node": ("var n = 0", "n += 1", "n += 10", "return n"),
        "shell": ("n=0", "n=$((n + 1))", "n=$((n + 10))", 'echo "$n." >&3'),
    }
    before, before_each, after_each, body = scripts[lang]
    what = handler(lang, body, before=before, before_each=before_each, after_each=after_each)

    found = [value(result) for _ in range(2) for result in run(walled, what, [b"1", b"2"])]

    assert [int(float(n)) for n in found] == [1, 1, 12, 12]


@pytest.mark.parametrize("script", ["before", "before_each"])
@pytest.mark.parametrize("text", ["mkdir -p sub; cd sub", "set -e", "IFS=,; set -eu", "set -- a b"])
def test_scripts_of_a_shell_do_not_break_it(runner, script, text):
    """Whatever they set, its jobs run, each with its own status."""
    body = "read n; false && true; exit $n"

    found = run(runner, handler("shell", body, **{script: text}), [b"65", b"75", b"0", b"1", b"65"])

    assert [result.exit_code for result in found] == [400, 100, 200, 500, 400]


def test_what_scripts_of_bash_declare_holds_in_its_jobs():
    """As what they assign: none of it is local to the context."""
    bash = (or_skip(partial(program, "bash", "bash"), what="runners"),)
    runner = HandlerRunner(find_isolation(RunnerSettings(isolation="none", interpreters={"shell": bash})))
    scripts = {"before": "declare -A seen=([a]=1); set -- 3", "before_each": "declare two=2"}
    try:
        found = run(runner, handler("shell", "echo [${seen[a]},$two,$1] >&3", **scripts), [b"1", b"2"])
    finally:
        runner.close()

    assert [result.body for result in found] == ["[1,2,3]", "[1,2,3]"]


def test_options_and_the_folder_of_a_script_hold_in_its_jobs(walled):
    """`set -e` ends a job at the first command that fails, and `cd` is where it runs."""
    body = "pwd; read n; [ $n = 0 ]; echo went on"

    found = run(walled, handler("shell", body, before="mkdir sub; cd sub; set -e"), [b"1", b"0"])

    assert [result.lines for result in found] == [("/job/sub",), ("/job/sub", "went on")]
    assert [result.exit_code for result in found] == [500, 200]


def test_the_time_of_scripts_is_charged_to_the_jobs(walled):
    """Of `before` a hundredth of it, of `before_each` and `after_each` a half for each of two jobs."""
    spend = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass"
    what = handler(
        "python",
        "pass",
        before=spend.format(0.4),
        before_each=spend.format(0.2),
        after_each=spend.format(0.2),
    )

    results = run(walled, what, [b"1", b"2"])

    # 4 + 100 + 100 ms, and what starting Python takes; with all of `before` it would be 600 and that.
    assert all(200 <= result.cpu_ms < 600 for result in results)
    assert all(result.wall_ms >= 200 for result in results)


BURN = "import time\nuntil = time.process_time() + 0.15\nwhile time.process_time() < until: pass\n"
HELPER = f"""
import subprocess, sys
code = {BURN!r}.replace("\\n", "\\n ")
code = "import sys\\nfor line in sys.stdin:\\n " + code + "\\n print(line, flush=True)"
helper = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True, bufsize=1)
"""
ASK = "helper.stdin.write('x\\n')\nhelper.stdout.readline()\nhelper.stdout.readline()\n"


@pytest.mark.parametrize(
    "work",
    [pytest.param(BURN, id="in the handler", marks=pytest.mark.proof), pytest.param(ASK, id="in the helper")],
)
def test_the_cpu_limit_of_a_job_is_its_own_beside_a_helper(runner, work):
    """A process that `before` has started: what it or earlier jobs have used counts for no later job."""
    what = handler("python", work + "return 1", before=HELPER, cpu_ms=600)

    found = run(runner, what, [b"1"] * 8)

    assert [result.error for result in found] == [""] * 8
    assert all(0 < result.cpu_ms < 500 for result in found)


def test_a_bad_handler_is_refused_with_its_reason(walled):
    """A syntax error, a `before` that fails, a language that is not there: 500 BAD_HANDLER for every job."""
    bad = [
        handler("python", "return ("),
        handler("node", "return ("),
        handler("python", "pass", before="raise KeyError('x')"),
        handler("shell", "true", before="echo broken; false"),
        handler("python", "pass", before_each="1/0"),
        handler("cobol", "STOP RUN"),
        handler("http", "ftp://example.com/"),
    ]

    found = [run(walled, what, [b"1", b"2"]) for what in bad]

    assert {result.exit_code for results in found for result in results} == {500}
    assert all(result.error.startswith("BAD_HANDLER: ") for results in found for result in results)
    assert "SyntaxError" in found[0][0].error
    assert "broken" in found[3][0].error
    assert "cobol" in found[5][0].error


def test_payloads_of_any_bytes(walled):
    """Bytes that are no text arrive as they are, and may be returned; 1 MB passes in both directions."""
    raw, large = b"\xff\x00\n\xfe", b"x" * 1_000_000

    [python, long] = run(
        walled, handler("python", "return payload if isinstance(payload, bytes) else payload"), [raw, large]
    )
    [node] = run(walled, handler("node", "return payload"), [raw])
    [shell] = run(walled, handler("shell", "cat >&3"), [raw])

    assert python.body == node.body == raw
    assert value(long) == large.decode() + "\n"
    assert shell.body == raw + b"\n"


def test_new_jobs_name_no_tenant(walled):
    """What stands before the bar is a task of the same tenant; a line that names no task is a log line."""
    lines = ("J: other-next|1", "J: a,b|1", "J: no bar", " J: x|1")
    body = "\n".join(f"print({line!r})" for line in lines) + "\nprint('J: end|', end='')"

    [result] = run(walled, handler("python", body))

    assert result.new_jobs == (("other-next", b"1"), ("end", b""))
    assert len(result.lines) == 3


def test_an_interpreter_by_configuration(tmp_path):
    """Any program that runs a file: a new process for each job, with descriptors as for a shell."""
    settings = RunnerSettings(interpreters={"perl": ("perl", "-w")})
    runner = HandlerRunner(find_isolation(settings))
    body = """
my $line = <STDIN>;
print "J: next|$line";
open(my $out, ">&=", 3);
print $out $ENV{JOB_ID};
open(my $code, ">&=", 4);
print $code 201;
"""

    try:
        results = run(runner, handler("perl", body), [b"one", b"two"])
    finally:
        runner.close()

    assert [(result.exit_code, result.body) for result in results] == [(201, "1"), (201, "2")]
    assert [result.new_jobs for result in results] == [(("next", b"one"),), (("next", b"two"),)]


def test_numbers_that_are_too_large_are_results_or_refused_alone(walled):
    """Digits of a shell are text; a reply that a handler forges ends its job and its context."""
    digits = "head -c 5000 /dev/zero | tr '\\0' 7 >&3"
    forged = """
import os, time
os.write(4, b'{"number": 2, "exit_code": 1e999}\\n')
time.sleep(60)
"""

    [text] = run(walled, handler("shell", digits))
    [refused] = run(walled, handler("python", forged))

    assert (text.exit_code, value(text)) == (200, "7" * 5_000)
    assert refused.exit_code == 500
    assert refused.error.startswith("INVALID_RESPONSE: a reply that cannot be decoded: Number out of range")


def test_a_new_version_of_a_handler_starts_in_a_new_context(walled):
    """Also where it shares contexts with another handler, which has its own versions."""
    shared = {"before": "import random\nborn = random.random()", "eid": "shop"}

    def born(task, version):
        return run(walled, handler("python", "return born", task=task, id=version, **shared))[0].body

    first = born("t", 1)
    assert born("u", 7) == born("t", 1) == first
    second = born("t", 2)
    assert second != first
    assert born("u", 7) == born("t", 2) == second
