"""The report of a PostgreSQL store: problems and their fixes, version, settings and sizes."""

from ...core.units import counted
from ..common.report import MEGABYTE, clock_complaints
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
