"""Tiresias: discretised two-dimensional least attained service (Gu et al., NSDI 2019, sections 3.2 and 4.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haibun.core.decision import MemoryChange
from haibun.core.stages import KEYS, Keys, Placed, Ranked, Rows
from haibun.core.state import Delta
from haibun.core.view import View
from haibun.order.keyed import Due, Keyed
from haibun.order.lane import Lanes

BASE = "tiresias.base"  # device-seconds had when last promoted; service counts from there
QUEUE_KEY = 1  # the column of the key that holds the queue
SLACK = 1e-2  # device-seconds, seconds: floats of Unix time may bring a wake-up this much too early


class Tiresias(Keyed):
    """Jobs that have had little service (devices x time) run before those that have had much.

    Service is discretised into queues, so that jobs do not take turns for ever: a job starts in queue 0 and is demoted
    when its service reaches the next of ``queue_limits``. In a queue, jobs run in order of their first start, then of
    submission: a newcomer takes nothing from its peers. A job that has waited ``promote_knob`` times as long as it has
    run is promoted to queue 0 and its service counted anew (the paper's PROMOTEKNOB; 0: never).

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
        self._limits = limits.tolist()
        self.promote_knob = promote_knob
        self._rows = np.zeros(64, np.int64)  # scratch for ``due``
        self._promoted: dict[int, float] = {}  # this decision's, which the State does not have yet

    def rank(self, view: View, delta: Delta, now: float) -> Ranked:
        """The ranking as of ``now``."""
        self._promoted = {}
        return super().rank(view, delta, now)

    def keys(self, view: View, rows: Rows, now: float) -> Keys:
        """Priority, queue, first start, submission."""
        j = view.jobs
        service = (j.service, j.width, j.launched, j.as_of)
        jobs = (j.priority, j.first_start, j.submitted)
        keys: Keys = _keys(rows, jobs, service, self._base(view, rows), self.queue_limits, now)
        return keys

    def _base(self, view: View, rows: Rows) -> NDArray[np.float64]:
        base = view.memory(BASE)[rows]
        if self._promoted:
            base[:] = [
                self._promoted.get(r, old) for r, old in zip(rows.tolist(), base.tolist(), strict=True)
            ]
        return base

    def wake(self, view: View, placed: list[Placed], now: float) -> float:
        """The first demotion among jobs that now get a gang."""
        service, base = view.jobs.service, view.memory(BASE)
        first = math.inf
        for p in placed:  # they wait: their service stands still until they start
            had = float(service[p.row]) - self._promoted.get(p.row, float(base[p.row]))
            limit = next((limit for limit in self._limits if had + SLACK < limit), math.inf)
            first = min(first, now + (limit - had) / len(p.devices))
        return first

    def due(self, view: View, lanes: Lanes, now: float) -> Due:
        """Demote and promote; wake at the next demotion or promotion."""
        j, running, waiting = view.jobs, lanes.running, lanes.waiting
        if len(self._rows) < len(running) + len(waiting):
            self._rows = np.zeros(2 * (len(running) + len(waiting)), np.int64)
        demoted, promoted, wake = _due(
            (running, waiting, lanes.keys),
            (j.service, j.width, j.launched, j.as_of, j.queued_at, j.demand),
            (view.memory(BASE), view.demands.least),
            self.queue_limits,
            self.promote_knob or math.inf,
            now,
            self._rows,
        )
        if not demoted and not promoted:
            return Due(wake_at=wake)
        rows = self._rows[: demoted + promoted].copy()
        if not promoted:
            return Due(rows, wake_at=wake)
        up = rows[demoted:]
        had = j.service[up].tolist()
        self._promoted = dict(zip(up.tolist(), had, strict=True))
        return Due(rows, (MemoryChange(BASE, view.job_ids(up.tolist()), tuple(had)),), wake)


@njit(cache=True)
def _queue(had: float, limits: Any) -> int:
    """The queue of a job that has had so many device-seconds since it was last promoted."""
    queue = 0
    while queue < len(limits) and had + SLACK >= limits[queue]:
        queue += 1
    return queue


@njit(cache=True)
def _keys(rows: Any, jobs: Any, service: Any, base: Any, limits: Any, now: float) -> Any:
    """Keys of some rows; ``base`` has a value for each of these."""
    priority, first_start, submitted = jobs
    had, width, launched, as_of = service
    keys = np.zeros((len(rows), KEYS))
    for i in range(len(rows)):
        row = rows[i]
        since = had[row] + width[row] * launched[row] * (now - as_of[row]) - base[i]
        keys[i, 0], keys[i, QUEUE_KEY] = -priority[row], _queue(since, limits)
        keys[i, 2] = np.inf if np.isnan(first_start[row]) else first_start[row]
        keys[i, 3] = submitted[row]
    return keys


@njit(cache=True)
def _due(lanes: Any, jobs: Any, more: Any, limits: Any, knob: float, now: float, rows: Any) -> Any:
    """Fills ``rows`` with those that are demoted, then those that are promoted; returns how many, and when the next is.

    Running jobs are demoted when their service has reached the limit of their queue, waiting ones promoted when they
    have waited long enough.
    """
    running, waiting, keys = lanes
    service, width, launched, as_of, queued_at, demand = jobs
    base, least = more
    demoted, promoted, wake = 0, 0, np.inf
    for row in running:
        had = service[row] + width[row] * launched[row] * (now - as_of[row]) - base[row]
        old = int(keys[row, QUEUE_KEY])
        new = max(old, _queue(had, limits))
        if new > old:
            rows[demoted] = row
            demoted += 1
        if new < len(limits) and launched[row]:
            wake = min(wake, now + (limits[new] - had) / width[row])
    for row in waiting:
        if keys[row, QUEUE_KEY] == 0.0:
            continue
        executed = (service[row] - base[row]) / least[demand[row]]
        when = queued_at[row] + knob * executed
        if when <= now + SLACK:
            rows[demoted + promoted] = row
            promoted += 1
        else:
            wake = min(wake, when)
    return demoted, promoted, wake
