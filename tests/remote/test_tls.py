"""TLS: `grpcs://`, with the server's certificate checked, and the client's where the server asks for it."""

import subprocess
from pathlib import Path

import pytest

from holdfast.core.errors import StoreError, Unavailable
from holdfast.core.queries import CountJobs
from holdfast.queue.connect import connect
from holdfast.remote.address import parse
from holdfast.remote.connection import RemoteConnection
from tests.programs import or_skip, program
from tests.remote.processes import ServerProcess


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of localhost that is its own authority, and its key."""
    openssl = or_skip(lambda: program("openssl", "openssl"), what="TLS")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += [
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def test_a_queue_is_used_over_tls(tmp_path, certificate):
    """The certificate is checked against the authority that the address names."""
    cert, key = certificate
    with ServerProcess(
        str(tmp_path / "jobs.db"), tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)
    ) as server:
        where = f"127.0.0.1:{server.port}"
        with connect(f"grpcs://{where}?ca={cert}") as queue:
            job = queue.add("work")
            claimed = queue.next(["work"])
            assert claimed is not None
            assert claimed.id == job.id


def test_a_wrong_use_of_tls_is_an_error_at_once(tmp_path, certificate):
    """A plain client, another authority, TLS where there is none: no other try could help."""
    cert, key = certificate
    tls = ("--tls-cert", str(cert), "--tls-key", str(key))
    with (
        ServerProcess(str(tmp_path / "a.db"), tmp_path, *tls) as server,
        ServerProcess(str(tmp_path / "b.db"), tmp_path) as plain,
    ):
        found = {
            f"grpc://127.0.0.1:{server.port}": "uses TLS: write grpcs://",
            f"grpcs://127.0.0.1:{server.port}": r"certificate.* is refused: self.signed.*; name .*\?ca=FILE",
            f"grpcs://127.0.0.1:{plain.port}?ca={cert}": "does not use TLS: write grpc://",
        }
        for url, text in found.items():
            connection = RemoteConnection(parse(url), patience_s=600.0)
            with pytest.raises(StoreError, match=text):
                connection.ask(CountJobs())
            connection.close()


def test_a_client_needs_a_certificate_where_the_server_says_so(tmp_path, certificate):
    """Mutual TLS."""
    cert, key = certificate
    options = ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(cert))
    with ServerProcess(str(tmp_path / "jobs.db"), tmp_path, *options) as server:
        url = f"grpcs://127.0.0.1:{server.port}?ca={cert}"
        with connect(f"{url}&cert={cert}&key={key}") as queue:
            assert queue.add("work").id
        connection = RemoteConnection(parse(url), patience_s=0.3)
        with pytest.raises(Unavailable):
            connection.ask(CountJobs())
        connection.close()
