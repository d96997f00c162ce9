"""From a URL to a SQLAlchemy engine that is durable.

What differs between SQLite and PostgreSQL, and the checks of URLs.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import URL, Engine, event
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from haibun.store.errors import StoreError

CONNECT_TIMEOUT_S = (
    5  # a dead host must not stall a controller's start for the two minutes that TCP would take
)
BUSY_TIMEOUT_S = 5  # a person's sqlite3 shell may hold the write lock for a moment
WAL_LIMIT_BYTES = 64 << 20  # a snapshot may blow the log up; it is cut back to this afterwards


def parse(text: str) -> URL:
    """Read ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/DATABASE``.

    Raises:
        StoreError: it is no URL, of another database, or of a SQLite database in memory.
    """
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError(
            f"{text!r} is no database URL; write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"
        ) from None
    backend = "postgresql" if url.drivername == "postgres" else url.get_backend_name()
    if backend == "sqlite":
        if not url.database or url.database == ":memory:":
            raise StoreError(f"{text!r}: a journal in memory outlives nothing; name a file: sqlite:///FILE")
        return url.set(drivername="sqlite+pysqlite")
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    raise StoreError(f"{url!r}: Haibun keeps its journal in SQLite or PostgreSQL, not in {backend!r}")


def shown(url: URL) -> str:
    """The URL for messages: without the password; a plain path where it is a file."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.set(drivername="postgresql").render_as_string(hide_password=True)


def identity() -> str:
    """Who we are, for whoever finds the journal locked."""
    return f"haibun pid {os.getpid()} on {socket.gethostname()}"


def connect(url: URL, *, read_only: bool) -> Engine:
    """An engine on the database; no connection is made yet.

    Raises:
        StoreError: the driver is not installed, or the file's folder is not there.
    """
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, read_only)
    try:
        return _postgres(url, read_only)
    except (ImportError, NoSuchModuleError) as e:
        raise StoreError(
            f"{shown(url)}: {e}; PostgreSQL needs its driver: pip install 'haibun[postgres]'"
        ) from e


def _sqlite(url: URL, read_only: bool) -> Engine:
    path = Path(str(url.database))
    if not path.parent.is_dir():
        raise StoreError(f"{path}: the folder {path.parent} does not exist; create it, or correct the URL")
    if read_only and not path.exists():
        raise StoreError(f"{path}: there is no journal")
    if not path.exists():
        _create_private(path)
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = (
            None  # pysqlite must not begin transactions by itself: DDL would escape them
        )
        for pragma in _pragmas(read_only):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def _pragmas(read_only: bool) -> tuple[str, ...]:
    if read_only:
        return ("query_only=ON",)
    return (
        "auto_vacuum=INCREMENTAL",  # takes hold only before the first table: it stays first
        "journal_mode=WAL",
        "synchronous=FULL",  # in WAL mode, NORMAL may lose the last commits with the power
        f"journal_size_limit={WAL_LIMIT_BYTES}",
        "foreign_keys=ON",
    )


def _create_private(path: Path) -> None:
    """Specs hold environments, and so secrets.

    Only their owner may read the file (SQLite's side files follow).
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as e:
        raise StoreError(
            f"{path}: cannot be created ({e.strerror}); check that this user may write in {path.parent}"
        ) from e


def _postgres(url: URL, read_only: bool) -> Engine:
    given = {k: v for k, v in url.query.items() if k in ("connect_timeout", "application_name")}
    arguments: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": identity()[:63],  # NAMEDATALEN - 1
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    engine = sa.create_engine(
        url, pool_pre_ping=True, connect_args={k: v for k, v in arguments.items() if k not in given}
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            if read_only:
                cursor.execute("SET default_transaction_read_only = on")
            if cursor.execute("SHOW synchronous_commit").fetchone()[0] == "off":
                cursor.execute("SET synchronous_commit = on")
        connection.commit()

    return engine
