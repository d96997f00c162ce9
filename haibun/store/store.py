"""The store: a journal of events, snapshots of the State, launch specs, and tables for people.

Every write is one durable transaction. Event numbers (``seq``) are 1, 2, 3, ...: the writer gives them, so
that after a commit whose answer was lost it can tell by looking whether the events are in the journal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, Self

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from haibun.core import codec
from haibun.core.events import AnyEvent
from haibun.core.vocabulary import JobId
from haibun.store import database, journal, migrate, snapshots, tables
from haibun.store.errors import (
    StoreDamagedError,
    StoreError,
    StoreUnreachableError,
    StoreVersionError,
    explain,
)
from haibun.store.rows import AttemptRow, JobFilter, JobRow
from haibun.store.writer import Writer

PAGE_EVENTS = 10_000  # events read at once: a few MB, and no read transaction outlives a page
DELETED_AT_ONCE = 50_000  # events: some 100 ms, for which an append may have to wait

# PostgreSQL's autovacuum does as much by itself.
SQLITE_UPKEEP = "PRAGMA incremental_vacuum; PRAGMA optimize; PRAGMA wal_checkpoint(TRUNCATE);"


class Loaded(NamedTuple):
    """What a controller starts from.

    The State after event ``seq`` (None: the empty State), and the events since.
    """

    seq: int
    snapshot: bytes | None
    events: Iterator[AnyEvent]


class Store:
    """Open with ``Store.open``. One thread at a time may write; any thread may read meanwhile.

    All methods raise ``StoreError``s: ``StoreUnreachableError`` (the database does not answer; call again
    later), ``StoreFullError`` (call again when there is space), ``StoreDamagedError``, ``StoreInUseError``,
    ``StoreVersionError``.
    """

    def __init__(self, engine: Engine, where: str, writer: Writer | None) -> None:
        self._engine, self._where, self._writer = engine, where, writer
        # Of an append that failed: they may be in the journal, or not.
        self._unsure: list[journal.Record] | None = None
        self._last = 0

    @classmethod
    def open(cls, url: str, *, read_only: bool = False) -> Store:
        """Open the store at ``sqlite:///FILE`` or ``postgresql://...``, make or lift its tables, and lock it.

        ``read_only`` takes no lock and works beside a running controller.

        Raises:
            StoreError: the URL is wrong, the database cannot be reached or written, is in use or too new.
        """
        parsed = database.parse(url)
        where = database.shown(parsed)
        engine = database.connect(parsed, read_only=read_only)
        try:
            store = cls(engine, where, None if read_only else Writer(engine, where))
        except BaseException:
            engine.dispose()
            raise
        try:
            store._look()
        except BaseException:
            store.close()
            raise
        return store

    def _look(self) -> None:
        with self._reading() as connection:
            if not migrate.check(connection, self._where):
                raise StoreVersionError(
                    f"{self._where}: its tables are older than this Haibun; start `haibun up` on it once"
                )
            self._last = journal.span(connection)[1]

    def close(self) -> None:
        """Give up lock and connections. Harmless when done twice."""
        if self._writer is not None:
            self._writer.close()
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    # -- writing

    @property
    def last_seq(self) -> int:
        """The number of the last event that is known to be in the journal; 0: none is."""
        return self._last

    def append(
        self,
        events: Sequence[AnyEvent],
        specs: Mapping[JobId, str] | None = None,
        *,
        jobs: Iterable[JobRow] = (),
        attempts: Iterable[AttemptRow] = (),
    ) -> int:
        """Write events, launch specs (JSON) and rows in one durable transaction.

        Returns the number of the last event.

        When it raises, the events may or may not be in the journal (a commit's answer can be lost). Call it
        again with the same events, more behind them if you like: they will be there exactly once.

        Raises:
            StoreDamagedError: an append that failed is in the journal after all, and this one does not begin
                like it, or another writer has been here. Restart from ``load``.
        """
        records = [(e.at, *codec.encode(e)) for e in events]
        kept_jobs, kept_attempts = list(jobs), list(attempts)
        try:
            self._append(records, specs or {}, kept_jobs, kept_attempts)
        except StoreUnreachableError:
            # A server that was restarted is back at once; for one that is down this raises again.
            self._append(records, specs or {}, kept_jobs, kept_attempts)
        return self._last

    def _append(
        self,
        records: list[journal.Record],
        specs: Mapping[JobId, str],
        jobs: list[JobRow],
        attempts: list[AttemptRow],
    ) -> None:
        new = records[self._settle(records) :] if records else []
        self._unsure = new or self._unsure
        with self._writing() as connection:
            journal.insert(connection, self._last, new)
            tables.write_specs(connection, specs)
            tables.write_jobs(connection, jobs)
            tables.write_attempts(connection, attempts)
        if new:
            self._unsure = None
            self._last += len(new)

    def _settle(self, records: list[journal.Record]) -> int:
        """After an append that failed: how many of these records it did write."""
        if self._unsure is None:
            return 0
        with self._writing() as connection:
            written = journal.span(connection)[1] - self._last
        if written not in (0, len(self._unsure)):
            raise StoreDamagedError(f"{self._where}: another writer has been here; restart the controller")
        if records[:written] != self._unsure[:written]:
            raise StoreDamagedError(
                f"{self._where}: events whose append failed are in the journal after all; "
                "restart the controller"
            )
        self._unsure = None
        self._last += written
        return written

    def record_jobs(self, rows: Iterable[JobRow]) -> None:
        """Insert or replace rows of the jobs table."""
        self.append((), jobs=rows)

    def record_attempts(self, rows: Iterable[AttemptRow]) -> None:
        """Insert or replace rows of the attempts table."""
        self.append((), attempts=rows)

    def snapshot(self, seq: int, blob: bytes) -> None:
        """Keep the State as it is after event ``seq``; all but the last two snapshots are dropped."""
        if not 0 <= seq <= self._last:
            raise ValueError(f"a snapshot at event {seq}, but the journal ends at {self._last}")
        with self._writing() as connection:
            snapshots.write(connection, seq, blob)

    def compact(self, *, keep_journal: bool = True) -> int:
        """Give free pages back to the file system; return how many events were deleted.

        Without ``keep_journal``, events that the older of the two kept snapshots contains are deleted first;
        nothing is while fewer than two sound snapshots are there.
        """
        deleted = 0 if keep_journal else self._delete_up_to_horizon()
        if self._writer is not None and self._engine.dialect.name == "sqlite":
            self._writer.run_sqlite_script(SQLITE_UPKEEP)
        return deleted

    def _delete_up_to_horizon(self) -> int:
        with self._reading() as connection:
            horizon = snapshots.horizon(connection)
            first, _ = journal.span(connection)
        deleted = 0
        for start in range(first, horizon + 1, DELETED_AT_ONCE):
            with self._writing() as connection:
                until = min(start + DELETED_AT_ONCE - 1, horizon)
                deleted += journal.delete_until(connection, until)
        return deleted

    # -- reading

    def load(self) -> Loaded:
        """The newest sound snapshot, and the events after it, read as they are asked for.

        Raises:
            StoreDamagedError: no snapshot is sound, and the journal does not go back to the first event.
        """
        with self._reading() as connection:
            found = snapshots.newest_sound(connection, self._where)
        seq, blob = found or (0, None)
        return Loaded(seq, blob, (event for _, event in self.events(seq)))

    def events(self, after: int = 0, kinds: Collection[str] | None = None) -> Iterator[tuple[int, AnyEvent]]:
        """Yield ``(seq, event)`` of all events after number ``after``, or of those of some kinds.

        Raises:
            StoreDamagedError: an event is missing (compacted away, or lost) or cannot be read; the message
                says which.
        """
        while True:
            with self._reading() as connection:
                page = journal.page(connection, after, kinds, PAGE_EVENTS)
            for seq, kind, version, body in page:
                if kinds is None and seq != after + 1:
                    raise StoreDamagedError(
                        f"{self._where}: the journal lacks events {after + 1} to {seq - 1}"
                    )
                try:
                    event = codec.decode(kind, version, body)
                except codec.CodecError as e:
                    raise StoreDamagedError(f"{self._where}: event {seq} cannot be read: {e}") from e
                after = seq
                yield seq, event
            if len(page) < PAGE_EVENTS:
                return

    def spec(self, job: JobId) -> str | None:
        """The launch spec of a job (JSON); None where there is none."""
        with self._reading() as connection:
            return tables.read_spec(connection, job)

    def jobs(
        self, filters: JobFilter | None = None, limit: int | None = None, after: JobId | None = None
    ) -> list[JobRow]:
        """Rows of the jobs table, newest submission first.

        ``after`` is the last job of the page before the one that is wanted.
        """
        with self._reading() as connection:
            return tables.read_jobs(connection, filters or JobFilter(), limit, after)

    def attempts(self, job: JobId) -> list[AttemptRow]:
        """All attempts of a job, by epoch."""
        with self._reading() as connection:
            return tables.read_attempts(connection, job)

    # -- connections

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as e:
            raise explain(e, self._where) from e

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if self._writer is None:
            raise StoreError(f"{self._where}: the store was opened for reading only")
        with self._writer.transaction() as connection:
            yield connection
