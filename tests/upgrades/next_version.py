"""Makes the next version of Holdfast, for tests alone: a copy of the package with one more layout.

It has a field of jobs and one of limits that this version does not know, and a migration on each store. The
migration keeps, in one step with the new layout, what was stored at that moment: the test compares it with
what is stored when all older processes have ended.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

SRC = Path(__file__).parents[2] / "src"
ROOT = SRC.parent

_SQLITE = """-- oldest writer: {oldest}
CREATE TABLE holdfast_then (id INTEGER, record TEXT);
INSERT INTO holdfast_then SELECT id, version || rest FROM holdfast_jobs;
INSERT INTO holdfast_then SELECT id, record FROM holdfast_archive;
"""
_POSTGRES = """-- oldest writer: {oldest}
CREATE TABLE {{schema}}.then AS
SELECT id, version || rest AS record FROM {{schema}}.jobs UNION ALL SELECT id, record FROM {{schema}}.archive;
"""
_REDIS = """MIGRATIONS: tuple[tuple[str, int], ...] = (
    ("for _, part in ipairs({{'jobs', 'archive'}}) do "
     "redis.call('COPY', base .. part, base .. 'then_' .. part) end", {oldest}),
)
"""


def make_next_version(folder: Path, *, oldest: int) -> Path:
    """Return the folder that has the next version; `oldest` is the oldest version that may still write."""
    package = folder / "holdfast"
    shutil.copytree(SRC / "holdfast", package)
    stores = package / "store"
    (stores / "sqlite" / "migrations" / "0002.sql").write_text(_SQLITE.format(oldest=oldest))
    (stores / "postgres" / "migrations" / "0002.sql").write_text(_POSTGRES.format(oldest=oldest))
    no_migrations = "MIGRATIONS: tuple[tuple[str, int], ...] = ()\n"
    _replace(stores / "redis" / "open.py", no_migrations, _REDIS.format(oldest=oldest))
    trace = '    traceparent: str = ""\n'
    _replace(package / "core" / "job.py", trace, f'{trace}    color: str = ""\n')
    created = "then_id=new.then.id if new.then else 0,"
    _replace(package / "core" / "creating.py", created, f'{created} color="red",')
    burst = "    burst: int = 1\n    concurrency"
    _replace(package / "core" / "limits.py", burst, f'    note: str = ""\n{burst}')
    _replace(package / "queue" / "asks.py", "Limit(rate=per_s", 'Limit(note="new", rate=per_s')
    return folder


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, new))


def start(program: str, *words: str, package: Path = SRC, **how: Any) -> "subprocess.Popen[str]":
    """Start a program of this folder with this version of Holdfast, or with the one in a folder."""
    env = os.environ | {"PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}
    if package != SRC:
        env["PYTHONPYCACHEPREFIX"] = str(package / "bytecode")
    command = [sys.executable, "-m", f"tests.upgrades.{program}", *words]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, cwd=ROOT, **how)
