"""One controller a journal. SQLite: a flock'ed file beside it. PostgreSQL: an advisory lock of the writing
session.

The PostgreSQL lock lives on the very connection that writes. Whoever writes therefore holds the lock at that
moment: a controller that was cut off cannot write into the journal of its successor.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from haibun.store.database import identity
from haibun.store.errors import StoreError, StoreInUseError

ADVISORY_CLASS = (
    0x4842  # "HB"; the second half of the key is the schema, so that one database can hold several
)


class FileLock:
    """Held from construction to ``release`` or the death of the process, whichever comes first.

    Raises:
        StoreInUseError: another process, or another store of this one, holds it; the message names it.
        StoreError: the lock file cannot be made.
    """

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + ".lock")
        try:
            self._fd = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise StoreError(
                f"{self.path}: cannot be made ({e.strerror}); check that this user may write in "
                f"{self.path.parent}"
            ) from e
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._fd, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(self._fd)
            raise StoreInUseError(
                f"{database}: {holder} uses this journal; stop it first, or name another file"
            ) from None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, identity().encode(), 0)
        except OSError:
            pass  # a full disk: the lock holds all the same, only nameless
        _held.add(self)

    def release(self) -> None:
        """Let go. The file stays: to remove it would race with the next holder."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.ftruncate(fd, 0)
            os.close(fd)

    def forget(self) -> None:
        """In a forked child: drop the inherited descriptor, which would keep the lock after our death."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)


def lock_session(connection: Connection, former: int | None, where: str) -> int:
    """Take the advisory lock of the connection's schema and return the session's server process id.

    ``former`` is the process id of a session of ours that was cut off: where the server still keeps it alive,
    and with it the lock, it is ended.

    Raises:
        StoreInUseError: another session holds the lock.
        StoreError: no schema of the search path may be used.
    """
    with connection.begin():
        if connection.execute(sa.select(sa.func.current_schema())).scalar() is None:
            raise StoreError(f"{where}: this user has rights on no schema of its search_path; grant it some")
        if not _try(connection):
            pid, name = _holder(connection)
            if former is None or pid != former:
                raise StoreInUseError(
                    f"{where}: {name or 'another session'} (server process {pid}) uses this journal; stop "
                    f"it first"
                )
            connection.execute(sa.select(sa.func.pg_terminate_backend(pid, 5000)))
            if not _try(connection):
                raise StoreInUseError(
                    f"{where}: our own lost session {pid} still holds this journal; try again"
                )
        return int(connection.execute(sa.select(sa.func.pg_backend_pid())).scalar_one())


def _try(connection: Connection) -> bool:
    schema = sa.func.hashtext(sa.func.current_schema())
    return bool(
        connection.execute(sa.select(sa.func.pg_try_advisory_lock(ADVISORY_CLASS, schema))).scalar_one()
    )


def _holder(connection: Connection) -> tuple[int | None, str | None]:
    row = connection.execute(
        sa.text(
            "SELECT l.pid, a.application_name FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid) "
            "WHERE l.locktype = 'advisory' AND l.granted AND l.classid = :class AND l.objsubid = 2 "
            "AND l.objid::bigint = hashtext(current_schema())::bigint & 4294967295 "
            "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ),
        {"class": ADVISORY_CLASS},
    ).first()
    return (row[0], row[1]) if row else (None, None)
