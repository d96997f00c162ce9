"""The controller: what users, operators and agents ask of the live system. The HTTP server is a thin layer over it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from haibun.core import snapshot
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
    JobSubmitted,
    NodeDrained,
    NodeResumed,
    ThroughputMeasured,
)
from haibun.core.life import apply
from haibun.core.state import State
from haibun.core.vocabulary import RUNNING, SUCCEEDED, Job, JobId, JobState
from haibun.run import describe
from haibun.run.agents import Agents, Channel
from haibun.run.clock import Clock, RealClock
from haibun.run.errors import AmbiguousError, ConflictError, NotFoundError, UnavailableError
from haibun.run.launching import Folders
from haibun.run.ledger import Ledger
from haibun.run.logs import log_files
from haibun.run.submission import make_jobs
from haibun.run.views import ExplanationView, JobDetail, JobView, NodeView, Overview
from haibun.spec.job import JobSpec
from haibun.store import JobFilter, Store, StoreError

log = logging.getLogger("haibun.controller")

RECENT_ENDED = 20  # ended jobs shown by ``top``
STREAM_BACKLOG = 10_000  # events a slow reader may fall behind before it is cut off


@dataclass(frozen=True, slots=True)
class LogFile:
    """The log of one rank of one attempt."""

    epoch: int
    rank: int
    path: Path


def restore(store: Store, rates: Rates) -> State:
    """The State that the journal tells of: the last sound snapshot, and the events since."""
    loaded = store.load()
    state = snapshot.load(loaded.snapshot, rates) if loaded.snapshot is not None else State(rates)
    for event in loaded.events:
        with contextlib.suppress(ValueError):  # passed over when it happened, too: see Ledger
            apply(state, event)
    return state


class Controller:
    """Engine, journal and agents of one live cluster. ``start`` before anything else."""

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
        self.state = restore(store, rates)
        self.engine = Engine(self.state, stages)
        self._config = config
        self._specs: dict[JobId, JobSpec] = {}
        self._streams: set[asyncio.Queue[dict[str, Any] | None]] = set()
        self.ledger = Ledger(self.engine, store, self.clock, self._act, self._see)
        self.agents = Agents(self.state, self.ledger, self.folders, self._spec, self.clock)
        self._next_id = self.state.jobs.highest + 1
        self._tasks: list[asyncio.Task[None]] = []
        self._measured: dict[JobId, float] = {}

    async def start(self) -> None:
        """Begin to work."""
        self._tasks = [asyncio.create_task(self.ledger.run()), asyncio.create_task(self.agents.watch())]
        was = self.state.config
        now = (self._config.policy, self._config.params, self._config.placer)
        if self.state.sequence == 0 or (was.policy, was.params, was.placer) != now:
            await self.ledger.put([msgspec.structs.replace(self._config, at=self.clock.wall())])

    async def stop(self) -> None:
        """Write what is left and a snapshot; close the store."""
        for queue in self._streams:
            queue.put_nowait(None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.ledger.close()
        self.store.close()

    async def shutdown(self, keep_jobs: bool, grace: float = 15.0) -> None:
        """Stop deciding; unless ``keep_jobs``, have all agents end their attempts (with a checkpoint) and themselves."""
        self.ledger.closing = True
        if keep_jobs:
            return
        self.agents.shut_down(grace)
        for _ in range(round((grace + 5.0) / 0.1)):
            if self.agents.connected == 0:
                return
            await self.clock.sleep(0.1)

    # --- what users ask ----------------------------------------------------------------------------------------------

    async def submit(self, specs: Sequence[JobSpec], workdir: str) -> list[JobId]:
        """Accept jobs, all or none; arrays become one job for each index. Durable when it returns.

        Names in ``depends_on`` are ids, or names of jobs in this submission or before.

        Raises:
            AdmissionError: a job can never run here, or depends on one that is not known.
            UnavailableError: nothing can be written just now; nothing was accepted.
        """
        made = make_jobs(specs, self._next_id, workdir, self._needed)
        together = [job.id for job, _ in made]
        for job, _ in made:
            self._admit(job, together)
        self._specs |= {job.id: spec for job, spec in made}
        self._next_id += len(made)
        now = self.clock.wall()
        texts = {job.id: spec.to_json() for job, spec in made}
        await self.ledger.put([JobSubmitted(now, job) for job, _ in made], texts, droppable=True)
        return together

    def _needed(self, name: str) -> JobId | None:
        """The id of a job to wait for; None for one that has succeeded and left the State."""
        return None if self._ended_well(name) else self.resolve(name)

    def _ended_well(self, name: str) -> bool:
        """Whether that is the id of a job that succeeded and has left the State."""
        if name in self.state.jobs.row_of:
            return False
        rows = self.store.jobs(JobFilter(ids=(name,)))
        return bool(rows) and rows[0].state == "succeeded"

    def _admit(self, job: Job, together: list[JobId]) -> None:
        try:
            admit(self.state, msgspec.structs.replace(job, depends_on=[d for d in job.depends_on if d not in together]))
        except AdmissionError as e:
            raise AdmissionError(f"job {job.name or job.id!r}: {e}") from None

    async def cancel(self, job: str) -> None:
        """End a job for good. One that has ended already stays as it is."""
        await self._user(JobCancelled(self.clock.wall(), self.resolve(job)))

    async def pause(self, job: str, hold: bool = False) -> None:
        """Stop a job for now, with its work saved and its devices given up; ``hold``: keep process and devices.

        Raises:
            ConflictError: it has ended, or is not running and so cannot be held.
        """
        found = self.resolve(job)
        state = self._state_of(found)
        if state >= SUCCEEDED:
            raise ConflictError(f"job {found} has {JobState(state).name.lower()}: it cannot be paused")
        if hold and state != RUNNING:
            raise ConflictError(f"job {found} is {JobState(state).name.lower()}: only a running job can be held")
        await self._user(JobPaused(self.clock.wall(), found, hold))

    async def resume(self, job: str) -> None:
        """Let a paused job go on.

        Raises:
            ConflictError: it has ended.
        """
        found = self.resolve(job)
        state = self._state_of(found)
        if state >= SUCCEEDED:
            raise ConflictError(f"job {found} has {JobState(state).name.lower()}: it cannot be resumed")
        await self._user(JobResumed(self.clock.wall(), found))

    async def set_priority(self, job: str, priority: int) -> None:
        """Change a job's priority; the next decision goes by it."""
        await self._user(JobReprioritised(self.clock.wall(), self.resolve(job), priority))

    async def drain(self, node: str, evict: bool = True) -> None:
        """Start nothing new on a node; with ``evict``, move what runs there."""
        await self._user(NodeDrained(self.clock.wall(), self._node(node), evict))

    async def undrain(self, node: str) -> None:
        """Let a drained node take work again."""
        await self._user(NodeResumed(self.clock.wall(), self._node(node)))

    async def _user(self, event: AnyEvent) -> None:
        await self.ledger.put([event], droppable=True)

    # --- what they want to know --------------------------------------------------------------------------------------

    def resolve(self, name: str) -> JobId:
        """The id that an id or a name stands for: of several jobs of that name, the one that has not ended.

        Raises:
            NotFoundError: there is none. AmbiguousError: there are several.
        """
        jobs = self.state.jobs
        if name in jobs.row_of:
            return name
        named = [job.id for job in jobs.jobs if job is not None and job.name == name]
        alive = [i for i in named if jobs.columns.state[jobs.row_of[i]] < SUCCEEDED]
        found = alive or named[-1:]
        if len(found) == 1:
            return found[0]
        if found:
            raise AmbiguousError(f"{len(found)} jobs are named {name!r}: say which by id, of {', '.join(found[:10])}")
        known = [*jobs.row_of, *(job.name for job in jobs.jobs if job is not None and job.name)]
        raise NotFoundError("job", name, known)

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
        state, table = self.state, self.state.jobs
        views = [
            describe.job_view(state, self.agents, row, self._specs.get(job))
            for job, row in table.row_of.items()
            if (not states or JobState(int(table.columns.state[row])).name.lower() in states)
            and (tenant is None or table.job(row).tenant == tenant)
            and (name is None or table.job(row).name == name)
        ]
        where = JobFilter(states=tuple(sorted(states or ())), tenant=tenant, name=name)
        rows = await self._reading(lambda: self.store.jobs(where, limit + len(table), after))
        views += [
            describe.old_job_view(row, self._specs.get(row.id)) for row in rows if row.id not in table.row_of
        ]
        views.sort(key=lambda view: (view.submitted, len(view.id), view.id))
        if after is not None:
            at = next((i for i, view in enumerate(views) if view.id == after), len(views))
            views = views[:at]
        return views[-limit:]

    async def job(self, name: str) -> JobDetail:
        """All of one job."""
        row = None
        try:
            found = self.resolve(name)
        except NotFoundError:
            rows = await self._reading(lambda: self.store.jobs(JobFilter(ids=(name,))))
            if not rows:
                raise
            found, row = name, rows[0]
        attempts = await self._reading(lambda: self.store.attempts(found))
        spec = self._spec(found)
        number = self.state.jobs.row_of.get(found)
        if number is not None:
            view = describe.job_view(self.state, self.agents, number, spec)
            needs = self.state.jobs.job(number).depends_on
        else:
            assert row is not None
            view, needs = describe.old_job_view(row, spec), ()
        return JobDetail(
            view,
            tuple(describe.attempt_view(self.state, a) for a in attempts),
            spec.to_json() if spec is not None else "{}",
            str(self.folders.logs(found)),
            str(self.folders.checkpoints(found)),
            tuple(needs),
        )

    async def explain(self, job: str) -> ExplanationView:
        """Why a job is where it is."""
        return describe.explanation_view(self.engine, self.resolve(job), self.clock.wall())

    async def nodes(self) -> list[NodeView]:
        """All nodes ever known, in order of joining."""
        return [describe.node_view(self.state, self.agents, n) for n in range(self.state.fleet.nodes.n)]

    async def overview(self) -> Overview:
        """The whole at a glance."""
        state = self.state
        c = state.jobs.columns
        rows = state.active_rows().tolist()
        ended = [row for row in state.jobs.row_of.values() if c.state[row] >= SUCCEEDED]
        rows += sorted(ended, key=lambda row: float(c.ended_at[row]))[-RECENT_ENDED:]
        counts: dict[str, int] = {}
        for row in state.jobs.row_of.values():
            key = JobState(int(c.state[row])).name.lower()
            counts[key] = counts.get(key, 0) + 1
        views = [describe.job_view(state, self.agents, r, self._specs.get(state.jobs.job(r).id)) for r in rows]
        return Overview(
            now=self.clock.wall(),
            policy=state.config.policy,
            params=dict(state.config.params),
            nodes=tuple(await self.nodes()),
            jobs=tuple(views),
            counts=counts,
            events=state.sequence,
            decisions=state.decisions,
            degraded=self.ledger.degraded,
        )

    def log_files(self, job: str, epoch: int | None = None, rank: int | None = None) -> list[LogFile]:
        """Log files of a job: of one attempt (the last if None is named and one is there), of one rank or all."""
        files = [
            LogFile(int(path.parent.name.removeprefix("epoch-")), int(path.stem.removeprefix("rank-")), path)
            for path in log_files(self.folders.logs(self.resolve(job)), epoch)
            if path.stem.removeprefix("rank-").isdigit()
        ]
        return [f for f in files if rank is None or f.rank == rank]

    async def wait(self, job: str, timeout: float | None = None) -> JobView:
        """The job once it has ended.

        Raises:
            TimeoutError: it has not within ``timeout`` seconds.
        """
        found = self.resolve(job)
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

    def _act(self, actions: list[Any]) -> None:
        if actions:
            self.agents.act(actions)

    def _see(self, event: AnyEvent) -> None:
        if self._streams:
            told = {"seq": self.state.sequence, "kind": kind_of(event), **msgspec.to_builtins(event)}
            for queue in list(self._streams):
                try:
                    queue.put_nowait(told)
                except asyncio.QueueFull:
                    self._streams.discard(queue)
        if isinstance(event, AttemptProgressed) and event.rate:
            self._measure(event)

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
        self.ledger.put([ThroughputMeasured(self.clock.wall(), job.model, kind, len(gang), rate, together)])

    def _spec(self, job: JobId) -> JobSpec | None:
        spec = self._specs.get(job)
        if spec is None:
            text = self.store.spec(job)
            if text is not None:
                spec = self._specs[job] = JobSpec.from_json(text)
        return spec

    def _state_of(self, job: JobId) -> int:
        row = self.state.jobs.row_of.get(job)
        return SUCCEEDED if row is None else int(self.state.jobs.columns.state[row])

    def _node(self, name: str) -> str:
        if self.state.fleet.names.get(name) is None:
            raise NotFoundError("node", name, self.state.fleet.names.names)
        return name

    async def _reading(self, read: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self.ledger.thread, read)
        except StoreError as e:
            raise UnavailableError(str(e)) from e
