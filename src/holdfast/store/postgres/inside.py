"""Batches on PostgreSQL connections of an application alone. For tests."""

from typing import Any

from .borrow import SessionInfo, borrowed, session_of
from .connection import PostgresConnection
from .store import PostgresStore


class InsidePostgres(PostgresStore):
    """Runs batches on connections in a transaction. It keeps no connection that a database could not be
    dropped for, and needs one of its own only to create the schema, which no transaction then takes away.
    """

    def _check_database(self, connection: PostgresConnection) -> SessionInfo:
        session = session_of(connection, self.address.schema)
        if not session.database[2]:
            self.migrate()
        return session

    def remove(self, connection: Any) -> None:
        """Remove the schema, and all jobs with it."""
        borrowed(connection).execute(f'DROP SCHEMA IF EXISTS "{self.address.schema}" CASCADE')
