"""Small records that a batch of PostgreSQL reads, under their locks, before they are asked for."""

from collections.abc import Collection

from ...core.kinds import Names
from .connection import Link
from .statements import texts


class Ahead:
    """Records by kind and name. They hold until this batch itself writes one of their kind."""

    def __init__(self) -> None:
        # None: there is no record of that name.
        self._named: dict[str, dict[str, bytes | None]] = {}
        self._whole: dict[str, dict[str, bytes]] = {}

    def has_whole(self, kind: str) -> bool:
        """Whether all records of a kind are known."""
        return kind in self._whole

    def put_whole(self, kind: str, records: dict[str, bytes]) -> None:
        """These are all records of a kind."""
        self._whole[kind] = records

    def find(self, kind: str, names: Collection[str] | None) -> dict[str, bytes] | None:
        """Records of these names, or all of a kind; None: they were not read."""
        if names is None:
            return dict(self._whole[kind]) if kind in self._whole else None
        known = self._named.get(kind, {})
        if not known.keys() >= set(names):
            return None
        return {name: value for name in names if (value := known[name]) is not None}

    def forget(self, kind: str) -> None:
        """One of the kind is about to be written."""
        self._named.pop(kind, None)
        self._whole.pop(kind, None)

    def read(self, link: Link, sql: str, asked: Names) -> None:
        """Read all of these by one statement."""
        pairs = [(kind, name) for kind, names in asked.items() for name in names or ()]
        whole: dict[str, dict[str, bytes]] = {kind: {} for kind, names in asked.items() if names is None}
        kinds, names = zip(*pairs, strict=True) if pairs else ((), ())
        for kind, name in pairs:
            self._named.setdefault(kind, {})[name] = None
        for kind, name, value in link.rows(sql, (texts(kinds), texts(names), texts(whole))):
            (whole if kind in whole else self._named)[kind][name] = value
        self._whole |= whole
