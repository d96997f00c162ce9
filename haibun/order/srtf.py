"""Shortest remaining time first, with preemption."""

from __future__ import annotations

from typing import ClassVar

from haibun.core.stages import Keys, Rows
from haibun.core.view import View
from haibun.order.keyed import Keyed, columns


class Srtf(Keyed):
    """Jobs run in order of priority, then of the time they have left to run.

    Live, that time is (declared steps - steps done) / profiled steps/s; a job that declares no steps, or whose speed is
    not known, ranks behind those of its priority that do. In the twin it comes from the trace: an oracle (a trace's
    duration, or its steps at the table's throughput), as in the papers that use SRTF as a bound.
    """

    name: ClassVar[str] = "srtf"
    moving: ClassVar[bool] = True

    def keys(self, view: View, rows: Rows, now: float) -> Keys:
        """Priority, seconds left, submission."""
        j = view.jobs
        return columns(-j.priority[rows], view.remaining(rows, now), j.submitted[rows])
