"""Replays a list of jobs through the engine in the twin, and keeps what reports need."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from haibun.core.actions import Action, StartAttempt
from haibun.core.engine import Engine
from haibun.core.events import (
    AnyEvent,
    AttemptFailed,
    AttemptStopped,
    AttemptSucceeded,
    JobSubmitted,
    Tick,
)
from haibun.core.vocabulary import Job, JobId
from haibun.twin.executor import TwinExecutor

MOST_ROUNDS_AT_ONCE = 10_000  # decisions at one instant; a policy that takes more preempts for ever

Progress = Callable[[int, int, float], None]


class ReplayError(RuntimeError):
    """The replay cannot go on: a fault of the policy or of the input, said in words."""


@dataclass(slots=True)
class Span:
    """One attempt on its devices; ``end`` nan while it lasts."""

    job: JobId
    epoch: int
    devices: tuple[int, ...]
    start: float
    end: float = math.nan
    outcome: str = "running"


@dataclass(slots=True)
class History:
    """What happened, for reports: attempts, and devices busy and jobs queued after each change."""

    spans: list[Span] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    _open: dict[JobId, Span] = field(default_factory=dict)
    _busy: int = 0

    def see(self, events: Sequence[AnyEvent], actions: Sequence[Action], now: float, queued: int) -> None:
        """Take note of one round."""
        for event in events:
            if isinstance(event, (AttemptStopped, AttemptSucceeded, AttemptFailed)):
                span = self._open.pop(event.job, None)
                if span is not None:
                    span.end = now
                    span.outcome = _OUTCOMES[type(event)]
                    self._busy -= len(span.devices)
        for action in actions:
            if isinstance(action, StartAttempt):
                span = Span(action.job, action.epoch, action.devices, now)
                self._open[action.job] = span
                self.spans.append(span)
                self._busy += len(action.devices)
        if self.times and self.times[-1] == now:
            self.busy[-1], self.queued[-1] = self._busy, queued
        else:
            self.times.append(now)
            self.busy.append(self._busy)
            self.queued.append(queued)


_OUTCOMES: dict[type, str] = {
    AttemptStopped: "preempted",
    AttemptSucceeded: "succeeded",
    AttemptFailed: "failed",
}


class Replay:
    """Drives one engine through the submission of ``jobs`` at ``times`` (seconds, ascending) until all have ended."""

    def __init__(
        self,
        engine: Engine,
        jobs: Iterator[Job],
        times: Sequence[float],
        executor: TwinExecutor | None = None,
        history: History | None = None,
    ) -> None:
        self.engine = engine
        self.executor = executor or TwinExecutor()
        self.history = history
        self._jobs = jobs
        self._times = times
        self._next = 0
        self.now = times[0] if len(times) else 0.0

    def run(self, progress: Progress | None = None, until: float = math.inf) -> None:
        """Run to the end, or to time ``until``.

        Raises:
            ReplayError: the policy preempts for ever, or jobs are left that can never start.
        """
        collecting = gc.isenabled()
        gc.disable()  # a replay makes millions of small values and no cycles
        try:
            self._run(progress, until)
        finally:
            if collecting:
                gc.enable()

    def _run(self, progress: Progress | None, until: float) -> None:
        count, engine, executor = len(self._times), self.engine, self.executor
        rounds, at_once = 0, 0
        while True:
            arrival = self._times[self._next] if self._next < count else math.inf
            now = min(arrival, executor.next_due(), engine.next_wake())
            if now > until:
                return
            if now == math.inf:
                self._check_finished()
                return
            at_once = at_once + 1 if now == self.now else 0
            if at_once > MOST_ROUNDS_AT_ONCE:
                raise ReplayError(
                    f"policy {engine.state.config.policy} wakes up for ever at time {now:.3f} s"
                )
            self.now = now
            events = executor.take_due(now)
            if arrival <= now:
                self._arrivals(now, events)
            self._round(events or [Tick(now)], now)
            rounds += 1
            if progress is not None and rounds % 4096 == 0:
                progress(self._next, count, now)

    def _arrivals(self, now: float, events: list[AnyEvent]) -> None:
        times, count = self._times, len(self._times)
        while self._next < count and times[self._next] <= now:
            job = next(self._jobs)
            self.executor.expect(job.id, job.total_steps or 0.0, job.model)
            events.append(JobSubmitted(now, job))
            self._next += 1

    def _round(self, events: list[AnyEvent], now: float) -> None:
        """One instant: events, decision, actions, and whatever these lead to at once."""
        engine, executor, history = self.engine, self.executor, self.history
        for _ in range(MOST_ROUNDS_AT_ONCE):
            actions = engine.handle(events, now)
            if history is not None:
                history.see(events, actions, now, engine.state.queued)
            if not actions:
                return
            events = executor.perform(actions, now)
            if not events:
                return
        policy = engine.state.config.policy
        raise ReplayError(f"policy {policy} changes its plan for ever at time {now:.3f} s")

    def _check_finished(self) -> None:
        left = self.engine.view.refresh().active()
        if len(left):
            ids = ", ".join(self.engine.view.job_ids(left[:5].tolist()))
            raise ReplayError(f"{len(left)} jobs can never start or never end, among them {ids}")
