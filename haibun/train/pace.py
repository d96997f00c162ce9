"""Keeps the host at most one step ahead of its GPU, so that a step boundary means something.

Kernel launches are asynchronous: without this, a rank's Python code may pass many step boundaries before
its device has ended the first of these steps, and with it the collective that ties the ranks together (see
``agreement.py``). One step of run-ahead is enough to keep the device fed.
"""

from __future__ import annotations

from typing import Any

RUN_AHEAD = 1  # steps by which a boundary on the host may precede the end of that step on the device


class Pace:
    """An event a step; waits for the event of the step before."""

    def __init__(self, device: Any) -> None:
        import torch

        # A blocking wait sleeps: the default spins, and would eat the core that the data loader needs.
        self._events = [torch.cuda.Event(blocking=True) for _ in range(RUN_AHEAD + 1)]  # type: ignore[no-untyped-call]
        self._stream = torch.cuda.current_stream(device)
        self._n = 0

    def boundary(self) -> None:
        """Mark the end of a step, and wait until the device has ended the step before it."""
        events = self._events
        events[self._n % len(events)].record(self._stream)
        self._n += 1
        events[self._n % len(events)].synchronize()  # not yet recorded: returns at once
