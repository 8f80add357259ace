"""For the reference pages: the comment of a field of a record is its text."""

from itertools import takewhile
from typing import Any

import griffe

RECORDS = ("Record", "Struct", "msgspec.Struct", "NamedTuple")


class FieldComments(griffe.Extension):
    """Reads the comment beside a field, or those above it."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Make the comment its docstring, if it is a field of a record and has none."""
        record = attr.parent
        if attr.docstring or attr.lineno is None or not isinstance(record, griffe.Class):
            return
        if not {str(base).partition("[")[0] for base in record.bases}.isdisjoint(RECORDS):
            text = _comment(attr.lines_collection[attr.filepath], attr.lineno)
            attr.docstring = griffe.Docstring(text, parent=attr) if text else None


def _comment(lines: list[str], number: int) -> str:
    beside = lines[number - 1].partition("  # ")[2]
    before = (line.strip() for line in reversed(lines[: number - 1]))
    above = list(takewhile(lambda line: line.startswith("# "), before))
    return beside or "\n".join(line[2:] for line in reversed(above))
