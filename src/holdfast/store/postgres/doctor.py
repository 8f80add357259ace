"""What `holdfast doctor` shows of a PostgreSQL store, and how unreadable records are repaired.

The report has problems and their fixes, version, settings and sizes. Rows of jobs that cannot be decoded
become jobs marked as damaged.
"""

from typing import Any

from ...core.damage import salvage
from ...core.job import Place, State
from ...core.units import counted
from ..common.clock import MEGABYTE, clock_complaints
from ..common.records import encode, is_job, rest_of
from .connection import PostgresConnection
from .open import layout_of
from .statements import LAYOUT
from .url import PostgresAddress

# Dead rows are reported above this number, and above this multiple of the live ones.
DEAD_ROWS, DEAD_FACTOR = 100_000, 5
# A transaction that is open for longer is reported: it prevents vacuum from removing dead rows.
LONG_MINUTES = 10
# More unfolded count differences mean that no process sums them up.
MANY_CHANGES = 100_000

# Settings, the values that they need, and what happens otherwise.
_SETTINGS = {
    "fsync": ("on", "without it a crash of the server's machine loses jobs, and may damage all"),
    "full_page_writes": ("on", "without it a crash of the server's machine may damage tables"),
    "synchronous_commit": ("on", "what it accepted last is lost in a crash"),
    "autovacuum": ("on", "tables grow without end"),
    "default_transaction_read_only": ("off", "nothing can be written"),
}
_OPPOSITES = {"on": "off", "off": "on"}

_ORPHANS = """SELECT count(*) FROM "{schema}".{table} AS body
WHERE NOT EXISTS (SELECT FROM "{schema}".jobs WHERE jobs.id = body.id)
AND NOT EXISTS (SELECT FROM "{schema}".archive WHERE archive.id = body.id)"""

_BROKEN_INDEXES = """SELECT index.relname FROM pg_index JOIN pg_class AS index ON index.oid = indexrelid
WHERE index.relnamespace = to_regnamespace(%s) AND NOT (indisvalid AND indisready)"""
_INDEXES = """SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'i'"""
_DEAD = """SELECT relname, n_dead_tup FROM pg_stat_user_tables
WHERE schemaname = %s AND n_dead_tup > %s AND n_dead_tup > %s * n_live_tup"""
_LONG = """SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND state <> 'idle' AND xact_start < now() - make_interval(mins => %s)
AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""
_SIZE = """SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r'"""

INDEXES = (
    *("jobs_pkey", "jobs_ready", "jobs_ready_pair", "jobs_scheduled", "jobs_running", "jobs_standing"),
    *("jobs_domain", "jobs_children", "jobs_expiring", "jobs_schedule", "data_apart_pkey", "results_pkey"),
    *("archive_pkey", "archive_ended", "rows_pkey", "rows_due"),
    *("counts_pkey", "counts_tallies", "counts_ready", "count_changes_ready", "commit_marks_pkey"),
)


def complaints(
    connection: PostgresConnection, address: PostgresAddress, now_ms: int, *, own: bool
) -> list[str]:
    """The problems of a store, each with its fix. `own`: the time is the server's."""
    where, quoted = address.shown, f'"{address.schema}"'
    told = []
    for name, (needed, why) in _SETTINGS.items():
        # `synchronous_commit` has other values too.
        if (value := connection.value("SELECT current_setting(%s)", (name,))) == _OPPOSITES[needed]:
            told.append(f"{where} has {name} = {value}: {why}; set it to {needed}")
    there = {name for (name,) in connection.rows(_INDEXES, (quoted,))}
    for name in (name for name in INDEXES if name not in there):
        told.append(f"{where} lacks the index {name}; see holdfast migrate --sql for how it is made")
    for (name,) in connection.rows(_BROKEN_INDEXES, (quoted,)):
        told.append(f"the index {name} of {where} is not valid: REINDEX INDEX CONCURRENTLY {quoted}.{name}")
    for what, table in (("data", "data_apart"), ("results", "results")):
        if orphans := connection.value(_ORPHANS.format(schema=address.schema, table=table)):
            told.append(
                f"{where} keeps the {what} of {counted(orphans, 'deleted job')}, which only takes up space"
            )
    if own:
        told += clock_complaints(now_ms)
    return told + _bloat(connection, address)


def _bloat(connection: PostgresConnection, address: PostgresAddress) -> list[str]:
    told = []
    for name, dead in connection.rows(_DEAD, (address.schema, DEAD_ROWS, DEAD_FACTOR)):
        told.append(
            f"the table {name} has {dead:,} dead rows: VACUUM it, and see what keeps autovacuum from it"
        )
    if count := connection.value(_LONG, (LONG_MINUTES,)):
        told.append(
            f"{count} transactions have been open for more than {LONG_MINUTES} minutes: they keep dead rows "
            "from being cleared away, and claims slow; see pg_stat_activity"
        )
    if (rows := connection.value(f'SELECT count(*) FROM "{address.schema}".count_changes')) > MANY_CHANGES:
        told.append(f"{rows:,} differences of counts wait to be folded: is any process writing?")
    return told


def facts(connection: PostgresConnection, address: PostgresAddress) -> dict[str, str]:
    """The version, settings and sizes of a store."""

    def setting(name: str) -> str:
        return str(connection.value("SELECT current_setting(%s)", (name,)))

    quoted = f'"{address.schema}"'
    return {
        "store": "postgresql",
        "address": address.shown,
        "server": setting("server_version"),
        "schema": f"{layout_of(connection, address.schema).version} of {LAYOUT}",
        "size": f"{connection.value(_SIZE, (quoted,)) / MEGABYTE:,.1f} MB",
        "fsync": setting("fsync"),
        "synchronous commit": setting("synchronous_commit"),
        "notify": "on" if address.notify else "off",
    }


# How many rows are read at once.
PAGE_ROWS = 1_000

_COLUMNS = ("place", "rank", "version", "owner", "lease_until", "started_at", "claim")
_MORE = ("mock", "expires_at", "parent_id", "domain", "tenant", "task", "schedule")
_LIVE = """SELECT id, {columns}, rest FROM "{schema}".jobs WHERE id > %s ORDER BY id LIMIT %s"""
_ARCHIVED = """SELECT id, finished_at, tenant, task, state, record FROM "{schema}".archive
WHERE id > %s ORDER BY id LIMIT %s"""
_PUT_LIVE = """UPDATE "{schema}".jobs SET place = %s, rest = %s WHERE id = %s AND rest = %s"""
_PUT_ARCHIVED = """UPDATE "{schema}".archive SET state = %s, record = %s WHERE id = %s AND record = %s"""


def repair_records(connection: PostgresConnection, schema: str) -> int:
    """Rewrite unreadable rows of jobs; return their number."""
    live = _LIVE.format(schema=schema, columns=", ".join(_COLUMNS + _MORE))
    return _repair(connection, live, _PUT_LIVE.format(schema=schema), _live) + _repair(
        connection, _ARCHIVED.format(schema=schema), _PUT_ARCHIVED.format(schema=schema), _archived
    )


def _repair(connection: PostgresConnection, select: str, update: str, repair_row: Any) -> int:
    count = after = 0
    while rows := connection.rows(select, (after, PAGE_ROWS)):
        for job_id, *columns, text in rows:
            if (put := repair_row(job_id, columns, text)) is not None:
                count += connection.change(update, (*put, job_id, text))
        after = rows[-1][0]
    return count


def _live(job_id: int, columns: list[Any], text: str) -> tuple[int, str] | None:
    known = dict(zip(_COLUMNS + _MORE, columns, strict=True))
    is_placed = known["place"] in list(Place)
    if is_placed and is_job(text, job_id):
        return None
    # With an invalid place no process can have claimed the job.
    known |= {"place": Place(known["place"])} if is_placed else {"place": Place.DONE, "ended": State.FAILED}
    job = salvage(job_id, text.encode(), **known)
    return int(job.place), rest_of(job)


def _archived(job_id: int, columns: list[Any], text: str) -> tuple[str, str] | None:
    finished_at, tenant, task, state = columns
    if is_job(text, job_id):
        return None
    ended = State(state) if state in list(State) else State.FAILED
    known = {"finished_at": finished_at, "tenant": tenant, "task": task, "ended": ended}
    return ended.value, encode(salvage(job_id, text.encode(), place=Place.DONE, **known)).decode()
