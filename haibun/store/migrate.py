"""Lifts the tables to this code's schema when a store is opened.

Alembic is imported only where there is work for it.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from haibun.store.errors import StoreVersionError
from haibun.store.schema import REVISIONS, VERSION_TABLE


def revision(connection: Connection) -> str | None:
    """The revision of the database's tables; None where there are none."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(
        sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE))
    ).scalar()


def check(connection: Connection, where: str) -> bool:
    """Whether the tables are of this code's revision; False: they must be lifted or made.

    Raises:
        StoreVersionError: they are of a revision that this code does not know, which is to say a newer one.
    """
    found = revision(connection)
    if found is not None and found not in REVISIONS:
        raise StoreVersionError(
            f"{where}: its tables are of revision {found!r}; this Haibun knows up to {REVISIONS[-1]!r}: "
            f"upgrade Haibun"
        )
    return found == REVISIONS[-1]


def upgrade(connection: Connection) -> None:
    """Run the migrations that are missing, within the caller's transaction: all of them or none."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
