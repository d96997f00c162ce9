"""The journal's table. Each function speaks on the connection that it is given."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Row

from haibun.store.schema import journal

Record = tuple[float, str, int, bytes]
"""``at, kind, version, body`` of an event, as the codec writes it."""


def insert(connection: Connection, last: int, records: Sequence[Record]) -> None:
    """Add records as numbers ``last + 1`` onward."""
    if not records:
        return
    if connection.dialect.name == "postgresql":
        _copy(connection, last, records)
        return
    rows = [
        {"seq": seq, "at": at, "kind": kind, "version": version, "body": body}
        for seq, (at, kind, version, body) in enumerate(records, last + 1)
    ]
    connection.execute(sa.insert(journal), rows)


def _copy(connection: Connection, last: int, records: Sequence[Record]) -> None:
    """COPY takes ten times as many rows a second as INSERT does, and one row no slower."""
    session: Any = connection.connection.dbapi_connection  # psycopg's own
    with (
        session.cursor() as cursor,
        cursor.copy("COPY journal (seq, at, kind, version, body) FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types(["int8", "float8", "text", "int4", "bytea"])
        for seq, record in enumerate(records, last + 1):
            copy.write_row((seq, *record))


def span(connection: Connection) -> tuple[int, int]:
    """Numbers of the first and the last event; (0, 0) when there is none."""
    # Two queries: SQLite scans the whole table where both are asked for in one.
    first = connection.execute(sa.select(sa.func.min(journal.c.seq))).scalar()
    last = connection.execute(sa.select(sa.func.max(journal.c.seq))).scalar()
    return first or 0, last or 0


def page(
    connection: Connection, after: int, kinds: Collection[str] | None, limit: int
) -> Sequence[Row[int, str, int, bytes]]:
    """Up to ``limit`` rows ``seq, kind, version, body`` past number ``after``, of all kinds or of some."""
    t = journal.c
    query = sa.select(t.seq, t.kind, t.version, t.body).where(t.seq > after).order_by(t.seq).limit(limit)
    if kinds is not None:
        query = query.where(t.kind.in_(kinds))
    return connection.execute(query).fetchall()


def delete_until(connection: Connection, seq: int) -> int:
    """Delete events up to number ``seq``; return how many."""
    return connection.execute(sa.delete(journal).where(journal.c.seq <= seq)).rowcount
