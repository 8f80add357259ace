"""gRPC is an extra: nobody loads it without an address that needs it, and a missing one is named."""

import subprocess
import sys

UNLOADED = """
import sys
import holdfast
import holdfast.cli.app

with holdfast.connect("memory://") as queue:
    queue.add("work")
    queue.next(["work"]).done()
found = [name for name in sys.modules if name.partition(".")[0] in ("grpc", "google")]
assert not found, found
"""
MISSING = """
import sys
import holdfast

sys.modules["grpc"] = None
try:
    holdfast.connect("grpc://localhost")
except holdfast.StoreError as error:
    assert "pip install 'holdfast-queue[grpc]'" in str(error), error
else:
    raise AssertionError
"""


def test_a_queue_in_this_process_loads_no_grpc():
    """Neither does the command line."""
    subprocess.run([sys.executable, "-c", UNLOADED], check=True)


def test_a_missing_library_is_named_with_the_way_to_install_it():
    """When the address is read, not when the first job is added."""
    subprocess.run([sys.executable, "-c", MISSING], check=True)
