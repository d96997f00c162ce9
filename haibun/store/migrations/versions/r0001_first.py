"""Journal, specs, snapshots, and the tables for people."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    seq = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "journal",
        sa.Column("seq", seq, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "specs",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("spec", sa.Text, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("seq", seq, primary_key=True, autoincrement=False),
        sa.Column("checksum", sa.LargeBinary, nullable=False),
        sa.Column("blob", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("devices", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("submitted", sa.Double, nullable=False),
        sa.Column("first_start", sa.Double),
        sa.Column("finished", sa.Double),
        sa.Column("preemptions", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("steps", sa.Double, nullable=False),
        sa.Column("total_steps", sa.Double),
        sa.Column("service", sa.Double, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_index("jobs_by_submission", "jobs", ["submitted", "id"])
    op.create_index("jobs_by_state", "jobs", ["state"])
    op.create_table(
        "attempts",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("epoch", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("started", sa.Double, nullable=False),
        sa.Column("ended", sa.Double),
        sa.Column("nodes", sa.Text, nullable=False),
        sa.Column("devices", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("steps", sa.Double, nullable=False),
        sa.Column("durable", sa.Double, nullable=False),
    )
