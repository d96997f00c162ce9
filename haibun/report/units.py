"""Numbers for people: durations, counts, shares. None and nan are 'not known', and written as a dash."""

from __future__ import annotations

import math
from collections.abc import Callable

UNKNOWN = "–"

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def duration(seconds: float | None) -> str:
    """Two units at most: '0.25 s', '42 s', '3 min 05 s', '5 h 12 min', '12 d 3 h'."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    sign, s = ("-", -seconds) if seconds < 0 else ("", seconds)
    if s < 10:
        return f"{sign}{s:.3g} s"
    if round(s) < MINUTE:
        return f"{sign}{s:.0f} s"
    whole = round(s)
    if whole < HOUR:
        return f"{sign}{whole // 60} min {whole % 60:02} s"
    minutes = round(s / 60)
    if minutes < 24 * 60:
        return f"{sign}{minutes // 60} h {minutes % 60:02} min"
    hours = round(s / 3600)
    return f"{sign}{hours // 24} d {hours % 24} h"


def tick(seconds: float) -> str:
    """One unit, for an axis: '30 s', '5 min', '2 h', '1.5 d'."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if abs(seconds) >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


def moment(seconds: float) -> str:
    """A time since the start, to the minute: '3 d 13:30', '13:30 h'; below an hour as ``tick`` has it."""
    if seconds < HOUR:
        return tick(seconds)
    minutes = round(seconds / MINUTE)
    days, clock = minutes // 1440, f"{minutes // 60 % 24:02}:{minutes % 60:02}"
    return f"{days} d {clock}" if days else f"{clock} h"


def clock(longest: float) -> Callable[[float], str]:
    """How to write times of one list, all alike: '26.5 s' where none is above ten minutes, else '1:05:20'."""
    if longest <= 10 * MINUTE:
        return lambda seconds: f"{seconds:.1f} s"

    def written(seconds: float) -> str:
        whole = round(seconds)
        return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"

    return written


def count(value: float | None) -> str:
    """'82,247'; fractions only below ten."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == int(value) or abs(value) >= 10:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def share(value: float | None) -> str:
    """A part of one as '83.4 %'."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value * 100:.1f} %"


def ratio(value: float | None) -> str:
    """'1.27×'."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.2f}×"


def change(value: float | None) -> str:
    """A relative difference as '+3.1 %'."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value * 100:+.1f} %"
