"""The kinds of small records, and how their names are written. Their forms stand with whoever keeps them."""

from collections.abc import Collection, Mapping

import msgspec

# Names of small records by their kind; None: all of the kind.
Names = Mapping[str, Collection[str] | None]

# A limit of one domain, by (tenant, domain); all patterns of a tenant, by tenant.
LIMIT, PATTERNS = "limit", "patterns"
# What claims pass by, by (tenant or null, task or null, domain or null).
PAUSE = "pause"
SCHEDULE, SYSID, SETTING, WORKER = "schedule", "sysid", "setting", "worker"
# The published defaults of a task, by (tenant or null, task).
TASK = "task"
# The last moment of a deleted schedule, by its number.
FLOOR = "schedule_floor"
# What a run leaves behind: a step, by (job, number), and the last lines of its log, by job.
STEPS, JOB_LOG = "steps", "job_log"
# Work that was too much for one transaction, and goes on in upkeep.
CHORE = "chore"
# How far an indexed consumer has come, and the ends of a log, both by (tenant, name).
PROGRESS, LOG = "progress", "log"
# Of several stores behind one queue: which of them this is; which job in another one holds a key that is at
# home here, by the key; a job that is on its way to another one, by (slot, job); a number of schedules that
# is given here, and that one of another store has, which has moved there.
SHARD, POINTER, LETTER, NUMBER = "shard", "pointer", "letter", "schedule_number"


def name_of(*parts: str | bytes | None) -> str:
    """A record's name made of parts, reversible whatever the parts contain."""
    return msgspec.json.encode(parts).decode()
