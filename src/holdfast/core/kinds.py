"""The names of the tables of rows that a store keeps besides jobs, and the encoding of their keys.

The module that writes a table defines the format of its values. A key is non-empty text, made by `name_of`.
"""

from collections.abc import Collection, Mapping

import msgspec

# Keys of rows by their table; None: all of the table.
Names = Mapping[str, Collection[str] | None]

# UNIQUE: the job that holds a unique key, by (tenant, task, parent or domain, key), due when the key expires.
# DOMAIN: the state of a limited domain, by (tenant, domain), due at its next upkeep.
UNIQUE, DOMAIN = "unique", "domain"
# The limit of one domain, by (tenant, domain); all limits with a pattern of a tenant, by (tenant,).
LIMIT, PATTERNS = "limit", "patterns"
# A pause, by (tenant or null, task or null, domain or null).
PAUSE = "pause"
SCHEDULE, SYSID, SETTING, WORKER = "schedule", "sysid", "setting", "worker"
# An access token of a server's client, by its name.
TOKEN = "token"
# The reply to a request with an idempotency key, by (tenant, key), due when it is deleted.
REQUEST = "request"
# The published defaults of a task, by (tenant or null, task).
TASK = "task"
# HANDLER: a handler without its scripts, by (tenant, task). HANDLER_VERSION: one version with its scripts, by
# (tenant, task, version). HANDLED: that a handler exists, by (tenant, task), in every shard. See
# docs/decisions/0019.
HANDLER, HANDLER_VERSION, HANDLED = "handler", "handler_version", "handled"
# The last time of a deleted schedule, by its number.
FLOOR = "schedule_floor"
# How many jobs ended in a time, by (tier, start, shard).
HISTORY = "history"
# The result of a step, by (job, number), and the last log lines of a run, by job.
STEPS, JOB_LOG = "steps", "job_log"
# A signal that waits for its job, by (job, name, number); and the key of a signal that was sent, by (job,
# name, key), due when it is deleted.
SIGNALS, SIGNAL_KEY = "signals", "signal_key"
# The rest of a command that was too large for one transaction; upkeep continues it.
CHORE = "chore"
# The progress of an indexed consumer, and the first and last index of a log, both by (tenant, name).
PROGRESS, LOG = "progress", "log"
# The items of a log by index, and the indexes of its keys, due by index: two tables per log, see `log_table`.
LOG_ITEMS, LOG_KEYS = "items", "keys"
# Of a sharded queue. SHARD: which shard this store is. NUMBER: a schedule number allocated by this shard for
# a schedule that has moved to another shard.
SHARD, NUMBER = "shard", "schedule_number"


def name_of(*parts: str | bytes | int | None) -> str:
    """A row's key made of parts; it can be decoded whatever the parts contain."""
    return msgspec.json.encode(parts).decode()


def log_table(kind: str, log: str) -> str:
    """The table of a log's items or keys; `log` is the key of the log's row."""
    return f"{kind} {log}"
