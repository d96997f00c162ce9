"""First in, first out, by priority: the baseline of every cluster."""

from __future__ import annotations

from typing import ClassVar

from haibun.core.stages import Keys, Rows
from haibun.core.view import View
from haibun.order.keyed import Keyed, columns, not_running


class Fifo(Keyed):
    """Jobs run in order of priority, then of submission. The first that does not fit blocks all behind it.

    A job takes devices only from jobs of strictly lower priority.
    """

    name: ClassVar[str] = "fifo"
    strict: ClassVar[bool] = True

    def keys(self, view: View, rows: Rows, now: float) -> Keys:
        """Priority, running before waiting, submission."""
        j = view.jobs
        return columns(-j.priority[rows], not_running(view, rows), j.submitted[rows])
