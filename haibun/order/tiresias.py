"""Tiresias: discretised two-dimensional least attained service (Gu et al., NSDI 2019, sections 3.2 and 4.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numba import njit

from haibun.core.decision import MemoryChange
from haibun.core.stages import Keys, Rows
from haibun.core.view import View
from haibun.order.keyed import Due, Keyed, columns
from haibun.order.lane import Lanes

QUEUE, BASE = "tiresias.queue", "tiresias.base"
SLACK = 1e-3  # device-seconds, seconds: a wake-up computed in floats may come this much early


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
        if not len(limits) or limits[0] <= 0 or not (np.diff(limits) > 0).all():
            raise ValueError(f"queue_limits must be positive and ascend, not {queue_limits}")
        if not promote_knob >= 0:
            raise ValueError(f"promote_knob must be 0 or more, not {promote_knob}")
        self.queue_limits = limits
        self.promote_knob = promote_knob
        self._queue: dict[int, float] = {}  # this decision's moves, which the State does not have yet

    def keys(self, view: View, rows: Rows, now: float) -> Keys:
        """Priority, queue, first start, submission."""
        j = view.jobs
        queue: Any = view.memory(QUEUE)[rows]
        if self._queue:
            queue = [
                self._queue.get(row, old) for row, old in zip(rows.tolist(), queue.tolist(), strict=True)
            ]
        return columns(-j.priority[rows], queue, j.first_start[rows], j.submitted[rows])

    def due(self, view: View, lanes: Lanes, now: float) -> Due:
        """Demote and promote; wake at the next demotion or promotion."""
        j, queue, base = view.jobs, view.memory(QUEUE), view.memory(BASE)
        self._queue = {}
        demoted, to, wake = _demotions(
            lanes.running, (j.service, j.width, j.as_of), queue, base, self.queue_limits, now
        )
        promoted, service, wake_promoted = _promotions(
            lanes.waiting,
            (j.service, j.queued_at, j.demand),
            view.demands.least,
            queue,
            base,
            self.promote_knob or math.inf,
            now,
        )
        wake = min(wake, wake_promoted)
        rows = np.concatenate((demoted, promoted)) if len(promoted) else demoted
        if not len(rows):
            return Due(wake_at=wake)
        to = np.concatenate((to, np.zeros(len(promoted))))
        self._queue = dict(zip(rows.tolist(), to.tolist(), strict=True))
        memory = _change(view, QUEUE, rows, to) + _change(view, BASE, promoted, service)
        return Due(rows, memory, wake)


def _change(view: View, column: str, rows: Rows, values: Any) -> tuple[MemoryChange, ...]:
    if not len(rows):
        return ()
    return (MemoryChange(column, view.job_ids(rows.tolist()), tuple(values.tolist())),)


@njit(cache=True)
def _demotions(running: Any, jobs: Any, queue: Any, base: Any, limits: Any, now: float) -> Any:
    """Rows whose service has reached the limit of their queue, the queue it puts them into, and when the next will."""
    service, width, as_of = jobs
    rows = np.empty(len(running), np.int64)
    to = np.empty(len(running), np.float64)
    n, wake = 0, np.inf
    for row in running:
        q = int(queue[row])
        had = service[row] + width[row] * (now - as_of[row]) - base[row]
        new = q
        while new < len(limits) and had >= limits[new] - SLACK:
            new += 1
        if new > q:
            rows[n], to[n] = row, new
            n += 1
        if new < len(limits):
            wake = min(wake, now + (limits[new] - had) / width[row])
    return rows[:n], to[:n], wake


@njit(cache=True)
def _promotions(waiting: Any, jobs: Any, least: Any, queue: Any, base: Any, knob: float, now: float) -> Any:
    """Rows that have waited long enough, the service they have had in all, and when the next will have."""
    service, queued_at, demand = jobs
    rows = np.empty(len(waiting), np.int64)
    had = np.empty(len(waiting), np.float64)
    n, wake = 0, np.inf
    for row in waiting:
        if queue[row] == 0:
            continue
        executed = (service[row] - base[row]) / least[demand[row]]
        if executed <= 0.0:
            continue
        when = queued_at[row] + knob * executed
        if when <= now + SLACK:
            rows[n], had[n] = row, service[row]
            n += 1
        else:
            wake = min(wake, when)
    return rows[:n], had[:n], wake
