"""How far an attempt is, read from its board, and when that is worth an event."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from haibun.core.events import AttemptProgressed
from haibun.run.clock import Clock
from haibun.run.protocol import Launch
from haibun.run.watch import Sight
from haibun.train.board import Board, Command, Phase

# Progress is journalled: often enough for policies that look at remaining work, seldom enough for the
# journal.
PROGRESS_EVERY = 5.0
# The rate is that of the last half minute: past the warm-up, and quick to follow a change of neighbours.
RATE_WINDOW = 30.0


@dataclass(slots=True)
class Rate:
    """Steps per second over a sliding window."""

    points: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, beat: float, step: int) -> None:
        """A step ended at ``beat``."""
        if self.points and step <= self.points[-1][1]:
            return
        self.points.append((beat, step))
        while beat - self.points[0][0] > RATE_WINDOW and len(self.points) > 2:
            self.points.popleft()

    def pause(self) -> None:
        """Time that now passes is not the job's: start anew."""
        self.points.clear()

    @property
    def value(self) -> float | None:
        """Steps per second; None until two steps are seen."""
        if len(self.points) < 2:
            return None
        (t0, s0), (t1, s1) = self.points[0], self.points[-1]
        return (s1 - s0) / (t1 - t0) if t1 > t0 else None


class Progress:
    """The board of one attempt on this node, as the agent reads and writes it."""

    def __init__(self, board: Board, launch: Launch, clock: Clock, received: float) -> None:
        self.board, self._launch, self._clock, self._received = board, launch, clock, received
        self.rate = Rate()
        self._told: tuple[float, float] | None = None  # step and durable of the last event
        self._told_at = -PROGRESS_EVERY

    def attached(self, slot: int) -> bool:
        """Whether the worker in a slot has attached."""
        return bool(self.board.slots[slot].attached)

    @property
    def any_attached(self) -> bool:
        """Whether any worker has attached."""
        return any(s.attached for s in self.board.slots)

    @property
    def step(self) -> float:
        """Steps done in all, by every attached worker; 0 if none is attached."""
        return float(min((int(s.step) for s in self.board.slots if s.attached), default=0))

    @property
    def durable(self) -> float:
        """Steps safe in a checkpoint, whoever of the workers says so."""
        return max(self._launch.durable, *(float(s.durable) for s in self.board.slots))

    @property
    def total(self) -> float | None:
        """Declared steps."""
        declared = max(int(s.total) for s in self.board.slots)
        return float(declared) if declared >= 0 and self.any_attached else None

    @property
    def metrics(self) -> dict[str, float]:
        """The latest metrics of the first local worker that has any."""
        return next((m for s in self.board.slots if (m := s.read_metrics())), {})

    @property
    def first_step_after(self) -> float | None:
        """Seconds from the Start command to the end of the last worker's first step; None: not yet."""
        ends = [float(s.first_step) for s in self.board.slots if s.attached]
        return max(ends) - self._received if ends and all(ends) else None

    def phase(self, slot: int) -> Phase:
        """What a worker is doing."""
        return Phase(int(self.board.slots[slot].phase))

    def sight(self, slot: int, cpu: float | None = None, stopped: bool = False) -> Sight:
        """One worker, as the hang detection sees it."""
        s = self.board.slots[slot]
        return Sight(self.phase(slot), int(s.step), float(s.beat), cpu, stopped)

    def look(self) -> AttemptProgressed | None:
        """Take the board in; returns an event when the durable step moved, or the last one is old enough."""
        if not self.any_attached:
            return None
        step, durable = self.step, self.durable
        slowest = min((s for s in self.board.slots if s.attached), key=lambda s: int(s.step))
        if slowest.first_step:  # before it, a worker that restores jumps from step 0 to where it was
            self.rate.add(float(slowest.beat), int(step))
        now = self._clock.now()
        told = self._told or (0.0, self._launch.durable)
        if durable == told[1] and (step == told[0] or now - self._told_at < PROGRESS_EVERY):
            return None
        self._told, self._told_at = (step, durable), now
        return self.event()

    def event(self) -> AttemptProgressed:
        """Where it stands now."""
        job, epoch, at = self._launch.job, self._launch.epoch, self._clock.wall()
        return AttemptProgressed(
            at, job, epoch, self.step, durable=self.durable, rate=self.rate.value, total=self.total
        )

    def ask(self, command: Command, grace: float = 0.0) -> int:
        """Post a command for the workers, with ``grace`` seconds to obey (0: no deadline)."""
        return self.board.ask(command, self._clock.now() + grace if grace else 0.0)

    def obeyed(self, sequence: int, phase: Phase) -> bool:
        """Whether every attached worker has carried a command out and is in the phase that it asks for."""
        ready = [s for s in self.board.slots if s.attached]
        return all(int(s.done_seq) >= sequence and int(s.phase) == phase for s in ready)
