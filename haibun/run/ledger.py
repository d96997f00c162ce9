"""The one place where events become State on the live side: journal, apply, decide, journal, apply, act.

Whoever has an event puts it here. A round takes all that have gathered (so hundreds share one fsync), makes them
durable, applies them, decides, makes the decision durable, applies it, and only then lets actions out.
See docs/internals/live.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from haibun.core import codec, snapshot
from haibun.core.actions import Action
from haibun.core.admission import AdmissionError
from haibun.core.demand import Rates
from haibun.core.engine import Engine
from haibun.core.events import AnyEvent, Decided, JobsRetired, JobSubmitted, Tick
from haibun.core.life import apply
from haibun.core.state import Delta, State
from haibun.core.vocabulary import SUCCEEDED, JobId
from haibun.run.clock import Clock
from haibun.run.errors import UnavailableError
from haibun.run.history import History
from haibun.run.timekeeping import Timekeeper
from haibun.store import Store, StoreError, StoreFullError
from haibun.store.errors import StoreDamagedError, StoreInUseError, StoreVersionError

log = logging.getLogger("haibun.ledger")

SNAPSHOT_EVERY = 10_000  # events: the tail then replays in about a third of a second
KEEP_ENDED = 2_000  # ended jobs that stay in the State; older ones are in the tables alone
RETRY_STORE = 0.5  # seconds between tries at a store that refuses
RETRY_POLICY = 5.0  # seconds before a policy that raised is asked again, if nothing happens before
SHORTEST_WAKE = 0.05  # seconds: a policy that wants to be woken at once would take all of the loop
LONGEST_WAIT = 3600.0

# The journal is no longer ours to write, or not to be trusted: going on could only do harm.
_FATAL = (StoreDamagedError, StoreInUseError, StoreVersionError)


def restore(store: Store, rates: Rates) -> tuple[State, History]:
    """The State that the journal tells of, and the rows that may not have been written for it.

    Raises:
        StoreError: the journal cannot be read.
    """
    loaded = store.load()
    try:
        state = snapshot.load(loaded.snapshot, rates) if loaded.snapshot is not None else State(rates)
    except snapshot.SnapshotError as e:
        raise StoreVersionError(f"{e}; start the Haibun that wrote it") from e
    history = History(state)
    for event in loaded.events:
        try_apply(state, event)
        history.note(event)
    state.delta, state.dirty = Delta(), True  # the first decision looks at everything
    return state, history


def try_apply(state: State, event: AnyEvent) -> list[Action] | None:
    """Apply an event; None where it contradicts the State and is passed over.

    Live and in replay it is this function that decides so: what is passed over once always is.
    """
    try:
        return apply(state, event)
    except ValueError as e:
        log.warning("passed over an event: %s (%s)", e, type(event).__name__)
    except Exception:
        log.exception("a fault of Haibun's: passed over %r", event)
    return None


@dataclass(slots=True)
class _Entry:
    events: Sequence[AnyEvent]
    specs: Mapping[str, str]
    done: asyncio.Future[None]
    droppable: bool  # a user waits for the answer and can try again; reports of agents are kept until they are written

    def refuse(self, why: str) -> None:
        if self.done.done():
            return
        if self.droppable:
            self.done.set_exception(UnavailableError(why))
        else:
            self.done.cancel()


class Ledger:
    """Engine and journal, driven by ``run``.

    Args:
        act: carries actions out; called when all that led to them is durable.
        see: told of each event once it is applied, with its number in the journal.

    Attributes:
        degraded: why nothing new can be accepted just now; None: it can.
        closing: events are taken in, but no more decisions made.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        clock: Clock,
        act: Callable[[list[Action]], None],
        see: Callable[[int, AnyEvent], None],
        history: History | None = None,
    ) -> None:
        self.engine, self.store, self.history = engine, store, history or History(engine.state)
        self.degraded: str | None = None
        self.closing = False
        self._clock, self._act, self._see = clock, act, see
        self._time = Timekeeper(clock, engine.state.now)
        self._thread = ThreadPoolExecutor(1, "haibun-journal")
        self._inbox: list[_Entry] = []
        self._wake = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._applied = store.last_seq  # the number of the last event that is in the State
        self._snapshot_at = store.last_seq
        self._not_before = 0.0  # no decision earlier: the policy has just failed
        self._stopping = False

    def now(self) -> float:
        """The time for events, in Unix seconds; it never goes back."""
        return self._time.now()

    def put(
        self, events: Sequence[AnyEvent], specs: Mapping[str, str] | None = None, *, droppable: bool = False
    ) -> asyncio.Future[None]:
        """Hand events over, in order; the future is done when they are durable and applied.

        Raises:
            UnavailableError: at once, or from the future, where ``droppable`` events could not be written: nothing of
                them is kept then.
            AdmissionError: a ``droppable`` event can never be written (a number or text that has no encoding).
        """
        if droppable:
            _check_writable(events)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = _Entry(events, specs or {}, done, droppable)
        if self._stopping:
            if droppable:
                raise UnavailableError("Haibun is going down")
            entry.refuse("")
            return done
        if droppable and self.degraded:
            raise UnavailableError(self.degraded)
        self._inbox.append(entry)
        self._wake.set()
        return done

    async def changed(self) -> None:
        """Wait until a round has been made."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    async def run(self) -> None:
        """Rounds, until ``stop``; what has been put by then is still written, if the store takes it.

        Raises:
            StoreError: the journal is damaged, or another controller's by now. End: what is running goes on, and the
                next start finds it.
        """
        try:
            while self._inbox or not self._stopping:
                await self._idle()
                await self._round()
        except StoreError as e:
            if not self._stopping or isinstance(e, _FATAL):
                raise
        finally:
            self._stopping = True
            self._refuse(lambda entry: True, "Haibun is going down")
            self._tell_waiting()

    def stop(self) -> None:
        """Have ``run`` end after the round that is under way."""
        self.closing = self._stopping = True
        self._wake.set()

    async def close(self) -> None:
        """After ``run``: a snapshot, if the State is what the journal says, and the end of the writing thread."""
        self.closing = self._stopping = True
        with contextlib.suppress(StoreError):
            await self._snapshot()
        await asyncio.to_thread(self._thread.shutdown)

    # --- rounds ------------------------------------------------------------------------------------------------------

    async def _idle(self) -> None:
        """Wait until there is something to do."""
        now = self.now()
        if not self._inbox and not self._stopping and not self._wants_decision(now):
            due = self.engine.state.next_timer()
            if not self.closing:
                due = min(due, self.engine.wake_at)
                if self.engine.state.dirty:
                    due = min(due, self._not_before)
            if due > now:
                await self._clock.wait(self._wake, min(due - now, LONGEST_WAIT))
        self._wake.clear()
        await asyncio.sleep(0)  # a round need not wait for anything; others must come to their turn

    def _wants_decision(self, now: float) -> bool:
        due = self.engine.state.dirty or self.engine.wake_at <= now
        return due and not self.closing and now >= self._not_before

    async def _round(self) -> None:
        entries, self._inbox = self._inbox, []
        try:
            entries = await self._take_in(entries)
        except BaseException:
            self._inbox = entries + self._inbox  # so that those who wait are told
            raise
        for entry in entries:
            if not entry.done.done():
                entry.done.set_result(None)
        now = self.now()
        if self._wants_decision(now):
            await self._decide(now)
        if self.history.pending and not self._inbox:
            await self._write([], {})
        self._tell_waiting()
        if self._applied - self._snapshot_at >= SNAPSHOT_EVERY and not self.closing:
            await self._snapshot()

    async def _take_in(self, entries: list[_Entry]) -> list[_Entry]:
        """Make a batch durable and apply it; returns what of it was. A full store refuses users' part."""
        # Timers run first, in an event of their own: what one asks for must not be lost with an event passed over.
        now = self.now()
        ticks: list[AnyEvent] = [Tick(now)] if self.engine.state.next_timer() <= now else []
        events = ticks + [event for entry in entries for event in entry.events]
        if not events:
            return entries
        specs = {job: spec for entry in entries for job, spec in entry.specs.items()}
        try:
            await self._write(events, specs, droppable=any(entry.droppable for entry in entries))
        except StoreFullError as e:
            for entry in entries:
                if entry.droppable:
                    entry.refuse(str(e))
            entries = [entry for entry in entries if not entry.droppable]
            # A Tick if there is nothing else: only a write tells that there is space again.
            events = [event for entry in entries for event in entry.events]
            events = ticks + events or [Tick(now)]
            await self._write(events, {})
        self._carry_out(self._apply(events))
        return entries

    async def _decide(self, now: float) -> None:
        try:
            decision = self.engine.decide(now)
        except Exception:
            log.exception("policy %s failed; running jobs go on", self.engine.state.config.policy)
            self.engine.state.delta.full = self.engine.state.dirty = (
                True  # it must not miss what it was just told
            )
            self._not_before = now + RETRY_POLICY
            return
        self.engine.wake_at = max(self.engine.wake_at, now + SHORTEST_WAKE)
        if decision is not None:
            decided = Decided(now, decision)
            await self._write([decided], {})
            before = self.engine.state.decisions
            self._carry_out(self._apply([decided]))
            if self.engine.state.decisions == before:  # it contradicts the State, and was refused
                log.error("policy %s or its placer made a faulty decision", self.engine.state.config.policy)
                self._decide_anew(now)

    def _decide_anew(self, now: float) -> None:
        """After a failure: later, and looking at everything, since what was told of the changes is lost."""
        self.engine.state.delta.full = self.engine.state.dirty = True
        self._not_before = now + RETRY_POLICY

    def _apply(self, events: Sequence[AnyEvent]) -> list[Action]:
        actions: list[Action] = []
        for event in events:
            self._applied += 1
            made = try_apply(self.engine.state, event)
            try:
                self.history.note(event)
                if made is not None:
                    actions += made
                    self._see(self._applied, event)
            except Exception:
                log.exception("a fault of Haibun's after %r", event)
        return actions

    def _carry_out(self, actions: list[Action]) -> None:
        if not actions:
            return
        try:
            self._act(actions)
        except Exception:
            log.exception("a fault of Haibun's in carrying out %r", actions)

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    # --- the store ---------------------------------------------------------------------------------------------------

    async def _write(
        self, events: Sequence[AnyEvent], specs: Mapping[str, str], *, droppable: bool = False
    ) -> None:
        """Append, and try again until it succeeds. A full store raises where something is ``droppable``."""
        jobs, attempts = self.history.take()
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(
                    self._thread, lambda: self.store.append(events, specs, jobs=jobs, attempts=attempts)
                )
            except StoreError as e:
                if isinstance(e, _FATAL) or self._stopping:
                    raise
                self._degrade(str(e))
                if isinstance(e, StoreFullError) and droppable:
                    self.history.give_back(jobs, attempts)
                    raise
                await self._clock.sleep(RETRY_STORE)
            else:
                if self.degraded is not None:
                    log.warning("the store can be written again")
                self.degraded = None
                return

    def _degrade(self, why: str) -> None:
        """The store cannot be written just now: users are told so, also those who wait already."""
        if self.degraded is None:
            log.error("%s. Running jobs go on, nothing new is accepted", why)
        self.degraded = why
        self._refuse(lambda entry: entry.droppable, why)

    def _refuse(self, which: Callable[[_Entry], bool], why: str) -> None:
        for entry in self._inbox:
            if which(entry):
                entry.refuse(why)
        self._inbox = [entry for entry in self._inbox if not which(entry)]

    async def _snapshot(self) -> None:
        """Keep the State; rows that it will not tell of again are written before."""
        if self._applied != self.store.last_seq:
            return  # events are in the journal that are not in the State: the next start reads them
        if not self.closing:
            await self._retire()
        if self.history.pending:
            await self._write([], {})
        blob, self._snapshot_at = snapshot.dump(self.engine.state), self._applied
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self.store.snapshot, self._applied, blob)
        except _FATAL:
            raise
        except StoreError as e:
            log.warning("no snapshot could be written: %s", e)

    async def _retire(self) -> None:
        """Ended jobs beyond the newest KEEP_ENDED leave the State, unless one that has not ended names them."""
        jobs = self.engine.state.jobs
        c = jobs.columns
        ended = [
            (float(c.ended_at[row]), job) for job, row in jobs.row_of.items() if c.state[row] >= SUCCEEDED
        ]
        if len(ended) <= KEEP_ENDED + KEEP_ENDED // 4:
            return
        if self.history.pending:  # their last rows: nothing can make them once they are gone
            await self._write([], {})
        needed = self._needed()
        old = [job for _, job in sorted(ended)[: len(ended) - KEEP_ENDED] if job not in needed]
        if not old:
            return
        event = JobsRetired(self.now(), tuple(old))
        await self._write([event], {})
        self._carry_out(self._apply([event]))

    def _needed(self) -> set[JobId]:
        """Jobs that others wait for, or will once what has been put is applied."""
        state = self.engine.state
        waiting = [state.jobs.job(row) for row in state.active_rows().tolist()]
        waiting += [e.job for entry in self._inbox for e in entry.events if isinstance(e, JobSubmitted)]
        return {name for job in waiting for name in (*job.depends_on, *job.after)}


def _check_writable(events: Sequence[AnyEvent]) -> None:
    """What users ask is encoded once before it is taken in: an event without an encoding would end the controller."""
    for event in events:
        try:
            codec.encode(event)
        except (OverflowError, ValueError, TypeError) as e:
            raise AdmissionError(f"that cannot be written to the journal: {e}") from None
