"""Journal, snapshots and tables: the only place where SQL is spoken. See docs/internals/store.md."""

from haibun.store.errors import (
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreInUseError,
    StoreUnreachableError,
    StoreVersionError,
)
from haibun.store.rows import AttemptRow, JobFilter, JobRow
from haibun.store.store import Loaded, Store

__all__ = [
    "AttemptRow",
    "JobFilter",
    "JobRow",
    "Loaded",
    "Store",
    "StoreDamagedError",
    "StoreError",
    "StoreFullError",
    "StoreInUseError",
    "StoreUnreachableError",
    "StoreVersionError",
]
