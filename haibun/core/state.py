"""All that the scheduler knows. It changes only by ``life.apply``."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haibun.core.columns import Floats
from haibun.core.demand import Demands, Rates
from haibun.core.fleet import Fleet
from haibun.core.jobs import JobTable
from haibun.core.vocabulary import SUCCEEDED


class UnitRates:
    """One step a second for every gang: total steps are then seconds of duration. For traces without models."""

    def rate(self, model: str | None, device_type: str, devices: int, consolidated: bool) -> float:
        """Always 1."""
        return 1.0

    def observe(self, model: str, device_type: str, devices: int, consolidated: bool, rate: float) -> None:
        """Nothing is learnt."""

    def to_rows(self) -> Sequence[tuple[Any, ...]]:
        """None."""
        return ()

    def restore(self, rows: Sequence[Sequence[Any]]) -> None:
        """Nothing to take back."""


class LearntRates:
    """Rates as they are measured, the last one counts; nothing is known of a gang never measured."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, int, bool], float] = {}

    def rate(self, model: str | None, device_type: str, devices: int, consolidated: bool) -> float:
        """The last measured rate, or nan."""
        return self.known.get((model or "", device_type, devices, consolidated), math.nan)

    def observe(self, model: str, device_type: str, devices: int, consolidated: bool, rate: float) -> None:
        """Remember a measured rate."""
        self.known[model, device_type, devices, consolidated] = rate

    def to_rows(self) -> Sequence[tuple[Any, ...]]:
        """(model, device type, devices, consolidated, rate) of all that was measured."""
        return [(*key, rate) for key, rate in self.known.items()]

    def restore(self, rows: Sequence[Sequence[Any]]) -> None:
        """Take back what ``to_rows`` gave."""
        for model, device_type, devices, consolidated, rate in rows:
            self.observe(model, device_type, devices, consolidated, rate)


@dataclass(slots=True)
class Delta:
    """What has changed since the last decision. A hint: a policy may always look at everything.

    ``full`` says that everything may have changed (after a restart, or a change of policy).
    ``rows`` may name a row more than once.
    """

    full: bool = True
    capacity: bool = True
    rows: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Config:
    """The policy and placer in force."""

    policy: str = "fifo"
    params: dict[str, Any] = field(default_factory=dict)
    placer: str = "consolidated"


class Memory:
    """What the policy remembers of each job: float columns by name, as long as the job columns; 0 when fresh."""

    def __init__(self) -> None:
        self.columns: dict[str, Floats] = {}

    def column(self, name: str, rows: int) -> Floats:
        """The column, at least ``rows`` long."""
        column = self.columns.get(name)
        if column is None or len(column) < rows:
            longer = np.zeros(max(64, 2 * rows))
            if column is not None:
                longer[: len(column)] = column
            column = self.columns[name] = longer
        return column

    def forget(self, row: int) -> None:
        """The row is used for another job from now on."""
        for column in self.columns.values():
            if row < len(column):
                column[row] = 0.0


class State:
    """Cluster, jobs, plan, policy memory. ``now`` is the time of the last event."""

    def __init__(self, rates: Rates | None = None) -> None:
        self.now = -math.inf
        self.fleet = Fleet()
        self.jobs = JobTable()
        self.demands = Demands()
        self.rates: Rates = rates if rates is not None else LearntRates()
        self.config = Config()
        self.memory = Memory()
        self.delta = Delta()
        self.dirty = True  # something happened that a decision should look at
        self.awaiting_release: dict[int, None] = {}  # rows of planned gangs whose devices are not free yet
        self.timers: list[tuple[float, int, int]] = []  # (time, row, epoch): a back-off or a walltime ends
        self.queued = 0
        self.decisions = 0
        self.sequence = 0  # events applied

    def touch(self, row: int, decide: bool = True) -> None:
        """The row has changed; ``decide``: in a way that a decision should look at."""
        self.delta.rows.append(row)
        if decide:
            self.dirty = True

    def capacity_changed(self) -> None:
        """Nodes came or went, or the profile changed."""
        self.delta.capacity = True
        self.dirty = True
        self.demands.stale = True

    def take_delta(self) -> Delta:
        """The delta since the last call; a new one begins."""
        delta, self.delta = self.delta, Delta(full=False, capacity=False)
        self.dirty = False
        if self.demands.stale:
            self.demands.rebuild(self.fleet, self.rates)
        return delta

    def set_timer(self, at: float, row: int) -> None:
        """Ask to be looked at again; void if the job's epoch has changed by then."""
        heapq.heappush(self.timers, (at, row, int(self.jobs.columns.epoch[row])))

    def drop_timers(self, row: int) -> None:
        """Forget the timers of a row that will be used for another job."""
        self.timers = [timer for timer in self.timers if timer[1] != row]
        heapq.heapify(self.timers)

    def next_timer(self) -> float:
        """When the next timer is due; inf if none is set. Void ones are dropped."""
        while self.timers:
            if self.is_set(self.timers[0]):
                return self.timers[0][0]
            heapq.heappop(self.timers)
        return math.inf

    def is_set(self, timer: tuple[float, int, int]) -> bool:
        """Whether a timer is not void."""
        _, row, epoch = timer
        c = self.jobs.columns
        return bool(c.epoch[row] == epoch and c.state[row] < SUCCEEDED)

    def active_rows(self) -> NDArray[np.int64]:
        """Rows of all jobs that have not ended, ascending."""
        states = self.jobs.columns.state[: self.jobs.columns.n]
        return np.flatnonzero(states < SUCCEEDED)
