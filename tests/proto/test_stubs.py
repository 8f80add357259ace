"""Code that an application generates from the proto file lives beside our own client."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USE = "import holdfast.remote.link, holdfast.serve.grpc.service"


@pytest.mark.parametrize("order", ["stubs first", "client first"])
def test_generated_stubs_and_the_client_share_a_process(tmp_path, order):
    """Generated from another folder, so the file has another name: protobuf refused the second one."""
    source = tmp_path / "queue.proto"
    source.write_bytes((ROOT / "proto/holdfast/v1/queue.proto").read_bytes())
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{tmp_path}",
        f"--python_out={tmp_path}",
        str(source),
    ]
    subprocess.run(command, check=True, timeout=60)
    lines = [f"import sys; sys.path.insert(0, {str(tmp_path)!r})", "import queue_pb2", USE]
    if order == "client first":
        lines[1:] = reversed(lines[1:])

    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, "print(queue_pb2.Job(id=5).id)"])],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.stdout, done.stderr) == ("5\n", "")
