"""Opening a schema: checks, creation, migrations.

no schema, or an empty one     created: all migrations, in one transaction; with `create=False` StoreMissing
the current layout             used
an older layout                SchemaMismatch: `holdfast migrate`, under running processes
a newer layout                 used if it lets this version write, otherwise SchemaMismatch
tables of an application       StoreError: Holdfast needs its own schema
"""

from ...core.errors import SchemaMismatch, StoreError, StoreMissing
from ...core.layout import Layout, check_layout, layout_in, missing_version
from ...core.units import counted
from .connection import PostgresConnection
from .locks import lock_number
from .statements import LAYOUT, migrations
from .url import PostgresAddress

# The oldest supported server version.
OLDEST = 140_000

_SERVER = """SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
pg_is_in_recovery()"""
_TABLES = """SELECT {what} FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relkind IN ('r', 'p')"""
_TABLES_COUNT = _TABLES.format(what="count(*)")
# The table `version`, and two that hardly any application has.
_OURS = _TABLES.format(
    what="""count(*) FILTER (WHERE relname = 'version'),
    count(*) FILTER (WHERE relname IN ('count_changes', 'data_apart'))"""
)
_SCHEMA = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"


NO_LAYOUT = Layout(0, 0)
# How long a migration waits for running transactions: all others wait behind it.
STOP_WAIT_MS = 5_000
# The tables that batches and SQL functions of the store write.
_WRITTEN = ("jobs", "data_apart", "results", "archive", "rows", "counts", "count_changes")


def layout_of(connection: PostgresConnection, schema: str) -> Layout:
    """The layout of our tables in a schema; `NO_LAYOUT`: there are none."""
    where = f"the schema {schema}"
    # From the catalogue: `to_regclass` may use a cache from before we waited for the lock. In one statement:
    # another process may be creating the schema.
    ((has_version, others),) = connection.rows(_OURS, (schema,))
    if not has_version and others == 2:
        raise missing_version(where, "version")
    if not has_version:
        return NO_LAYOUT
    return layout_in(connection.rows(f'SELECT * FROM "{schema}".version ORDER BY 1 DESC'), where, "version")


def make_ready(connection: PostgresConnection, address: PostgresAddress, *, create: bool = True) -> Layout:
    """Check the schema, or create it if it does not exist; return its layout.

    The connection is in no transaction.
    """
    ((number, encoding, standby),) = connection.rows(_SERVER)
    if number < OLDEST:
        raise StoreError(f"{address.shown} is PostgreSQL {number // 10_000}, and must be 14 or newer")
    if encoding != "UTF8":
        raise StoreError(
            f"{address.shown} has the encoding {encoding}, and must have UTF8: create another database"
        )
    if standby:
        raise StoreError(f"{address.shown} cannot be written: it is a replica; use the primary")
    layout = layout_of(connection, address.schema)
    if not layout.version and not create:
        raise StoreMissing(address.shown)
    if not layout.version:
        migrate(connection, address)
        return layout_of(connection, address.schema)
    check_layout(address.shown, layout, LAYOUT)
    if layout.version < LAYOUT:
        raise SchemaMismatch(
            f"{address.shown} has layout {layout.version}, and this Holdfast needs {LAYOUT}: run: holdfast "
            f"migrate --store {address.shown}; older processes that may not write then end with an error"
        )
    return layout


def migrate(connection: PostgresConnection, address: PostgresAddress) -> list[int]:
    """Migrate a schema in one transaction; return the new versions."""
    # Another process may take longer to create the schema than the usual lock time-out.
    connection.execute("BEGIN; SET LOCAL lock_timeout = 0")
    try:
        # Another process may be migrating: the second one finds it done.
        connection.value("SELECT 1 FROM pg_advisory_xact_lock(%s)", (lock_number(address.schema, "migrate"),))
        layout = layout_of(connection, address.schema)
        if not layout.version:
            _begin_schema(connection, address)
        else:
            check_layout(address.shown, layout, LAYOUT)
            if layout.version < LAYOUT:
                _stop_writers(connection, address.schema)
        texts = migrations(address.schema)[layout.version :]
        for text in texts:
            connection.execute(text)
        connection.execute("COMMIT")
    except BaseException:
        if connection.is_open:
            connection.execute("ROLLBACK")
        raise
    return [*range(layout.version + 1, layout.version + 1 + len(texts))]


def _stop_writers(connection: PostgresConnection, schema: str) -> None:
    """Wait for the transactions that write, and let later ones wait until the migration has ended.

    Batches have the lock of the notice from their start, so that none waits for a table of a later one. What
    else writes may deadlock with this, and a caller's own transaction may be long: then the migration is
    tried again, and other batches go on meanwhile.
    """
    connection.execute(f"SET LOCAL lock_timeout = {STOP_WAIT_MS}")
    connection.value("SELECT 1 FROM pg_advisory_xact_lock(%s)", (lock_number(schema, "notice"),))
    tables = ", ".join(f'"{schema}".{name}' for name in _WRITTEN)
    connection.execute(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE")


def _begin_schema(connection: PostgresConnection, address: PostgresAddress) -> None:
    if not connection.value(_SCHEMA, (address.schema,)):
        connection.execute(f'CREATE SCHEMA "{address.schema}"')
    elif tables := connection.value(_TABLES_COUNT, (address.schema,)):
        raise StoreError(
            f"{address.shown}: the schema {address.schema} holds "
            f"{counted(tables, 'table')} of another program; give the store its own schema: ?schema=NAME"
        )


def script(schema: str) -> str:
    """All migrations as one SQL script, for users who run them by hand."""
    parts = [f'CREATE SCHEMA IF NOT EXISTS "{schema}";', *map(str.strip, migrations(schema))]
    return "BEGIN;\n\n" + "\n\n".join(parts) + "\n\nCOMMIT;\n"
