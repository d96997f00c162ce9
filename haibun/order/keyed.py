"""Policies that are a sort key: say what a job's key is, and the ranking is kept up from what changed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haibun.core.decision import MemoryChange
from haibun.core.stages import KEYS, Keys, Placed, Ranked, Ranking, Rows
from haibun.core.state import Delta
from haibun.core.view import View
from haibun.core.vocabulary import RUNNING, STARTING
from haibun.order.lane import Lanes


def columns(*parts: Any) -> Keys:
    """Keys from up to KEYS columns; nan (not known) ranks last."""
    keys = np.zeros((len(parts[0]), KEYS))
    for k, part in enumerate(parts):
        keys[:, k] = part
    return np.fmin(keys, math.inf, out=keys)  # fmin passes over nan


class Keyed:
    """Base of policies whose ranking is a sort by ``keys``, smallest first.

    A subclass gives ``name`` and ``keys``. Keys of waiting jobs are looked at when the job changes; where they change
    with time alone, override ``due``, which is asked after the lanes are up to date. ``moving``: keys of running jobs
    change as they run. ``strict``: a blocked job blocks those behind it. Priority comes first in every shipped policy;
    use ``-view.jobs.priority[rows]``.
    """

    name: ClassVar[str]
    strict: ClassVar[bool] = False
    moving: ClassVar[bool] = False

    def __init__(self) -> None:
        self._lanes = Lanes()

    def keys(self, view: View, rows: Rows, now: float) -> Keys:
        """One key a row, shape (len(rows), KEYS): see ``columns``."""
        raise NotImplementedError(f"policy {self.name} must say what its keys are")

    def due(self, view: View, lanes: Lanes, now: float) -> Due:
        """Jobs whose key changes with time alone, what to remember, and when to look again."""
        return _NOTHING_DUE

    def rank(self, view: View, delta: Delta, now: float) -> Ranked:
        """The ranking as of ``now``."""
        lanes = self._lanes
        lanes.reserve(len(view.jobs.state))
        if delta.full or delta.capacity:  # what is known of nodes and speeds is part of keys
            lanes.clear()
            self._move(view, view.active(), now)
        elif delta.rows:
            self._move(view, np.array(delta.rows, np.int64), now)
        due = self.due(view, lanes, now)
        if len(due.rows):
            self._move(view, due.rows, now)
        if self.moving and len(lanes.running):
            lanes.rekey_running(self.keys(view, lanes.running, now))
        ranking = Ranking(lanes.waiting, lanes.running, lanes.keys, self.strict)
        return Ranked(ranking, due.memory, due.wake_at)

    def wake(self, view: View, placed: list[Placed], now: float) -> float:
        """When to ask again on account of jobs that now get a gang: never, where keys do not change with time."""
        return math.inf

    def _move(self, view: View, rows: Rows, now: float) -> None:
        j = view.jobs
        self._lanes.move(rows, self.keys(view, rows, now), j.state, j.preemptible)


_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Due:
    """What time has changed. See ``Keyed.due``."""

    rows: Rows = field(default_factory=lambda: _NO_ROWS)
    memory: tuple[MemoryChange, ...] = ()
    wake_at: float | None = None


_NOTHING_DUE = Due()


def not_running(view: View, rows: Rows) -> NDArray[np.bool_]:
    """1 for jobs without a gang, 0 for those with one: as a key column it keeps peers from being displaced."""
    state = view.jobs.state[rows]
    without: NDArray[np.bool_] = (state != STARTING) & (state != RUNNING)
    return without
