"""`holdfast serve` as a process: its ready line, its end, its refusals; and the example."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.ports import free_port
from tests.programs import or_skip, program
from tests.queue_suite.tools import until
from tests.serve.clients import Client

ROOT = Path(__file__).parents[2]
SECONDS = 60


def command(*words):
    """The words of a command line."""
    return [sys.executable, "-m", "holdfast", "serve", *words]


@contextmanager
def server(folder, *words, shown="127.0.0.1", more="", before=""):
    """A server process, once it is ready, and its address."""
    process = subprocess.Popen(
        command("--bedrock", "127.0.0.1:0", *words),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(
            rf"ready: {before}job commands on {re.escape(shown)}:(\d+){re.escape(more)}\n", line
        )
        assert match, (line, process.stderr.read() if process.stderr else "")
        yield process, ("127.0.0.1", int(match[1]))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=SECONDS)


def test_a_server_says_when_it_is_ready_and_drains_when_told(tmp_path):
    """SIGTERM: who waits is answered, the exit code is 0, and the jobs are there for the next."""
    with server(tmp_path) as (process, address), Client(address) as client:
        job_id = client.create(data={"a": 1})
        client.send(b"GetJob\nname: bar\nConnection: wait\n\nPing\n\n")
        process.send_signal(signal.SIGTERM)

        assert client.receive().status == "404 No job found"
        assert process.wait(SECONDS) == 0

    with server(tmp_path) as (_, address), Client(address) as client:
        assert client.take()["jobID"] == job_id


def test_a_killed_server_has_kept_what_it_answered(tmp_path):
    """kill -9 in the midst of adding: all that were told of are there."""
    with server(tmp_path) as (process, address), Client(address) as client:
        told = [client.create(f"foo/{n}") for n in range(100)]
        client.send(b"".join(b"CreateJob\nname: bar\n\n" for _ in range(1_000)))
        process.kill()
        process.wait(SECONDS)

    with server(tmp_path) as (_, address), Client(address) as client:
        found = [row[0] for row in client.ok("Query", query="select jobID from jobs where name like 'foo/%'")]
        assert sorted(found) == sorted(told)


def test_several_servers_share_a_store(tmp_path):
    """What one hands out another may finish; who waits at one hears of what comes to the other."""
    with (
        server(tmp_path) as (_, one),
        server(tmp_path) as (_, two),
        Client(one) as a,
        Client(two) as b,
    ):
        b.send(b"GetJob\nname: foo\nConnection: wait\n\n")
        job_id = a.create()
        assert b.receive().json["jobID"] == job_id
        a.ok("FinishJob", jobID=job_id)


def test_memory_may_be_served(tmp_path):
    """As long as the server lives."""
    with server(tmp_path, "--store", "memory://") as (_, address), Client(address) as client:
        job_id = client.create()
        assert client.take()["jobID"] == job_id


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--bedrock", "0.0.0.0:0"], "loopback"),
        (["--bedrock", "[::]:0"], "loopback"),
        (["--bedrock", "8888"], "HOST:PORT"),
        (["--bedrock", "127.0.0.1:99999"], "from 0 to 65535"),
        (["--bedrock", "127.0.0.1:x"], "HOST:PORT"),
        (["--bedrock-timeout", "soon"], "bedrock-timeout"),
        (["--store", "nowhere://x"], "store"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_served_is_refused(tmp_path, monkeypatch, words, complaint):
    """Before anything is opened, naming the thing and the way out."""
    monkeypatch.chdir(tmp_path)

    said = Shell(tmp_path).refused("serve", *words, code=2)

    assert complaint in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--http", "--bedrock"])
def test_a_port_that_is_taken_is_told_in_plain_words(tmp_path, option):
    """With its number."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            command(option, where), cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS
        )

    assert done.returncode == 2
    needed = f"must be another address: port {where.partition(':')[2]} is in use\n"
    assert done.stderr.endswith(needed), done.stderr


def test_a_dashboard_names_the_address_to_open(tmp_path):
    """One that terminals make a link; and at its end it tells what it waits for."""
    holdfast(tmp_path, "add", "work")
    words = [sys.executable, "-m", "holdfast", "dashboard", "--http", "127.0.0.1:0"]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=SECONDS)

    assert re.fullmatch(r"ready: http://127\.0\.0\.1:\d+/\n", line), (line, said)
    assert "finishing open requests, at most 10 s" in said


def holdfast(folder, *words):
    """What a command prints."""
    with chdir(folder):
        return Shell(folder).ok(*words).out.strip()


def test_an_address_beyond_loopback_needs_a_token_in_the_store(tmp_path):
    """The refusal says how to make one; an expired one does not do."""
    holdfast(tmp_path, "add", "foo")
    holdfast(tmp_path, "token", "create", "old", "--expires", "1ms")
    words = command("--bedrock", "0.0.0.0:0")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)

    assert done.returncode == 2
    assert "holdfast token create NAME --store jobs.db" in done.stderr


def test_beyond_loopback_each_request_shows_a_token(tmp_path):
    """For the port's tenant, with the scope of the command; pipelined requests too, in order."""
    own = holdfast(tmp_path, "token", "create", "own", "--tenant", "a", "--scope", "add", "--scope", "data")
    worker = holdfast(tmp_path, "token", "create", "worker", "--all-tenants", "--scope", "work")
    other = holdfast(tmp_path, "token", "create", "other", "--tenant", "b")
    words = ("--bedrock", "0.0.0.0:0", "--bedrock-tenant", "a")
    with (
        server(tmp_path, *words, shown="0.0.0.0") as (_, (_, number)),
        Client(("127.0.0.1", number)) as client,
    ):
        assert client.status("Ping", token=own) == "200 OK"
        for verb in ("Ping", "CreateJob", "GetJob", "Query", "nonsense"):
            assert client.status(verb, name="foo") == "401 Unauthorized"
            assert client.status(verb, name="foo", token=own[:-1]) == "401 Unauthorized"
            assert client.status(verb, name="foo", token=other) == "403 Forbidden"
        assert client.status("GetJob", name="foo", token=own) == "403 Forbidden"
        assert client.status("CreateJob", name="foo", token=worker) == "403 Forbidden"
        assert client.status("CreateJob", name="foo", Connection="forget") == "401 Unauthorized"

        lines = [f"CreateJob\nname: foo{n}\ntoken: {own if n % 2 else other}\n\n" for n in range(10)]
        client.send("".join(lines))
        found = [client.receive().status for _ in range(10)]
        assert found == ["403 Forbidden", "200 OK"] * 5
        rows = client.ok("Query", query="SELECT name FROM jobs", token=own)
        assert sorted(name for (name,) in rows) == ["foo1", "foo3", "foo5", "foo7", "foo9"]

        holdfast(tmp_path, "token", "revoke", "own")
        until(lambda: client.status("Ping", token=own) != "200 OK")
        assert client.status("Ping", token=own) == "401 Unauthorized"


@pytest.mark.parametrize("trusted", [False, True])
def test_other_machines_upload_no_code_to_a_server_that_cannot_confine_it(tmp_path, trusted):
    """Unless it was told to trust them. It says at its start what handlers are for."""
    token = holdfast(tmp_path, "token", "create", "own", "--tenant", "a", "--scope", "handlers")
    (tmp_path / "runners.toml").write_text('isolation = "none"\n')
    words = ("--http", "0.0.0.0:0", "--bedrock", "127.0.0.1:0", "--runners", "runners.toml")
    more = ("--trust-uploads",) if trusted else ()
    with server(tmp_path, *words, *more, before=r"http on 0\.0\.0\.0:(\d+), ") as (process, (_, port)):
        body = json.dumps({"lang": "python", "body": "return 1"}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/handlers/t", data=body, method="PUT")
        request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Content-Type", "application/json")
        try:
            status, said = urllib.request.urlopen(request, timeout=SECONDS).status, ""
        except urllib.error.HTTPError as error:
            status, said = error.code, error.read().decode()
        process.terminate()
        log = process.communicate(timeout=SECONDS)[1]

    assert (status // 100 == 2) is trusted
    assert trusted or (status == 403 and "start it with --trust-uploads" in said)
    assert "handlers: for code you trust only: limits and" in log


def test_what_is_served_may_stand_in_a_file_or_in_the_environment(tmp_path, monkeypatch):
    """What was typed comes first, then the environment, then the file."""
    (tmp_path / "serve.toml").write_text(
        'store = "other.db"\nbedrock = "127.0.0.1:1"\nbedrock-tenant = "file"\nworker = ["nowhere:queue"]\n'
    )
    monkeypatch.setenv("HOLDFAST_WORKER", "app:queue")
    monkeypatch.setenv("HOLDFAST_BEDROCK_TENANT", "env")
    (tmp_path / "app.py").write_text(
        "import holdfast\nqueue = holdfast.connect('unused.db', tenant='env')\n"
        "@queue.task\ndef double(n: int) -> int: return 2 * n\n"
    )
    with (
        server(tmp_path, "--config", "serve.toml", shown="127.0.0.1", more=", worker of app:queue") as (
            process,
            address,
        ),
        Client(address) as client,
    ):
        assert client.ok("Status")["tenant"] == "env"
        job_id = client.create("double", data={"n": 4})
        store = ("--store", "other.db", "--tenant", "env")
        for _ in range(300):
            if json.loads(holdfast(tmp_path, "show", str(job_id), "--json", *store))["state"] == "FINISHED":
                break
            time.sleep(0.1)
        shown = json.loads(holdfast(tmp_path, "show", str(job_id), "--json", *store))
        assert (shown["state"], shown["result"]) == ("FINISHED", 8)
        # The address of a store may have a password, and all users see the arguments of a process.
        (worker,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        arguments = Path(f"/proc/{worker}/cmdline").read_text()
        assert "app:queue" in arguments
        assert "other.db" not in arguments
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert not (tmp_path / "jobs.db").exists()
    assert not (tmp_path / "unused.db").exists()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bedrock = 5", "a TOML string"),
        ("worker = 'app:queue'", "array of strings"),
        ("bedrok = 'x'", "one of the settings store, http"),
        ("a = = b", "TOML"),
        ("tls-cert = 'nothing.pem'", "tls-cert"),
        ("tls-key = 'nothing.pem'", "together with --tls-cert"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path, monkeypatch, text, complaint):
    """Naming the file, the setting and what it must be."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "serve.toml").write_text(text)

    said = Shell(tmp_path).refused("serve", "--config", "serve.toml", code=2)

    assert complaint in said
    assert [path.name for path in tmp_path.iterdir()] == ["serve.toml"]


def test_the_example_runs(tmp_path):
    """With whichever nc there is."""
    or_skip(lambda: program("nc", "netcat-openbsd"), what="WITH NC")
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PORT": str(free_port()),
    }
    done = subprocess.run(
        ["sh", str(ROOT / "examples" / "job_commands.sh")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("200 OK") == 6
    assert "404 No job found" in done.stdout
