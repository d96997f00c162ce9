"""The tables for people: upserts and listings. Each function speaks on the connection that it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

from haibun.core.vocabulary import JobId, NodeName
from haibun.store import schema
from haibun.store.rows import AttemptRow, JobFilter, JobRow

# Lists lie in the tables as JSON.
_NODES = msgspec.json.Decoder(tuple[NodeName, ...])
_DEVICES = msgspec.json.Decoder(tuple[int, ...])


def write_specs(connection: Connection, specs: Mapping[JobId, str]) -> None:
    """Insert or replace launch specs (JSON)."""
    _upsert(connection, schema.specs, [{"job": job, "spec": spec} for job, spec in specs.items()])


def write_jobs(connection: Connection, rows: Iterable[JobRow]) -> None:
    """Insert or replace; the last row of a job wins."""
    latest = {row.id: row for row in rows}
    _upsert(connection, schema.jobs, [msgspec.structs.asdict(row) for row in latest.values()])


def write_attempts(connection: Connection, rows: Iterable[AttemptRow]) -> None:
    """Insert or replace; the last row of an attempt wins."""
    latest = {(row.job, row.epoch): row for row in rows}
    _upsert(connection, schema.attempts, [_attempt_to_columns(row) for row in latest.values()])


def read_spec(connection: Connection, job: JobId) -> str | None:
    """The launch spec of a job; None where there is none."""
    return connection.execute(sa.select(schema.specs.c.spec).where(schema.specs.c.job == job)).scalar()


def read_jobs(
    connection: Connection, wanted: JobFilter, limit: int | None, after: JobId | None
) -> list[JobRow]:
    """Newest first; ``after`` is the last job of the page before."""
    t = schema.jobs
    age = (t.c.submitted, sa.func.length(t.c.id), t.c.id)  # ids are numbers written out: 9 comes before 10
    query = sa.select(t).order_by(*(column.desc() for column in age))
    if wanted.ids:
        query = query.where(t.c.id.in_(wanted.ids))
    if wanted.states:
        query = query.where(t.c.state.in_(wanted.states))
    if wanted.tenant is not None:
        query = query.where(t.c.tenant == wanted.tenant)
    if wanted.name is not None:
        query = query.where(t.c.name == wanted.name)
    if wanted.since is not None:
        query = query.where(t.c.submitted >= wanted.since)
    if wanted.before is not None:
        query = query.where(t.c.submitted < wanted.before)
    if after is not None:
        submitted = sa.select(t.c.submitted).where(t.c.id == after).scalar_subquery()
        query = query.where(sa.tuple_(*age) < sa.tuple_(submitted, len(after), after))
    return [JobRow(*row) for row in connection.execute(query.limit(limit))]


def read_attempts(connection: Connection, job: JobId) -> list[AttemptRow]:
    """All attempts of a job, in order."""
    t = schema.attempts
    query = sa.select(t).where(t.c.job == job).order_by(t.c.epoch)
    return [_attempt_from_columns(*row) for row in connection.execute(query)]


def _attempt_to_columns(row: AttemptRow) -> dict[str, Any]:
    columns = msgspec.structs.asdict(row)
    for name in ("nodes", "devices"):
        columns[name] = msgspec.json.encode(columns[name]).decode()
    return columns


def _attempt_from_columns(*values: Any) -> AttemptRow:
    job, epoch, started, ended, nodes, devices, *rest = values
    return AttemptRow(job, epoch, started, ended, _NODES.decode(nodes), _DEVICES.decode(devices), *rest)


def _upsert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    insert: Any = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = insert(table)
    keys = [c.name for c in table.primary_key]
    changes = {c.name: statement.excluded[c.name] for c in table.columns if c.name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes), rows)
