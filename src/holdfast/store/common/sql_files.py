"""Reads the named statements of SQL files."""

import re
from collections.abc import Sequence
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


def load_statements(folder: Path, parts: Sequence[str], hot: str) -> dict[str, str]:
    """The statements after each `-- name: …`, without comments; `{hot}` stands for the columns of a job."""
    named: dict[str, str] = {}
    for part in parts:
        pieces = _NAME.split((folder / f"{part}.sql").read_text("utf-8"))[1:]
        for name, body in zip(pieces[::2], pieces[1::2], strict=True):
            named[name] = COMMENT.sub("", body).strip().replace("{hot}", hot)
    return named
