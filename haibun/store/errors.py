"""What can go wrong with a store, said so that a person knows what to do.

No SQL and no driver's class leaves here.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError


class StoreError(Exception):
    """The store cannot do what was asked. The message names the database, what is wrong and what to do."""


class StoreUnreachableError(StoreError):
    """The database does not answer, or not now. Nothing is lost: make the same call again later."""


class StoreFullError(StoreError):
    """No space is left. Nothing was half written: the same call succeeds once there is space."""


class StoreInUseError(StoreError):
    """Someone else holds the journal."""


class StoreDamagedError(StoreError):
    """What was read is not what was written."""


class StoreVersionError(StoreError):
    """The tables are of a version that this Haibun does not know."""


# SQLSTATE classes and codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
_POSTGRES_FULL = ("53100", "53200")  # disk_full, out_of_memory
_POSTGRES_DAMAGED = ("XX001", "XX002")  # data_corrupted, index_corrupted
_POSTGRES_DENIED = ("28000", "28P01", "42501")  # authorization, password, privilege

# While connecting, psycopg has no SQLSTATE to tell.
_POSTGRES_DENIED_AT_CONNECT = ("authentication failed", "no pg_hba.conf entry", 'role "')


def explain(error: Exception, where: str) -> StoreError:
    """Turn what SQLAlchemy or a driver raised into a StoreError about the database ``where``."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = " ".join(str(cause).split())
    if isinstance(cause, sqlite3.Error):
        return _explain_sqlite(text, where)
    state = getattr(cause, "sqlstate", None) or ""
    if state in _POSTGRES_FULL or "No space left on device" in text:
        return StoreFullError(
            f"{where}: no space is left on the database server ({text}); free some. Nothing was lost"
        )
    if state in _POSTGRES_DAMAGED:
        return StoreDamagedError(f"{where}: the server reports damaged data ({text}); restore a backup")
    if state in _POSTGRES_DENIED or any(words in text for words in _POSTGRES_DENIED_AT_CONNECT):
        return StoreError(f"{where}: the server refuses this user ({text}); check name, password and rights")
    if state == "3D000" or ("database" in text and "does not exist" in text):
        return StoreError(f"{where}: {text}; create the database first (createdb)")
    if is_lost(error):
        return StoreUnreachableError(
            f"{where}: the database does not answer ({text}); check that it runs. Nothing was lost"
        )
    return StoreError(f"{where}: {text}")


def is_lost(error: Exception) -> bool:
    """Whether the connection is gone, rather than the statement refused."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return False
    state = getattr(cause, "sqlstate", None) or ""
    # 08: connection exception; 57P01-57P03: shutdown, crash, starting up; none at all: no server was reached.
    operational = any(t.__name__ == "OperationalError" for t in type(cause).__mro__)
    return state.startswith(("08", "57P0")) or (operational and not state)


def _explain_sqlite(text: str, where: str) -> StoreError:
    if "is full" in text:
        return StoreFullError(f"{where}: the disk is full; free some space. Nothing was lost")
    if "not a database" in text or "malformed" in text:
        return StoreDamagedError(
            f"{where}: not a sound SQLite database ({text}); restore a backup, or move the file away to "
            f"start anew"
        )
    if "readonly" in text or "unable to open" in text:
        return StoreError(
            f"{where}: cannot be written ({text}); check that the folder exists and that this user may "
            f"write there"
        )
    if "locked" in text:
        return StoreUnreachableError(
            f"{where}: another program holds the database's write lock (a sqlite3 shell, maybe?); end it. "
            f"Nothing was lost"
        )
    if "disk I/O error" in text:
        return StoreError(f"{where}: the disk fails ({text}); see the kernel's log")
    return StoreError(f"{where}: {text}")
