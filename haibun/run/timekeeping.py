"""The time that events bear: wall-clock that never goes back and never stands still."""

from __future__ import annotations

from haibun.run.clock import Clock

# Ahead of the wall clock, time runs a little slower until that has caught up: a back-off of ten seconds then takes
# eleven, while a clock that stood still would keep it waiting for as long as the wall clock was set back.
CATCHING_UP = 0.9


class Timekeeper:
    """Unix time, but monotonic, from ``start`` on at the earliest: the State never sees time go back.

    Where the wall clock is set back (or the last controller ran on one that was ahead), time goes on from where it was.
    """

    def __init__(self, clock: Clock, start: float) -> None:
        self._clock = clock
        self._at = clock.now()
        self._time = max(start, clock.wall())

    def now(self) -> float:
        """Seconds since 1970, by the clock of this host."""
        at = self._clock.now()
        elapsed, self._at = at - self._at, at
        self._time = max(self._clock.wall(), self._time + CATCHING_UP * elapsed)
        return self._time
