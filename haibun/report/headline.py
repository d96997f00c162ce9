"""The figures of a run: their names, how each is written, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from haibun.report import units


class Figure(Struct, frozen=True):
    """``better``: -1 less, +1 more, 0 neither. ``help``: what it is, in a sentence."""

    key: str
    label: str
    write: Callable[[float | None], str]
    better: int
    help: str


FIGURES = (
    Figure("jobs", "Jobs", units.count, 0, "Jobs submitted."),
    Figure("finished", "Finished", units.count, 1, "Jobs that succeeded."),
    Figure("avg_jct", "Average JCT", units.duration, -1, "Mean time from submission to finish."),
    Figure("median_jct", "Median JCT", units.duration, -1, "Half of the finished jobs took less."),
    Figure("p95_jct", "95th percentile JCT", units.duration, -1, "19 of 20 finished jobs took less."),
    Figure("p99_jct", "99th percentile JCT", units.duration, -1, "99 of 100 finished jobs took less."),
    Figure("makespan", "Makespan", units.duration, -1, "From the first submission to the last finish."),
    Figure("avg_queueing", "Average queueing", units.duration, -1, "Mean time spent waiting for devices."),
    Figure("utilisation", "Utilisation", units.share, 1, "Device-seconds held over devices times makespan."),
    Figure("gpu_hours", "Device-hours", units.count, 0, "Devices held, times hours."),
    Figure("preemptions", "Preemptions", units.count, -1, "Attempts that had to give their devices back."),
    Figure(
        "worst_ftf",
        "Worst finish-time fairness",
        units.ratio,
        -1,
        "Largest ratio of JCT to the JCT on a fair share.",
    ),
    Figure(
        "unfair_share",
        "Unfairly treated",
        units.share,
        -1,
        "Part of the jobs that a fair share would serve better.",
    ),
    Figure("decisions", "Decisions", units.count, 0, "Times that the policy was asked."),
    Figure("cpu_s", "CPU time of the replay", units.duration, 0, "CPU time of the scheduler and its twin."),
)


def value(result: Mapping[str, Any], figure: Figure) -> float | None:
    """The figure as a number; None where it is not known."""
    found = result.get(figure.key)
    return None if found is None or not math.isfinite(found) else float(found)


def known(results: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """The figures that at least one result has."""
    return [f for f in FIGURES if any(value(r, f) is not None for r in results)]


def best(results: Sequence[Mapping[str, Any]], figure: Figure) -> set[int]:
    """Indexes of the results that are best in it; none where there is nothing to compare."""
    values = [value(r, figure) for r in results]
    there = [v for v in values if v is not None]
    if figure.better == 0 or len(there) < 2 or min(there) == max(there):
        return set()
    top = max(there) if figure.better > 0 else min(there)
    return {i for i, v in enumerate(values) if v == top}
