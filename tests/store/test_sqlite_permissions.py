"""A SQLite store whose file or folder this user may not write or enter."""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, add
from tests.store.helpers import execute, run_python

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or sys.platform != "linux", reason="needs to become another user"
)


WRITABLE = "the file and its folder must be writable"
NOBODY = """
import os, sqlite3, sys
from holdfast.core.errors import StoreError
from holdfast.store.contract import Changes
from holdfast.store.sqlite.store import SqliteStore
os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    changes = Changes(rows={("k", "a"): b"1"})
    SqliteStore(sys.argv[1]).run(lambda txn: (changes, None))
except StoreError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("mode", ["", "wal", "delete"])
def test_what_may_not_be_written_is_told(mode):
    """A read-only folder, without and with a store in it, in either journal mode."""
    with TemporaryDirectory() as folder:  # not pytest's, into which others may not even look
        Path(folder).chmod(0o755)
        if mode:
            store = SqliteStore(f"{folder}/jobs.db")
            add(store, a_job(1))
            store.close()
            execute(f"{folder}/jobs.db", f"PRAGMA journal_mode = {mode}")

        told = run_python(NOBODY, f"{folder}/jobs.db")

        assert told.startswith("StoreError")
        assert folder in told
        assert "must be writable" in told


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_file_that_may_not_be_written_is_told(mode):
    """In a folder that may be."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder) / "jobs.db"
        store = SqliteStore(path)
        add(store, a_job(1))
        store.close()
        execute(path, f"PRAGMA journal_mode = {mode}")
        path.chmod(0o444)
        path.with_name("jobs.db-lock").chmod(0o666)
        before = sorted(Path(folder).iterdir())

        told = run_python(NOBODY, path)

        assert told.startswith(f"StoreError {path} cannot be written")
        assert WRITABLE in told
        # Files of this user would lock out the owner.
        assert sorted(Path(folder).iterdir()) == before


# With what the report imports: that user may not be able to read the standard library.
CLOSED_FOLDER = """
import os, socket, sqlite3, sys
from pathlib import Path
from holdfast.core.errors import StoreError
from holdfast.store.contract import Changes
from holdfast.store.sqlite.store import SqliteStore
os.setgroups([]), os.setgid(65534), os.setuid(65534)
path, changes = Path(sys.argv[1]), Changes(rows={("k", "a"): b"1"})
path.parent.mkdir()
store = SqliteStore(path)
store.run(lambda txn: (changes, None))
path.parent.chmod(0o000)
for _ in range(2):
    try:
        store.run(lambda txn: (changes, None))
    except StoreError as error:
        print(error)
path.parent.chmod(0o755)
store.run(lambda txn: (changes, None))
path.chmod(0o444)
print(store.report().complaints)
"""


def test_a_folder_that_is_closed_while_in_use_is_told_and_overcome():
    """The file is used again when it can be reached. The doctor tells what cannot be written."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder) / "store" / "jobs.db"

        first, second, doctor = run_python(CLOSED_FOLDER, path).splitlines()

        assert first == second == f"{path.parent} cannot be written by this user; {WRITABLE}"
        assert doctor == str([f"{path} cannot be written by this user; {WRITABLE}"])
