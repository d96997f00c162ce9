"""The one place where events become State on the live side: journal, apply, decide, journal, apply, act.

Whoever has an event puts it here. A round takes all that have gathered (so hundreds share one fsync), makes them
durable, applies them, decides, makes the decision durable, applies it, and only then lets actions out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from haibun.core import snapshot
from haibun.core.actions import Action
from haibun.core.engine import Engine
from haibun.core.events import AnyEvent, Decided, JobsRetired, Tick
from haibun.core.vocabulary import JobState
from haibun.run.clock import Clock
from haibun.run.errors import UnavailableError
from haibun.run.history import History
from haibun.store import Store, StoreError, StoreFullError, StoreUnreachableError

log = logging.getLogger("haibun.ledger")

SNAPSHOT_EVERY = 10_000  # events: the tail then replays in about a third of a second
KEEP_ENDED = 2_000  # ended jobs that stay in the State; older ones are in the tables alone
RETRY_STORE = 0.5  # seconds between tries at a store that refuses
LONGEST_WAIT = 3600.0


@dataclass(slots=True)
class _Entry:
    events: Sequence[AnyEvent]
    specs: Mapping[str, str]
    done: asyncio.Future[None]
    droppable: bool  # a user waits for the answer and can try again; reports of agents are kept until they are written


@dataclass(slots=True)
class Ledger:
    """Engine and journal, driven by ``run``.

    Args:
        act: carries actions out; called when all that led to them is durable.
        see: told of each event once it is applied.
    """

    engine: Engine
    store: Store
    clock: Clock
    act: Callable[[list[Action]], None]
    see: Callable[[AnyEvent], None]
    history: History = field(init=False)
    degraded: str | None = None
    closing: bool = False
    _inbox: list[_Entry] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "haibun-store"))
    _since_snapshot: int = 0

    def __post_init__(self) -> None:
        self.history = History(self.engine.state)

    def put(
        self, events: Sequence[AnyEvent], specs: Mapping[str, str] | None = None, *, droppable: bool = False
    ) -> asyncio.Future[None]:
        """Hand events over, in order; the future is done when they are durable and applied.

        It fails with UnavailableError where ``droppable`` events could not be written: nothing of them is kept then.
        """
        if droppable and self.degraded:
            raise UnavailableError(self.degraded)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inbox.append(_Entry(events, specs or {}, done, droppable))
        self._wake.set()
        return done

    async def changed(self) -> None:
        """Wait until something has been applied."""
        async with self._changed:
            await self._changed.wait()

    async def run(self) -> None:
        """Rounds, for ever."""
        while True:
            now = self.clock.wall()
            due = self.engine.next_wake()
            if not self._inbox and not self.engine.state.dirty and due > now:
                await self.clock.wait(self._wake, min(due - now, LONGEST_WAIT))
            self._wake.clear()
            try:
                await self._round()
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("a round failed; going on")
                await self.clock.sleep(RETRY_STORE)

    async def close(self) -> None:
        """Write what is left, and a snapshot."""
        self.closing = True
        if self._inbox:
            await self._round()
        with contextlib.suppress(StoreError):
            await self._snapshot()
        self.thread.shutdown(wait=True)

    async def _round(self) -> None:
        engine, state = self.engine, self.engine.state
        entries, self._inbox = self._inbox, []
        events = [event for entry in entries for event in entry.events]
        if not events and state.next_timer() <= self.clock.wall():
            events = [Tick(self.clock.wall())]
        if events:
            entries, events = await self._write_entries(entries, events)
            self.act(self._apply(events))
            for entry in entries:
                if not entry.done.done():
                    entry.done.set_result(None)
        now = self.clock.wall()
        if not self.closing and (state.dirty or engine.wake_at <= now):
            await self._decide(now)
        if self.history.pending and not self._inbox:
            await self._write([], {}, forever=True)
        async with self._changed:
            self._changed.notify_all()
        if self._since_snapshot >= SNAPSHOT_EVERY:
            await self._snapshot()

    async def _decide(self, now: float) -> None:
        decision = self.engine.decide(now)
        if decision is None:
            return
        decided = Decided(now, decision)
        await self._write([decided], {}, forever=True)
        self.act(self._apply([decided]))

    def _apply(self, events: Sequence[AnyEvent]) -> list[Action]:
        actions: list[Action] = []
        for event in events:
            try:
                actions += self.engine.apply(event)
            except ValueError as e:  # it contradicts the State: replay will pass over it just so
                log.warning("passed over an event: %s (%s)", e, type(event).__name__)
            self.history.note(event)
            self.see(event)
        self._since_snapshot += len(events)
        return actions

    async def _write_entries(
        self, entries: list[_Entry], events: list[AnyEvent]
    ) -> tuple[list[_Entry], list[AnyEvent]]:
        """Make a batch durable; returns what of it is. Where the store is full, users' part is refused."""
        specs = {job: spec for entry in entries for job, spec in entry.specs.items()}
        try:
            await self._write(events, specs, forever=not any(e.droppable for e in entries))
        except StoreFullError as e:
            for entry in entries:
                if entry.droppable and not entry.done.done():
                    entry.done.set_exception(UnavailableError(str(e)))
            entries = [entry for entry in entries if not entry.droppable]
            events = [event for entry in entries for event in entry.events]
            if events:
                await self._write(events, {}, forever=True)
        return entries, events

    async def _write(self, events: Sequence[AnyEvent], specs: Mapping[str, str], *, forever: bool) -> None:
        """Append until it succeeds. Full stores raise unless ``forever``; one that does not answer is waited for."""
        jobs, attempts = self.history.take()
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(
                    self.thread, lambda: self.store.append(events, specs, jobs=jobs, attempts=attempts)
                )
                self.degraded = None
                return
            except (StoreUnreachableError, StoreFullError) as e:
                if self.degraded is None:
                    log.error("%s; running jobs go on, nothing new is accepted", e)
                self.degraded = str(e)
                if isinstance(e, StoreFullError) and not forever:
                    self.history.give_back(jobs, attempts)
                    raise
                await self.clock.sleep(RETRY_STORE)

    async def _snapshot(self) -> None:
        await self._retire()
        seq, blob = self.store.last_seq, snapshot.dump(self.engine.state)
        self._since_snapshot = 0
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self.thread, self.store.snapshot, seq, blob)
        except StoreError as e:
            log.warning("no snapshot could be written: %s", e)

    async def _retire(self) -> None:
        """Ended jobs beyond the newest KEEP_ENDED leave the State, unless a job that waits names them."""
        state = self.engine.state
        c = state.jobs.columns
        ended = [
            (float(c.ended_at[row]), job)
            for job, row in state.jobs.row_of.items()
            if c.state[row] >= JobState.SUCCEEDED
        ]
        if len(ended) <= KEEP_ENDED + KEEP_ENDED // 4 or self.closing:
            return
        needed = {name for row in state.active_rows().tolist() for name in state.jobs.job(row).depends_on}
        old = [job for _, job in sorted(ended)[: len(ended) - KEEP_ENDED] if job not in needed]
        event = JobsRetired(self.clock.wall(), tuple(old))
        await self._write([event], {}, forever=True)
        self._apply([event])
