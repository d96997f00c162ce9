"""Large data to what a picture can show: curves to a few hundred points that look the same."""

from __future__ import annotations

import numpy as np

from haibun.report.rows import Floats, Ints, Series


def cdf(values: Floats, of: int, points: int = 240) -> tuple[Floats, Floats]:
    """The empirical distribution of ``values`` as part of ``of``, in at most ``points`` steps: (x, share).

    Where values are missing (jobs that never finished), the curve ends below 1.
    """
    x = np.sort(values[np.isfinite(values)])
    if len(x) == 0 or of == 0:
        return np.empty(0), np.empty(0)
    picks = np.unique(np.linspace(0, len(x) - 1, min(points, len(x))).round().astype(np.int64))
    return x[picks], (picks + 1) / of


def averaged(times: Floats, values: Floats | Ints, edges: Floats) -> Floats:
    """The time-weighted mean of a step function within each bin; nan where it is not defined.

    ``values[i]`` holds from ``times[i]`` to ``times[i + 1]``, the last for ever.
    """
    if len(times) == 0:
        return np.full(len(edges) - 1, np.nan)
    area = np.concatenate([[0.0], np.cumsum(np.diff(times) * values[:-1])])
    until = np.interp(edges, times, area)
    until += np.maximum(edges - times[-1], 0.0) * values[-1]
    inside = np.maximum(edges, times[0])
    width = np.diff(inside)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(width > 0, np.diff(until) / width, np.nan)


def span_of(series: list[Series]) -> tuple[float, float]:
    """The first and the last instant of all; (0, 1) when there is none."""
    some = [s.times for s in series if len(s.times)]
    if not some:
        return 0.0, 1.0
    start, end = min(float(t[0]) for t in some), max(float(t[-1]) for t in some)
    return start, end if end > start else start + 1.0
