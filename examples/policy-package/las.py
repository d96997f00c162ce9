"""Least attained service, over devices and time: whoever has had least runs first."""

from __future__ import annotations

import math
from typing import ClassVar

from haibun.core.stages import Keys, Placed, Rows
from haibun.core.view import View
from haibun.order.keyed import Due, Keyed, columns
from haibun.order.lane import Lanes

LATE = 1e-3  # seconds: woken on the dot, a job could be a rounding error short of its quantum


class Las(Keyed):
    """Jobs run in order of the whole quanta of device-seconds that they have had, then of submission.

    Args:
        quantum: device-seconds. Smaller is fairer, and takes more turns.
    """

    name: ClassVar[str] = "las"
    moving: ClassVar[bool] = True  # keys of running jobs change as they run

    def __init__(self, quantum: float = 3600.0) -> None:
        super().__init__()
        if not 0.0 < quantum < math.inf:
            raise ValueError(f"quantum must be a number of device-seconds above 0, not {quantum}")
        self.quantum = quantum

    def keys(self, view: View, rows: Rows, now: float) -> Keys:
        return columns(
            -view.jobs.priority[rows], view.service(rows, now) // self.quantum, view.jobs.submitted[rows]
        )

    def due(self, view: View, lanes: Lanes, now: float) -> Due:
        left = self.quantum - view.service(lanes.running, now) % self.quantum
        return Due(wake_at=now + LATE + float((left / view.jobs.width[lanes.running]).min(initial=math.inf)))

    def wake(self, view: View, placed: list[Placed], now: float) -> float:
        return now + LATE + self.quantum / max(len(p.devices) for p in placed)
