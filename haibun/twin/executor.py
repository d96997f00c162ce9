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
    """One life of a job in the twin: ``done`` of ``length`` steps were done at ``since``, ``rate`` steps/s since then
    while it is ``running``. It ends at ``end`` if nothing comes between; a ``stopping`` one never runs again."""

    __slots__ = ("done", "durable", "end", "epoch", "length", "rate", "running", "since", "stopping")

    def __init__(self, epoch: int, done: float, length: float, rate: float) -> None:
        self.epoch, self.done, self.durable, self.length, self.rate = epoch, done, done, length, rate
        self.since = self.end = math.inf
        self.running = self.stopping = False

    def steps(self, now: float) -> float:
        """Steps done by ``now``."""
        return min(self.length, self.done + self.rate * (now - self.since)) if self.running else self.done

    def halt(self, now: float) -> None:
        """Stand still from now on."""
        self.done, self.running, self.end = self.steps(now), False, math.inf


class TwinExecutor:
    """Takes actions, gives back the events that they lead to, each when it is due.

    ``perform`` returns what happens at once; the rest waits in a heap. What a later action makes untrue (the end of an
    attempt that was stopped) is dropped when it comes due. A killed attempt falls back to what it started from.

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
                self._go_on(action, now, at_once)  # type: ignore[arg-type]
        return at_once

    def _start(self, action: StartAttempt, now: float, at_once: list[AnyEvent]) -> None:
        job = action.job
        costs = self._costs_of.get(job, self.costs) if self._costs_of else self.costs
        delay = costs.resume if action.moved else costs.start
        if action.moved and costs.move and self._last_devices.get(job) != action.devices:
            delay += costs.move
        if costs.move:
            self._last_devices[job] = action.devices
        length = self.lengths.get(job, math.inf)
        self._attempts[job] = _Attempt(action.epoch, action.durable, length, action.rate)
        self._later(now + delay, AttemptStarted(now + delay, job, action.epoch), now, at_once)

    def _stop(self, action: StopAttempt, now: float, at_once: list[AnyEvent]) -> None:
        attempt = self._attempts.get(action.job)
        if attempt is None or attempt.epoch != action.epoch:
            return
        attempt.halt(now)
        attempt.stopping = True
        saves = action.mode == _CHECKPOINT
        delay = self._costs_of.get(action.job, self.costs).checkpoint if saves else 0.0
        durable = attempt.done if saves else attempt.durable
        event = AttemptStopped(now + delay, action.job, action.epoch, attempt.done, durable)
        self._later(now + delay, event, now, at_once)

    def _hold(self, action: HoldAttempt, now: float, at_once: list[AnyEvent]) -> None:
        attempt = self._attempts.get(action.job)
        if attempt is None or attempt.epoch != action.epoch or not attempt.running:
            return
        attempt.halt(now)
        at_once.append(AttemptHeld(now, action.job, action.epoch, attempt.done))

    def _go_on(self, action: ContinueAttempt, now: float, at_once: list[AnyEvent]) -> None:
        attempt = self._attempts.get(action.job)
        if attempt is not None and attempt.epoch == action.epoch and not attempt.running:
            self._later(now, AttemptStarted(now, action.job, action.epoch), now, at_once)

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
        if type(event) is AttemptSucceeded:
            return event.at == attempt.end
        return type(event) is not AttemptStarted or not attempt.stopping

    def _happens(self, event: Happening, now: float) -> None:
        kind = type(event)
        job = event.job
        if kind is AttemptStarted:
            attempt = self._attempts[job]
            attempt.since, attempt.running = now, True
            if attempt.rate > 0.0:
                costs = self._costs_of.get(job, self.costs) if self._costs_of else self.costs
                attempt.end = now + max(0.0, attempt.length - attempt.done) / attempt.rate + costs.stop
                self._push(attempt.end, AttemptSucceeded(attempt.end, job, attempt.epoch, attempt.length))
        elif kind is not AttemptHeld:
            del self._attempts[job]
