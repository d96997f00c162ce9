"""The tables. A change here needs a migration beside it (docs/internals/store.md); a test compares them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text

REVISIONS = ("0001",)
"""Revisions of the schema that this code can lift to the last of them, oldest first."""

VERSION_TABLE = "haibun_schema"

metadata = MetaData()

# On SQLite an INTEGER primary key is the row id itself: appending is then a write at the end of one B-tree.
_Seq = BigInteger().with_variant(Integer, "sqlite")

journal = Table(
    "journal",
    metadata,
    Column("seq", _Seq, primary_key=True, autoincrement=False),  # 1, 2, 3, ...: given by the writer
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

specs = Table(
    "specs",
    metadata,
    Column("job", Text, primary_key=True),
    Column("spec", Text, nullable=False),  # JSON
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("seq", _Seq, primary_key=True, autoincrement=False),  # of the last event that it contains
    Column("checksum", LargeBinary, nullable=False),
    Column("blob", LargeBinary, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("devices", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("submitted", Double, nullable=False),
    Column("first_start", Double),
    Column("finished", Double),
    Column("preemptions", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("steps", Double, nullable=False),
    Column("total_steps", Double),
    Column("service", Double, nullable=False),
    Column("model", Text),
    Column("reason", Text, nullable=False),
    Index("jobs_by_submission", "submitted", "id"),
    Index("jobs_by_state", "state"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("job", Text, primary_key=True),
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    Column("started", Double, nullable=False),
    Column("ended", Double),
    Column("nodes", Text, nullable=False),  # JSON list of names
    Column("devices", Text, nullable=False),  # JSON list of numbers
    Column("outcome", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("steps", Double, nullable=False),
    Column("durable", Double, nullable=False),
)
