"""Opening a schema: checks, creation, migrations.

no schema, or an empty one     created: all migrations, in one transaction; with `create=False` StoreMissing
the current version            used
an older version               SchemaMismatch: `holdfast migrate`, when all processes can be stopped
a newer version                SchemaMismatch: install that version
tables of an application       StoreError: Holdfast needs its own schema
"""

from ...core.counting import counted
from ...core.errors import SchemaMismatch, StoreCorrupt, StoreError, StoreMissing
from .connection import PostgresConnection
from .locks import lock_number
from .statements import migrations
from .url import PostgresAddress

# The oldest supported server version.
OLDEST = 140_000

_SERVER = """SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
pg_is_in_recovery()"""
_TABLES = """SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relkind IN ('r', 'p')"""
_SCHEMA = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"


def schema_version(connection: PostgresConnection, schema: str) -> int:
    """The version of our tables in a schema; 0: there are none."""
    # From the catalogue: `to_regclass` may use a cache from before we waited for the lock.
    if not connection.value(_TABLES + " AND relname = 'version'", (schema,)):
        return 0
    rows = connection.rows(f'SELECT version FROM "{schema}".version')
    if len(rows) != 1 or not isinstance(rows[0][0], int) or rows[0][0] < 1:
        raise StoreCorrupt(
            f"the schema {schema} is damaged: its table version holds {len(rows)} rows, and must hold one, "
            "the number of its version; restore a backup"
        )
    return int(rows[0][0])


def make_ready(connection: PostgresConnection, address: PostgresAddress, *, create: bool = True) -> None:
    """Check the schema, or create it if it does not exist. The connection is in no transaction."""
    ((number, encoding, standby),) = connection.rows(_SERVER)
    if number < OLDEST:
        raise StoreError(f"{address.shown} is PostgreSQL {number // 10_000}, and must be 14 or newer")
    if encoding != "UTF8":
        raise StoreError(
            f"{address.shown} has the encoding {encoding}, and must have UTF8: create another database"
        )
    if standby:
        raise StoreError(f"{address.shown} cannot be written: it is a replica; use the primary")
    version, known = schema_version(connection, address.schema), len(migrations(address.schema))
    if version == 0 and not create:
        raise StoreMissing(address.shown)
    if version == 0:
        migrate(connection, address)
    elif version < known:
        raise SchemaMismatch(
            f"{address.shown} is of schema version {version}, and this Holdfast needs {known}: stop its "
            f"processes, then run: holdfast migrate --store {address.shown}"
        )
    elif version > known:
        raise SchemaMismatch(
            f"{address.shown} was written by a newer Holdfast: it is of schema version {version}, and this "
            f"one knows up to {known}; install that version, or give this one another schema"
        )


def migrate(connection: PostgresConnection, address: PostgresAddress) -> list[int]:
    """Migrate a schema in one transaction; return the new versions."""
    # Another process may take longer to create the schema than the usual lock time-out.
    connection.execute("BEGIN; SET LOCAL lock_timeout = 0")
    try:
        # Another process may be migrating: the second one finds it done.
        connection.value("SELECT 1 FROM pg_advisory_xact_lock(%s)", (lock_number(address.schema, "migrate"),))
        version, made = schema_version(connection, address.schema), []
        if version == 0:
            _begin_schema(connection, address)
        for number, text in enumerate(migrations(address.schema)[version:], start=version + 1):
            connection.execute(text)
            connection.change(f'DELETE FROM "{address.schema}".version')
            connection.change(f'INSERT INTO "{address.schema}".version VALUES (%s)', (number,))
            made.append(number)
        connection.execute("COMMIT")
    except BaseException:
        if connection.is_open:
            connection.execute("ROLLBACK")
        raise
    return made


def _begin_schema(connection: PostgresConnection, address: PostgresAddress) -> None:
    if not connection.value(_SCHEMA, (address.schema,)):
        connection.execute(f'CREATE SCHEMA "{address.schema}"')
    elif tables := connection.value(_TABLES, (address.schema,)):
        raise StoreError(
            f"{address.shown}: the schema {address.schema} holds "
            f"{counted(tables, 'table')} of another program; give the store its own schema: ?schema=NAME"
        )


def script(schema: str) -> str:
    """All migrations as one SQL script, for users who run them by hand."""
    parts = [f'CREATE SCHEMA IF NOT EXISTS "{schema}";']
    for number, text in enumerate(migrations(schema), start=1):
        version = f'DELETE FROM "{schema}".version;\nINSERT INTO "{schema}".version VALUES ({number});'
        parts.append(f"{text.strip()}\n\n{version}")
    return "BEGIN;\n\n" + "\n\n".join(parts) + "\n\nCOMMIT;\n"
