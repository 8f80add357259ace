"""Small named records: their kinds, how their names are written, and the forms of those kept here."""

from functools import lru_cache

import msgspec

from ..core.job import Record
from ..core.limits import Limit

# A limit of one domain, by (tenant, domain); all patterns of a tenant, by tenant.
LIMIT, PATTERNS = "limit", "patterns"
# What claims pass by, by (tenant or null, task or null, domain or null).
PAUSE = "pause"
SCHEDULE, SYSID, SETTING, WORKER = "schedule", "sysid", "setting", "worker"
# The last moment of a deleted schedule, by its number.
FLOOR = "schedule_floor"
# What a run leaves behind: a step, by (job, number), and the last lines of its log, by job.
STEPS, JOB_LOG = "steps", "job_log"
# Work that was too much for one transaction, and goes on in upkeep.
CHORE = "chore"
# How far an indexed consumer has come, and the ends of a log, both by (tenant, name).
PROGRESS, LOG = "progress", "log"


# (tenant, task, domain), None standing for any.
Pause = tuple[str | None, str | None, bytes | None]


class Patterns(Record, frozen=True, kw_only=True):
    """The limits of a tenant that match many domains."""

    limits: tuple[tuple[bytes, Limit], ...] = ()


def name_of(*parts: str | bytes | None) -> str:
    """A record's name made of parts, reversible whatever the parts contain."""
    return msgspec.json.encode(parts).decode()


@lru_cache(maxsize=1024)
def read_patterns(raw: bytes) -> Patterns:
    """The patterns of a record; asked for at every claim of a domain, so remembered."""
    return msgspec.json.decode(raw, type=Patterns)


@lru_cache(maxsize=65536)
def read_limit(raw: bytes) -> Limit:
    """The limit of a record."""
    return msgspec.json.decode(raw, type=Limit)


@lru_cache(maxsize=1024)
def read_pause(name: str) -> Pause:
    """What a pause's name says."""
    return msgspec.json.decode(name, type=tuple[str | None, str | None, bytes | None])


def read_limit_name(name: str) -> tuple[str, bytes]:
    """The (tenant, domain) that a limit's name says."""
    return msgspec.json.decode(name, type=tuple[str, bytes])


@lru_cache(maxsize=1024)
def read_pair(name: str) -> tuple[str, str]:
    """The (tenant, name) that a record's name says."""
    return msgspec.json.decode(name, type=tuple[str, str])
