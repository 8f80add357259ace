"""HTTPS, and clients known by certificates; the server as a process."""

import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import chdir, contextmanager

import pytest

from tests.cli.shell import Shell
from tests.http.served import Client
from tests.programs import or_skip, program

SECONDS = 60


@contextmanager
def server(folder, *words):
    """A server process, once it is ready, and its address."""
    command = [sys.executable, "-m", "holdfast", "serve", *words]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.match(r"ready: https? on [^ ]*:(\d+)", line)
        assert match, (line, process.stderr.read() if process.stderr else "")
        yield process, int(match[1])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=SECONDS)


@pytest.fixture
def certificates(tmp_path):
    """An authority, and certificates of a server and of a client."""
    or_skip(lambda: program("openssl", "openssl"), what="WITH OPENSSL")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True, timeout=SECONDS)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        "req",
        "-x509",
        *new_key,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-days",
        "2",
        "-subj",
        "/CN=test authority",
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",
    )
    for name in ("server", "client"):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        # From Python 3.13 on, a certificate has to name the key that signed it.
        (tmp_path / "names").write_text("subjectAltName=DNS:localhost\nauthorityKeyIdentifier=keyid\n")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return tmp_path


def context_of(folder, *, client=False):
    """What a client trusts, and shows."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if client:
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
    return context


def add(port, context, **headers):
    """Add a job; the status."""
    request = urllib.request.Request(f"https://localhost:{port}/v1/jobs", b'{"task":"t"}', headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS, context=context) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_https_beyond_loopback_with_a_token(certificates):
    """Encrypted, by a token; plain HTTP gets nothing."""
    with chdir(certificates):
        made = Shell(certificates).ok("token", "create", "shop")
    words = ("--http", "0.0.0.0:0", "--tls-cert", "server.pem", "--tls-key", "server.key")
    with server(certificates, *words) as (process, port):
        context = context_of(certificates)
        assert add(port, context) == 401
        assert add(port, context, Authorization=f"Bearer {made.out.strip()}") == 201
        with pytest.raises(OSError):  # noqa: PT011 - whatever a client without TLS meets
            urllib.request.urlopen(f"http://localhost:{port}/healthz", timeout=SECONDS)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def test_only_clients_of_the_authority_are_let_in(certificates):
    """Others do not get as far as a request."""
    words = ("--http", "127.0.0.1:0", "--tls-cert", "server.pem", "--tls-key", "server.key")
    with server(certificates, *words, "--tls-client-ca", "ca.pem") as (_, port):
        assert add(port, context_of(certificates, client=True)) == 201
        with pytest.raises((OSError, ssl.SSLError)):
            add(port, context_of(certificates))


def test_an_http_server_drains_when_told(tmp_path):
    """A claim that waits is answered, and the jobs are there for the next server."""
    with server(tmp_path, "--http", "127.0.0.1:0") as (process, port):
        with Client(("127.0.0.1", port)) as client, socket.create_connection(("127.0.0.1", port)) as waiting:
            job_id = client.post("/v1/jobs", {"task": "t"}).json["id"]
            body = b'{"tasks":["none"],"wait":50}'
            waiting.sendall(
                b"POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Length: 28\r\n\r\n" + body
            )
            # Answered after the claim was begun.
            assert client.get("/healthz").status == 200
            process.send_signal(signal.SIGTERM)
            waiting.settimeout(SECONDS)
            found = b""
            while part := waiting.recv(65536):
                found += part
        assert process.wait(SECONDS) == 0
        assert found.endswith(b'{"jobs":[]}')

    with server(tmp_path, "--http", "127.0.0.1:0") as (_, port), Client(("127.0.0.1", port)) as client:
        assert client.get(f"/v1/jobs/{job_id}").json["state"] == "QUEUED"
