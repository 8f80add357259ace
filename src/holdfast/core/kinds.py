"""The tables of rows that a store keeps beside jobs, and how their keys are written.

The form of a value stands with whoever keeps it. A key is text, and never empty; its parts are written by
`name_of`.
"""

from collections.abc import Collection, Mapping

import msgspec

# Keys of rows by their table; None: all of the table.
Names = Mapping[str, Collection[str] | None]

# Who holds a unique key, by (tenant, task, key), due when the key lapses; what is kept of a limited domain,
# by (tenant, domain), due when upkeep should look at it.
UNIQUE, DOMAIN = "unique", "domain"
# A limit of one domain, by (tenant, domain); all patterns of a tenant, by (tenant,).
LIMIT, PATTERNS = "limit", "patterns"
# What claims pass by, by (tenant or null, task or null, domain or null).
PAUSE = "pause"
SCHEDULE, SYSID, SETTING, WORKER = "schedule", "sysid", "setting", "worker"
# A token by which clients of a server are known, by its name.
TOKEN = "token"
# What a request with an idempotency key was given, by (tenant, key), due when it is forgotten.
REQUEST = "request"
# The published defaults of a task, by (tenant or null, task).
TASK = "task"
# A handler without its scripts, by (tenant, task); each version with them, by (tenant, task, version); that
# there is one, by (tenant, task), in every shard: docs/decisions/0019.
HANDLER, HANDLER_VERSION, HANDLED = "handler", "handler_version", "handled"
# The last moment of a deleted schedule, by its number.
FLOOR = "schedule_floor"
# What a run leaves behind: a step, by (job, number), and the last lines of its log, by job.
STEPS, JOB_LOG = "steps", "job_log"
# Work that was too much for one transaction, and goes on in upkeep.
CHORE = "chore"
# How far an indexed consumer has come, and the ends of a log, both by (tenant, name).
PROGRESS, LOG = "progress", "log"
# The items of a log by index, and where its keys are, due by index: a table for each log, see `log_table`.
LOG_ITEMS, LOG_KEYS = "items", "keys"
# Stores that lock do so in this order: first domains, then unique keys, then all others by name.
LOCK_ORDER = (DOMAIN, UNIQUE)
# Of several stores behind one queue: which of them this is; which job in another one holds a key that is at
# home here, by the key; an outbox message, that is a job for another one, by (slot, job); a number of
# schedules that is given here, and that one of another store has, which has moved there.
SHARD, POINTER, OUTBOX, NUMBER = "shard", "pointer", "outbox", "schedule_number"


def name_of(*parts: str | bytes | None) -> str:
    """A record's name made of parts, reversible whatever the parts contain."""
    return msgspec.json.encode(parts).decode()


def log_table(kind: str, log: str) -> str:
    """The table of a log's items or keys; `log` is the key of the log's row."""
    return f"{kind} {log}"
