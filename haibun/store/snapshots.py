"""Snapshots of the State.

Checksummed, the last two kept, so that one damaged snapshot costs a longer replay only.
"""

from __future__ import annotations

import hashlib
import logging

import sqlalchemy as sa
from sqlalchemy import Connection

from haibun.store.schema import snapshots

KEPT = 2

log = logging.getLogger(__name__)


def write(connection: Connection, seq: int, blob: bytes) -> None:
    """Put the snapshot in place of one of the same ``seq``, and drop all but the newest two sound ones."""
    connection.execute(sa.delete(snapshots).where(snapshots.c.seq == seq))
    connection.execute(sa.insert(snapshots), {"seq": seq, "checksum": _checksum(seq, blob), "blob": blob})
    sound = 0
    for old in _seqs(connection):
        if sound == KEPT or _read(connection, old) is None:
            connection.execute(sa.delete(snapshots).where(snapshots.c.seq == old))
        else:
            sound += 1


def newest_sound(connection: Connection, where: str) -> tuple[int, bytes] | None:
    """The newest snapshot that is as it was written; those that are not are warned of and passed over."""
    for seq in _seqs(connection):
        blob = _read(connection, seq)
        if blob is not None:
            return seq, blob
        log.warning("%s: the snapshot at event %d is damaged; falling back to what is older", where, seq)
    return None


def horizon(connection: Connection) -> int:
    """The event up to which the journal is not needed: both kept snapshots are later and sound. 0: none."""
    seqs = _seqs(connection)
    if len(seqs) < KEPT or any(_read(connection, seq) is None for seq in seqs):
        return 0
    return min(seqs)


def _seqs(connection: Connection) -> list[int]:
    return list(connection.execute(sa.select(snapshots.c.seq).order_by(snapshots.c.seq.desc())).scalars())


def _read(connection: Connection, seq: int) -> bytes | None:
    query = sa.select(snapshots.c.checksum, snapshots.c.blob).where(snapshots.c.seq == seq)
    checksum, blob = connection.execute(query).one()
    return bytes(blob) if checksum == _checksum(seq, blob) else None


def _checksum(seq: int, blob: bytes) -> bytes:
    return hashlib.blake2b(blob, digest_size=16, salt=seq.to_bytes(8, "big")).digest()
