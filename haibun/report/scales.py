"""From data to pixels, and where the ticks of an axis go."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from haibun.report.units import DAY, HOUR, MINUTE

_TIME_STEPS = (
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(MINUTE * m for m in (1, 2, 5, 10, 15, 30)),
    *(HOUR * h for h in (1, 2, 3, 6, 12)),
    *(DAY * d for d in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
)
_DECADES = (0.01, 0.1, 1.0, 10.0, MINUTE, 10 * MINUTE, HOUR, 10 * HOUR, 2 * DAY, 10 * DAY, 100 * DAY)
_WITHIN_DECADES = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0),
    *(MINUTE * m for m in (0.5, 1, 2, 5, 10, 20)),
    *(HOUR * h for h in (0.5, 1, 2, 5, 10)),
    *(DAY * d for d in (1, 2, 5, 10, 20, 50, 100)),
)


class Scale(Struct, frozen=True):
    """Maps ``low..high`` of the data to ``start..end`` in pixels; ``log``: by their logarithms."""

    low: float
    high: float
    start: float
    end: float
    ticks: Sequence[float]
    write: Callable[[float], str]
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value, which is held within the scale."""
        v = min(max(value, self.low), self.high)
        if self.log:
            part = math.log(v / self.low) / math.log(self.high / self.low)
        else:
            part = (v - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)


def time_ticks(low: float, high: float, zero: float | None = None, most: int = 9) -> list[float]:
    """Round distances from ``zero`` (``low``, where it is not given) that lie within ``low..high``."""
    origin = low if zero is None else zero
    step = next((s for s in _TIME_STEPS if (high - low) / s <= most), (high - low) / most)
    first = math.ceil((low - origin) / step - 1e-9)
    last = math.floor((high - origin) / step + 1e-9)
    return [origin + i * step for i in range(first, last + 1)]


def log_time_ticks(low: float, high: float) -> list[float]:
    """Ticks at what people call round: 1 s, 10 s, 1 min, ...; closer ones where those would be few."""
    for times in (_DECADES, _WITHIN_DECADES):
        inside = [t for t in times if low <= t <= high]
        if len(inside) >= 4:
            return inside
    return inside


def nice_ticks(high: float, most: int = 5, whole: bool = False) -> list[float]:
    """0, and at most ``most`` round steps up to the first one at or above ``high``; ``whole``: of whole numbers."""
    if high <= 0:
        return [0.0, 1.0]
    raw = high / most
    power = 10.0 ** math.floor(math.log10(raw))
    steps = [m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9)]
    step = next((s for s in steps if s.is_integer() or not whole), 1.0)
    return [i * step for i in range(math.ceil(high / step - 1e-9) + 1)]
