"""A run as events tell it: the live one from its journal, the twin's from a replay. Both come in the same form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from haibun.app import make_engine
from haibun.core.demand import Rates
from haibun.core.events import AnyEvent, AttemptFailed, Decided, JobSubmitted
from haibun.core.state import State
from haibun.core.vocabulary import Cluster, Job, JobId
from haibun.demo.profile import Profile
from haibun.twin.executor import TwinExecutor
from haibun.twin.replay import History, Replay


@dataclass(slots=True)
class Record:
    """What happened, live or in the twin, on one clock. ``events``: those of a live run."""

    state: State
    history: History
    events: list[AnyEvent] = field(default_factory=list)

    @property
    def jobs(self) -> list[Job]:
        """In order of submission."""
        return [job for job in self.state.jobs.jobs if job is not None]

    @property
    def zero(self) -> float:
        """When the first job was submitted."""
        return float(self.state.jobs.columns.submitted[: len(self.state.jobs)].min())

    def name(self, job: JobId) -> str:
        """A job's name."""
        return self.state.jobs.job(self.state.jobs.row_of[job]).name

    def starts(self) -> list[str]:
        """Attempts in the order in which they started, as ``name`` or ``name, attempt 2``."""
        return [
            self.name(s.job) + (f", attempt {s.epoch}" if s.epoch > 1 else "") for s in self.history.spans
        ]

    def completion(self, job: JobId) -> float:
        """Seconds from submission to end; nan if it has not ended."""
        c, row = self.state.jobs.columns, self.state.jobs.row_of[job]
        return float(c.ended_at[row] - c.submitted[row])


def about(event: AnyEvent) -> set[JobId]:
    """The jobs that an event is about."""
    if isinstance(event, JobSubmitted):
        return {event.job.id}
    if isinstance(event, Decided):
        decision = event.decision
        return {job for place in decision.place for job in place.jobs} | {e.job for e in decision.evict}
    job = getattr(event, "job", None)
    return {job} if isinstance(job, str) else set()


def fold(
    events: Iterable[AnyEvent], jobs: Sequence[JobId], cluster: Cluster, policy: str, rates: Rates
) -> Record:
    """The part of a journal that is about ``jobs``, applied to a State of its own.

    ``apply`` is deterministic, so that the State and the actions are those that the live controller had.
    """
    mine = set(jobs)
    kept = [event for event in events if about(event) & mine]
    engine = make_engine(cluster, policy, rates=rates)
    record = Record(engine.state, History())
    for event in kept:
        actions = engine.apply(event)
        record.history.see([event], actions, event.at, engine.state.queued)
        record.events.append(event)
    return record


def replayed(live: Record, cluster: Cluster, policy: str, profile: Profile) -> Record:
    """The jobs of a live run in the twin, submitted when they were, and struck by the same faults."""
    submitted = [event for event in live.events if isinstance(event, JobSubmitted)]
    faults = [event for event in live.events if isinstance(event, AttemptFailed)]
    return simulate([e.job for e in submitted], [e.at for e in submitted], faults, cluster, policy, profile)


def simulate(
    jobs: Sequence[Job],
    times: Sequence[float],
    faults: Sequence[AttemptFailed],
    cluster: Cluster,
    policy: str,
    profile: Profile,
) -> Record:
    """Jobs submitted at ``times``, in the twin."""
    engine = make_engine(cluster, policy, rates=profile.table())
    executor = TwinExecutor(by_model=profile.costs, faults=faults)
    history = History()
    Replay(engine, iter(jobs), times, executor, history).run()
    return Record(engine.state, history)
