"""Tiresias: discretised two-dimensional least attained service (Gu et al., NSDI 2019, sections 3.2 and 4.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numba import njit

from haibun.core.decision import MemoryChange
from haibun.core.stages import Keys, Ranked, Rows
from haibun.core.state import Delta
from haibun.core.view import View
from haibun.order.keyed import Due, Keyed, columns
from haibun.order.lane import Lanes

BASE = "tiresias.base"  # device-seconds had when last promoted; service counts from there
QUEUE_KEY = 1  # the column of the key that holds the queue
SLACK = 1e-2  # device-seconds, seconds: floats of Unix time may bring a wake-up this much too early


class Tiresias(Keyed):
    """Jobs that have had little service (devices x time) run before those that have had much.

    Service is discretised into queues, so that jobs do not take turns for ever: a job starts in queue 0 and is demoted
    when its service reaches the next of ``queue_limits``. In a queue, jobs run in order of their first start, then of
    submission, and do not preempt each other. A job that has waited ``promote_knob`` times as long as it has run is
    promoted to queue 0 and its service counted anew (the paper's PROMOTEKNOB; 0: never).

    Args:
        queue_limits: device-seconds at which a job leaves queue 0, 1, ...; ascending.
        promote_knob: waiting time over running time at which a job is promoted.
    """

    name: ClassVar[str] = "tiresias"

    def __init__(self, queue_limits: Sequence[float] = (3600.0, 36000.0), promote_knob: float = 8.0) -> None:
        super().__init__()
        limits = np.array(queue_limits, np.float64, ndmin=1)
        if not len(limits) or not limits[0] > 0 or not (np.diff(limits) > 0).all():
            raise ValueError(f"queue_limits must be positive and ascend, not {queue_limits}")
        if not promote_knob >= 0:
            raise ValueError(f"promote_knob must be 0 or more, not {promote_knob}")
        self.queue_limits = limits
        self.promote_knob = promote_knob
        self._promoted: dict[int, float] = {}  # this decision's, which the State does not have yet

    def rank(self, view: View, delta: Delta, now: float) -> Ranked:
        """The ranking as of ``now``."""
        self._promoted = {}
        return super().rank(view, delta, now)

    def keys(self, view: View, rows: Rows, now: float) -> Keys:
        """Priority, queue, first start, submission."""
        j = view.jobs
        base: Any = view.memory(BASE)[rows]
        if self._promoted:
            base = [
                self._promoted.get(row, old) for row, old in zip(rows.tolist(), base.tolist(), strict=True)
            ]
        queue = np.searchsorted(self.queue_limits, view.service(rows, now) - base + SLACK, side="right")
        return columns(-j.priority[rows], queue, j.first_start[rows], j.submitted[rows])

    def due(self, view: View, lanes: Lanes, now: float) -> Due:
        """Demote and promote; wake at the next demotion or promotion."""
        j, base = view.jobs, view.memory(BASE)
        service = (j.service, j.width, j.launched, j.as_of)
        demoted, wake = _demotions(lanes.running, lanes.keys, service, base, self.queue_limits, now)
        waits = (j.service, j.queued_at, j.demand, view.demands.least)
        knob = self.promote_knob or math.inf
        promoted, had, wake_promoted = _promotions(lanes.waiting, lanes.keys, waits, base, knob, now)
        wake = min(wake, wake_promoted)
        if not len(promoted):
            return Due(demoted, wake_at=wake)
        self._promoted = dict(zip(promoted.tolist(), had.tolist(), strict=True))
        change = MemoryChange(BASE, view.job_ids(promoted.tolist()), tuple(had.tolist()))
        return Due(np.concatenate((demoted, promoted)), (change,), wake)


@njit(cache=True)
def _demotions(running: Any, keys: Any, jobs: Any, base: Any, limits: Any, now: float) -> Any:
    """Rows whose service has reached the limit of their queue, and when the next will."""
    service, width, launched, as_of = jobs
    rows = np.empty(len(running), np.int64)
    n, wake = 0, np.inf
    for row in running:
        had = service[row] + width[row] * launched[row] * (now - as_of[row]) - base[row]
        queue = int(keys[row, QUEUE_KEY])
        new = queue
        while new < len(limits) and had + SLACK >= limits[new]:
            new += 1
        if new > queue:
            rows[n] = row
            n += 1
        if new < len(limits) and launched[row]:
            wake = min(wake, now + (limits[new] - had) / width[row])
    return rows[:n], wake


@njit(cache=True)
def _promotions(waiting: Any, keys: Any, jobs: Any, base: Any, knob: float, now: float) -> Any:
    """Rows that have waited long enough, the service they have had in all, and when the next will have."""
    service, queued_at, demand, least = jobs
    rows = np.empty(len(waiting), np.int64)
    had = np.empty(len(waiting), np.float64)
    n, wake = 0, np.inf
    for row in waiting:
        if keys[row, QUEUE_KEY] == 0.0:
            continue
        executed = (service[row] - base[row]) / least[demand[row]]
        when = queued_at[row] + knob * executed
        if when <= now + SLACK:
            rows[n], had[n] = row, service[row]
            n += 1
        else:
            wake = min(wake, when)
    return rows[:n], had[:n], wake
