"""The one connection that writes.

Opened, locked, brought to this code's schema, and made anew when it was lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from haibun.store import migrate
from haibun.store.errors import explain, is_lost
from haibun.store.lock import FileLock, lock_session


class Writer:
    """Holds the journal's lock from construction to ``close``.

    Raises:
        StoreInUseError: another writer holds the lock.
        StoreVersionError: the tables are newer than this code.
        StoreError: the database cannot be reached, read or written.
    """

    def __init__(self, engine: Engine, where: str) -> None:
        self._engine, self._where = engine, where
        self._connection: Connection | None = None
        self._session: int | None = None  # PostgreSQL: server process id of the last session of ours
        sqlite = engine.dialect.name == "sqlite"
        self._lock = FileLock(Path(str(engine.url.database))) if sqlite else None
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A durable transaction; it is committed when the block ends well.

        Raises:
            StoreError: whatever the database raised. If it came from the commit, whether the transaction
                holds is open, and the caller must look.
        """
        connection = self._connection or self._connect()
        try:
            with connection.begin():
                yield connection
        except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error) as e:
            if is_lost(e) or connection.invalidated:
                self._drop()
            else:
                self._roll_back(connection)
            raise explain(e, self._where) from e

    def _roll_back(self, connection: Connection) -> None:
        """SQLAlchemy rolls back a block that failed, but not one whose commit failed."""
        try:
            connection.connection.rollback()
        except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error):
            self._drop()

    def run_sqlite_script(self, script: str) -> None:
        """Run statements outside any transaction."""
        connection = self._connection or self._connect()
        try:
            # Not execute(): it runs a statement without columns for one step only, which frees one page.
            driver: Any = connection.connection.dbapi_connection
            driver.executescript(script)
        except sqlite3.Error as e:
            raise explain(e, self._where) from e

    def close(self) -> None:
        """Give up the connection and the lock."""
        self._drop()
        if self._lock is not None:
            self._lock.release()

    def _connect(self) -> Connection:
        try:
            connection = self._engine.connect()
        except SQLAlchemyError as e:
            raise explain(e, self._where) from e
        self._connection = connection
        try:
            if self._lock is None:
                self._session = lock_session(connection, self._session, self._where)
            with connection.begin():
                if not migrate.check(connection, self._where):
                    migrate.upgrade(connection)
        except SQLAlchemyError as e:
            self._drop()
            raise explain(e, self._where) from e
        except BaseException:
            self._drop()
            raise
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            # Not back into the pool: its session ends, and with that the advisory lock.
            connection.invalidate()
            connection.close()
