"""The examples in other languages: a producer adds jobs, a worker of the same language runs them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.queue.connect import connect
from tests.house.source import ROOT
from tests.programs import Missing, install, or_skip, program
from tests.remote.processes import ServerProcess

pytestmark = pytest.mark.long

EXAMPLES = ROOT / "examples"
CACHE = ROOT / ".cache" / "examples"
PROTO = {"HOLDFAST_PROTO": str(ROOT / "proto")}
JOBS = 5
PATIENCE_S = 240

# Debian's gRPC for Go is older than its protobuf: this is what newer ones do by themselves.
CODEC = """package holdfastv1

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/protobuf/proto"
)

type codec struct{}

func (codec) Marshal(v interface{}) ([]byte, error)      { return proto.Marshal(v.(proto.Message)) }
func (codec) Unmarshal(data []byte, v interface{}) error { return proto.Unmarshal(data, v.(proto.Message)) }
func (codec) Name() string                               { return "proto" }

func init() { encoding.RegisterCodec(codec{}) }
"""
GO_PACKAGES = (
    "golang-google-grpc-dev",
    "golang-google-protobuf-dev",
    "protoc-gen-go-1-5",
    "protoc-gen-go-grpc",
)


def run(folder: Path, producer: Sequence[str], worker: Sequence[str], environment: dict[str, str]) -> None:
    """Let a producer and a worker meet at a server."""
    with ServerProcess(str(folder / "jobs.db"), folder) as server:
        address = server.url.removeprefix("grpc://")
        env = os.environ | environment
        with (
            (folder / "worker.log").open("wb") as log,
            subprocess.Popen([*worker, address], env=env, stderr=log) as running,
        ):
            try:
                done = subprocess.run(
                    [*producer, address, str(JOBS)],
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE_S,
                )
                with connect(server.url) as queue:
                    # Live jobs first: a job that ends between the two reads is then in both lists.
                    ids = {job.id for job in [*queue.jobs(), *queue.jobs(archived=True)]}
                    results = sorted(queue.result(job_id, wait=60) for job_id in ids)
            finally:
                running.kill()
        assert 'result "resized 0"' in done.stdout, (
            done.stdout,
            done.stderr,
            (folder / "worker.log").read_text(),
        )
        assert results == [f"resized {n}" for n in range(JOBS)]


def node_example() -> Path:
    """The example for Node with its libraries."""
    program("node", "nodejs")
    npm = program("npm", "npm")
    folder = CACHE / "node"
    shutil.copytree(EXAMPLES / "node", folder, dirs_exist_ok=True)
    if not (folder / "node_modules" / "@grpc").is_dir():
        command = [npm, "install", "--silent", "--no-audit", "--no-fund"]
        if subprocess.run(command, cwd=folder, timeout=PATIENCE_S, capture_output=True).returncode:
            raise Missing("npm cannot install @grpc/grpc-js")
    return folder


def go_example(folder: Path) -> dict[str, str]:
    """The paths of the example for Go, built by Debian's libraries."""
    go = program("go", "golang-go")
    for package in GO_PACKAGES:
        if not Path("/usr/share/gocode/src/google.golang.org/grpc").is_dir() or not shutil.which(
            "protoc-gen-go-grpc"
        ):
            install(package)
    source = folder / "src" / "holdfast" / "examples" / "go"
    shutil.copytree(EXAMPLES / "go", source)
    protoc = folder / "protoc"
    protoc.write_text(f'#!/bin/sh\nexec {sys.executable} -m grpc_tools.protoc "$@"\n')
    protoc.chmod(0o755)
    env = os.environ | PROTO | {"PATH": f"{folder}:{os.environ['PATH']}", "GO111MODULE": "off", "GOFLAGS": ""}
    env |= {"GOPATH": f"{folder}:/usr/share/gocode", "GOCACHE": str(CACHE / "go")}
    if subprocess.run(["./generate.sh"], cwd=source, env=env, capture_output=True).returncode:
        raise Missing("there is no protoc-gen-go and protoc-gen-go-grpc")
    (source / "holdfastv1" / "codec.go").write_text(CODEC)
    for name in ("producer", "worker"):
        built = subprocess.run(
            [go, "build", "-o", str(folder / name), f"./{name}"],
            cwd=source,
            env=env,
            capture_output=True,
            text=True,
        )
        assert built.returncode == 0, built.stderr
    return {name: str(folder / name) for name in ("producer", "worker")}


@pytest.mark.timeout(600)
def test_the_example_for_node_works(tmp_path):
    """By the proto file, loaded when it starts."""
    folder = or_skip(node_example, what="the example for Node")

    run(tmp_path, ["node", str(folder / "producer.js")], ["node", str(folder / "worker.js")], PROTO)


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_the_example_for_go_works(tmp_path):
    """By code generated from the proto file."""
    built = or_skip(lambda: go_example(tmp_path / "go"), what="the example for Go")

    run(tmp_path, [built["producer"]], [built["worker"]], {})
