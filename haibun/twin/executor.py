"""The simulated executor: it makes actions true on a clock of its own."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping

import msgspec

from haibun.core.actions import Action, ContinueAttempt, HoldAttempt, StartAttempt, StopAttempt
from haibun.core.events import (
    AnyEvent,
    AttemptFailed,
    AttemptHeld,
    AttemptStarted,
    AttemptStopped,
    AttemptSucceeded,
)
from haibun.core.vocabulary import JobId, StopMode
from haibun.twin.costs import Costs

_CHECKPOINT = StopMode.CHECKPOINT

Happening = AttemptStarted | AttemptHeld | AttemptStopped | AttemptSucceeded


class _Attempt:
    """One life of a job in the twin. ``done`` steps were done at ``since``; ``rate`` steps/s since, 0 while still."""

    __slots__ = ("devices", "done", "epoch", "rate", "running", "since")

    def __init__(self, epoch: int, devices: tuple[int, ...], done: float, rate: float) -> None:
        self.epoch, self.devices, self.done, self.rate = epoch, devices, done, rate
        self.since, self.running = math.inf, False

    def steps(self, now: float) -> float:
        """Steps done by ``now``."""
        return self.done + self.rate * (now - self.since) if self.running else self.done


class TwinExecutor:
    """Takes actions, gives back the events that they lead to, each when it is due.

    ``perform`` returns what happens at once; the rest waits in a heap. What a later action makes untrue (the end of an
    attempt that was stopped) is dropped when it comes due.

    Args:
        costs: of every job; ``by_model``: of jobs of some models instead.
        faults: failures from outside, to happen at their times: an attempt that then runs falls back to the fault's
            ``durable`` step; one that is over, or has not begun, is spared.
    """

    def __init__(
        self,
        costs: Costs | None = None,
        by_model: Mapping[str, Costs] | None = None,
        faults: Iterable[AttemptFailed] = (),
    ) -> None:
        self.costs = costs or Costs()
        self._by_model = by_model or {}
        self._costs_of: dict[JobId, Costs] = {}
        self._faults = sorted(faults, key=lambda fault: -fault.at)  # the next one last
        self.lengths: dict[JobId, float] = {}
        self._attempts: dict[JobId, _Attempt] = {}
        self._last_devices: dict[JobId, tuple[int, ...]] = {}
        self._heap: list[tuple[float, int, Happening]] = []
        self._order = 0

    def expect(self, job: JobId, steps: float, model: str | None = None) -> None:
        """The true length of a job, in steps, and the model that its costs go by."""
        self.lengths[job] = steps
        if model is not None and (own := self._by_model.get(model)) is not None:
            self._costs_of[job] = own

    def next_due(self) -> float:
        """When the next event is due; inf if none is."""
        heap = self._heap
        while heap and not self._true(heap[0][2]):
            heapq.heappop(heap)
        due = heap[0][0] if heap else math.inf
        return min(due, self._faults[-1].at) if self._faults else due

    def take_due(self, now: float) -> list[AnyEvent]:
        """Events due by ``now``, in the order in which they were caused."""
        due: list[AnyEvent] = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            event = heapq.heappop(heap)[2]
            if self._true(event):
                self._happens(event, now)
                due.append(event)
        while self._faults and self._faults[-1].at <= now:
            due += self._strike(self._faults.pop(), now)
        return due

    def perform(self, actions: list[Action], now: float) -> list[AnyEvent]:
        """Carry actions out; returns events that happen at once (costs of zero)."""
        at_once: list[AnyEvent] = []
        for action in actions:
            kind = type(action)
            if kind is StartAttempt:
                self._start(action, now, at_once)  # type: ignore[arg-type]
            elif kind is StopAttempt:
                self._stop(action, now, at_once)  # type: ignore[arg-type]
            elif kind is HoldAttempt:
                self._hold(action, now, at_once)  # type: ignore[arg-type]
            elif kind is ContinueAttempt:
                self._later(now, AttemptStarted(now, action.job, action.epoch), now, at_once)
        return at_once

    def _start(self, action: StartAttempt, now: float, at_once: list[AnyEvent]) -> None:
        job = action.job
        costs = self._costs_of.get(job, self.costs) if self._costs_of else self.costs
        delay = costs.resume if action.moved else costs.start
        if action.moved and costs.move and self._last_devices.get(job) != action.devices:
            delay += costs.move
        if costs.move:
            self._last_devices[job] = action.devices
        self._attempts[job] = _Attempt(action.epoch, action.devices, action.durable, action.rate)
        self._later(now + delay, AttemptStarted(now + delay, job, action.epoch), now, at_once)

    def _stop(self, action: StopAttempt, now: float, at_once: list[AnyEvent]) -> None:
        attempt = self._attempts.get(action.job)
        if attempt is None or attempt.epoch != action.epoch:
            return
        steps = attempt.steps(now)
        attempt.done, attempt.running = steps, False
        costs = self._costs_of.get(action.job, self.costs)
        delay = costs.checkpoint if action.mode == _CHECKPOINT else 0.0
        event = AttemptStopped(now + delay, action.job, action.epoch, steps, steps)
        self._later(now + delay, event, now, at_once)

    def _hold(self, action: HoldAttempt, now: float, at_once: list[AnyEvent]) -> None:
        attempt = self._attempts.get(action.job)
        if attempt is None or attempt.epoch != action.epoch or not attempt.running:
            return
        attempt.done, attempt.running = attempt.steps(now), False
        at_once.append(AttemptHeld(now, action.job, action.epoch, attempt.done))

    def _strike(self, fault: AttemptFailed, now: float) -> list[AnyEvent]:
        """A fault comes due: the failure, if it meets its attempt."""
        attempt = self._attempts.get(fault.job)
        if attempt is None or attempt.epoch != fault.epoch:
            return []
        steps = attempt.steps(now)
        del self._attempts[fault.job]
        return [msgspec.structs.replace(fault, at=now, step=steps, durable=min(fault.durable, steps))]

    def _later(self, at: float, event: Happening, now: float, at_once: list[AnyEvent]) -> None:
        if at <= now:
            self._happens(event, now)
            at_once.append(event)
        else:
            self._push(at, event)

    def _push(self, at: float, event: Happening) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, event))

    def _true(self, event: Happening) -> bool:
        """Whether a planned event still comes to pass."""
        attempt = self._attempts.get(event.job)
        if attempt is None or attempt.epoch != event.epoch:
            return False
        return type(event) is not AttemptSucceeded or (attempt.running and event.at >= attempt.since)

    def _happens(self, event: Happening, now: float) -> None:
        kind = type(event)
        job = event.job
        if kind is AttemptStarted:
            attempt = self._attempts[job]
            attempt.since, attempt.running = now, True
            if attempt.rate > 0.0:
                steps = self.lengths[job]
                costs = self._costs_of.get(job, self.costs) if self._costs_of else self.costs
                end = now + max(0.0, steps - attempt.done) / attempt.rate + costs.stop
                self._push(end, AttemptSucceeded(end, job, attempt.epoch, steps))
        elif kind is not AttemptHeld:
            del self._attempts[job]
