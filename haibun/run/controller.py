"""The controller: what users, operators and agents ask of the live system. The HTTP server is a thin layer over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from haibun.core.actions import Action
from haibun.core.admission import AdmissionError, admit
from haibun.core.codec import kind_of
from haibun.core.demand import Rates
from haibun.core.engine import Engine, Stages
from haibun.core.events import (
    AnyEvent,
    AttemptProgressed,
    Configured,
    JobCancelled,
    JobPaused,
    JobReprioritised,
    JobResumed,
    JobsRetired,
    JobSubmitted,
    NodeDrained,
    NodeResumed,
    ThroughputMeasured,
)
from haibun.core.vocabulary import RUNNING, SUCCEEDED, Job, JobId, JobState
from haibun.run import describe
from haibun.run.agents import Agents
from haibun.run.catalogue import Catalogue
from haibun.run.clock import Clock, RealClock
from haibun.run.errors import ConflictError, NotFoundError, UnavailableError
from haibun.run.launching import Folders
from haibun.run.ledger import Ledger, restore
from haibun.run.lines import Channel
from haibun.run.logs import log_files
from haibun.run.specs import Specs
from haibun.run.submission import make_jobs
from haibun.run.views import ExplanationView, JobDetail, JobView, NodeView, Overview
from haibun.spec.job import MAX_PRIORITY, JobSpec
from haibun.store import JobFilter, JobRow, Store

log = logging.getLogger("haibun.controller")

_ENDED = {"cancelled": "been cancelled"}
STREAM_BACKLOG = 10_000  # events a slow reader may fall behind before it is cut off


@dataclass(frozen=True, slots=True)
class LogFile:
    """The log of one rank of one attempt."""

    epoch: int
    rank: int
    path: Path


class Controller:
    """Engine, journal and agents of one live cluster. ``start`` before anything else.

    Raises:
        StoreError: the journal cannot be read.
    """

    def __init__(
        self,
        store: Store,
        stages: Stages,
        config: Configured,
        home: Path,
        rates: Rates,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or RealClock()
        self.store, self.home = store, home
        self.folders = Folders(home)
        self.state, history = restore(store, rates)
        self.engine = Engine(self.state, stages)
        self.specs = Specs(store)
        self.ledger = Ledger(self.engine, store, self.clock, self._act, self._see, history)
        self.agents = Agents(self.state, self.ledger, self.folders, self.specs.get, self.clock)
        self.catalogue = Catalogue(self.state, store, self.agents, self.specs)
        self.failed = asyncio.Event()  # no more events can be written: the process must end; see ``error``
        self.error: BaseException | None = None
        self._config = config
        self._streams: set[asyncio.Queue[dict[str, Any] | None]] = set()
        # A journal begun anew must not give a new job the folder, and so the checkpoints, of an old one.
        self._next_id = max(self.state.jobs.highest, self.folders.highest()) + 1
        self._measured: dict[JobId, float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to work."""
        await self.catalogue.reading(lambda: self.specs.load(list(self.state.jobs.row_of)))
        was = self.state.config
        now = (self._config.policy, self._config.params, self._config.placer)
        first = None
        if self.state.sequence == 0 or (was.policy, was.params, was.placer) != now:
            first = self.ledger.put([msgspec.structs.replace(self._config, at=self.ledger.now())])
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self.agents.watch())]
        if first is not None:
            await first

    async def _run(self) -> None:
        try:
            await self.ledger.run()
        except Exception as e:  # fail-stop: what runs goes on, and the next controller finds it
            self.error = e
            self.failed.set()

    async def stop(self) -> None:
        """Write what is left and a snapshot; close the store."""
        self._end_streams()
        self.ledger.stop()
        if self._tasks:
            running, watching = self._tasks
            await asyncio.gather(running, return_exceptions=True)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if self.error is None:
            await self.ledger.close()
        await self.catalogue.close()
        self.store.close()

    async def shutdown(self, keep_jobs: bool, grace: float = 15.0) -> None:
        """Stop deciding; unless ``keep_jobs``, have agents save and end their attempts, and themselves."""
        self.ledger.closing = True
        self._end_streams()
        if keep_jobs:
            return
        self.agents.shut_down(grace)
        until = self.clock.now() + grace + 5.0
        while self.agents.connected and self.clock.now() < until:
            await self.clock.sleep(0.05)

    # --- what users ask ----------------------------------------------------------------------------------------------

    async def submit(self, specs: Sequence[JobSpec], workdir: str) -> list[JobId]:
        """Accept jobs, all or none; arrays become one job for each index. Durable when it returns.

        Names in ``depends_on`` are ids, or names of jobs in this submission or before.

        Raises:
            AdmissionError: a job can never run here, or depends on one that is not known or did not succeed.
            NotFoundError, AmbiguousError: what it depends on is not known, or not which.
            UnavailableError: nothing can be written just now; nothing was accepted.
        """
        mine = {spec.name for spec in specs}
        before = {
            name: await self._needed(name) for spec in specs for name in spec.depends_on if name not in mine
        }
        made = make_jobs(specs, self._next_id, workdir, lambda name: before[name])
        together = {job.id for job, _ in made}
        for job, _ in made:
            self._admit(job, together)
        texts = {job.id: spec.to_json() for job, spec in made}
        now = self.ledger.now()
        accepted = self.ledger.put([JobSubmitted(now, job) for job, _ in made], texts, droppable=True)
        self._next_id += len(made)
        self.specs.keep({job.id: spec for job, spec in made})
        try:
            await asyncio.shield(accepted)  # who goes away while waiting has submitted all the same
        except UnavailableError:
            self.specs.forget(together)
            raise
        return [job.id for job, _ in made]

    async def _needed(self, name: str) -> JobId | None:
        """The id of a job to wait for; None for one that has succeeded and left the State."""
        found, row = await self.catalogue.find(name)
        if row is None:
            return found
        if row.state != "succeeded":
            how = _ENDED.get(row.state, row.state)
            raise AdmissionError(f"it depends on job {name}, which has {how}: it could never start")
        return None

    def _admit(self, job: Job, together: set[JobId]) -> None:
        others = [d for d in job.depends_on if d not in together]
        try:
            admit(self.state, msgspec.structs.replace(job, depends_on=tuple(others), after=()))
        except AdmissionError as e:
            raise AdmissionError(f"job {job.name or job.id!r}: {e}") from None

    async def cancel(self, job: str) -> None:
        """End a job for good. One that has ended already stays as it is."""
        found, row = await self.catalogue.find(job)
        if row is None:
            await self._user(JobCancelled(self.ledger.now(), found))

    async def pause(self, job: str, hold: bool = False) -> None:
        """Stop a job for now, with its work saved and its devices given up; ``hold``: keep process and devices.

        Raises:
            ConflictError: it has ended, or is not running and so cannot be held.
        """
        found = await self._not_ended(job, "paused")
        state = JobState(self._state_of(found))
        if hold and state != RUNNING:
            raise ConflictError(f"job {found} is {state.name.lower()}: only a running job can be held")
        await self._user(JobPaused(self.ledger.now(), found, hold))

    async def resume(self, job: str) -> None:
        """Let a paused job go on.

        Raises:
            ConflictError: it has ended.
        """
        await self._user(JobResumed(self.ledger.now(), await self._not_ended(job, "resumed")))

    async def set_priority(self, job: str, priority: int) -> None:
        """Change a job's priority, from -MAX_PRIORITY to MAX_PRIORITY; the next decision goes by it.

        Raises:
            ConflictError: it has ended. AdmissionError: the number lies outside.
        """
        if abs(priority) > MAX_PRIORITY:
            raise AdmissionError(
                f"a priority lies between -{MAX_PRIORITY} and {MAX_PRIORITY}, not {priority}"
            )
        found = await self._not_ended(job, "given another priority")
        await self._user(JobReprioritised(self.ledger.now(), found, priority))

    async def _not_ended(self, name: str, asked: str) -> JobId:
        found, row = await self.catalogue.find(name)
        where = row.state if row is not None else JobState(self._state_of(found)).name.lower()
        if row is not None or self._state_of(found) >= SUCCEEDED:
            raise ConflictError(f"job {found} has {_ENDED.get(where, where)}: it cannot be {asked}")
        return found

    async def drain(self, node: str, evict: bool = True) -> None:
        """Start nothing new on a node; with ``evict``, move what runs there."""
        await self._user(NodeDrained(self.ledger.now(), self._node(node), evict))

    async def undrain(self, node: str) -> None:
        """Let a drained node take work again."""
        await self._user(NodeResumed(self.ledger.now(), self._node(node)))

    async def _user(self, event: AnyEvent) -> None:
        await asyncio.shield(self.ledger.put([event], droppable=True))

    # --- what they want to know --------------------------------------------------------------------------------------

    def resolve(self, name: str) -> JobId:
        """The id that an id or a name stands for; see ``Catalogue.resolve``."""
        return self.catalogue.resolve(name)

    async def jobs(
        self,
        states: set[str] | None = None,
        tenant: str | None = None,
        name: str | None = None,
        limit: int = 1000,
        after: JobId | None = None,
    ) -> list[JobView]:
        """The newest ``limit`` jobs, oldest first; those that left the State come from the tables.

        ``after`` is the oldest job of the page before: the next page is older.
        """
        return await self.catalogue.page(states or set(), tenant, name, limit, after)

    async def job(self, name: str) -> JobDetail:
        """All of one job."""
        found, row = await self.catalogue.find(name)
        attempts = await self.catalogue.reading(lambda: self.store.attempts(found))
        spec = self.specs.get(found) or await self.catalogue.reading(lambda: self.specs.read(found))
        number = self.state.jobs.row_of.get(found)
        if number is not None:
            view = describe.job_view(self.state, self.agents, number, spec)
            needs = self.state.jobs.job(number).depends_on
        else:  # it has left the State, just now or long ago
            rows = [row] if row is not None else await self.catalogue.reading(lambda: self._row(found))
            view, needs = describe.old_job_view(rows[0], spec, len(attempts)), ()
        return JobDetail(
            view,
            tuple(describe.attempt_view(self.state, a) for a in attempts),
            spec.to_json() if spec is not None else "{}",
            str(self.folders.logs(found)),
            str(self.folders.checkpoints(found)),
            tuple(needs),
        )

    def _row(self, job: JobId) -> list[JobRow]:
        return self.store.jobs(JobFilter(ids=(job,)))

    async def explain(self, job: str) -> ExplanationView:
        """Why a job is where it is."""
        found, row = await self.catalogue.find(job)
        if row is not None:
            return describe.old_explanation(row, self.state)
        return describe.explanation_view(self.engine, found, self.ledger.now())

    async def nodes(self) -> list[NodeView]:
        """All nodes ever known, in order of joining."""
        return [describe.node_view(self.state, self.agents, n) for n in range(self.state.fleet.nodes.n)]

    async def overview(self) -> Overview:
        """The whole at a glance."""
        return describe.overview(
            self.state, self.agents, self.specs.get, self.ledger.now(), self.ledger.degraded
        )

    def log_files(self, job: str, epoch: int | None = None, rank: int | None = None) -> list[LogFile]:
        """Log files of a job: of one attempt, the latest where None is named; of one rank or all."""
        gone = job.isdecimal() and job not in self.state.jobs.row_of and int(job) <= self.state.jobs.highest
        folder = self.folders.logs(job if gone else self.resolve(job))
        files = [
            LogFile(int(path.parent.name.removeprefix("epoch-")), int(path.stem.removeprefix("rank-")), path)
            for path in log_files(folder, epoch)
            if path.stem.removeprefix("rank-").isdigit()
        ]
        return [f for f in files if rank is None or f.rank == rank]

    async def wait(self, job: str, timeout: float | None = None) -> JobView:
        """The job once it has ended.

        Raises:
            TimeoutError: it has not within ``timeout`` seconds.
        """
        found, _ = await self.catalogue.find(job)
        async with asyncio.timeout(timeout):
            while self._state_of(found) < SUCCEEDED:
                await self.ledger.changed()
        return (await self.job(found)).job

    async def stream(self) -> AsyncIterator[dict[str, Any]]:
        """Events from now on, as they are applied; ends when the controller does, or where the reader is too slow."""
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(STREAM_BACKLOG)
        self._streams.add(queue)
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._streams.discard(queue)

    async def connect_agent(self, channel: Channel, address: str | None = None) -> None:
        """Talk to one agent until its connection ends."""
        await self.agents.serve(channel, address)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _act(self, actions: list[Action]) -> None:
        self.agents.act(actions)

    def _see(self, number: int, event: AnyEvent) -> None:
        if self._streams:
            self._tell_streams({"seq": number, "kind": kind_of(event), **msgspec.to_builtins(event)})
        if isinstance(event, AttemptProgressed) and event.rate:
            self._measure(event)
        elif isinstance(event, JobsRetired):
            self.specs.forget(event.jobs)
            for job in event.jobs:
                self._measured.pop(job, None)

    def _tell_streams(self, told: dict[str, Any]) -> None:
        for queue in list(self._streams):
            if queue.full():  # too slow: it reads what it has, and then that this is the end
                self._streams.discard(queue)
                queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(told)

    def _end_streams(self) -> None:
        for queue in list(self._streams):
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)
        self._streams.clear()

    def _measure(self, event: AttemptProgressed) -> None:
        """What a profiled model's job runs at goes to the profile; a change of less than a tenth is no news."""
        row = self.state.jobs.row_of.get(event.job)
        if row is None or row not in self.state.jobs.gangs:
            return
        job, gang = self.state.jobs.job(row), self.state.jobs.gangs[row]
        rate = event.rate or 0.0
        before = self._measured.get(event.job, 0.0)
        if job.model is None or abs(rate - before) < 0.1 * before:
            return
        self._measured[event.job] = rate
        kind = self.state.fleet.types.names[self.state.jobs.columns.type[row]]
        together = len(self.state.fleet.node_names(gang)) == 1
        self.ledger.put([ThroughputMeasured(self.ledger.now(), job.model, kind, len(gang), rate, together)])

    def _state_of(self, job: JobId) -> int:
        row = self.state.jobs.row_of.get(job)
        return SUCCEEDED if row is None else int(self.state.jobs.columns.state[row])

    def _node(self, name: str) -> str:
        if self.state.fleet.names.get(name) is None:
            raise NotFoundError("node", name, self.state.fleet.names.names)
        return name
