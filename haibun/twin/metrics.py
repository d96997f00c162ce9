"""Figures of a replay (or of a live run): all times in seconds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haibun.core.state import State
from haibun.core.vocabulary import JobState


def summary(state: State, cpu_s: float | None = None) -> dict[str, Any]:
    """One entry of ``results`` of ``haibun simulate --json``; None where a figure does not exist.

    JCT (job completion time) runs from submission to finish, over jobs that succeeded. ``utilisation`` is
    device-seconds held by jobs / (devices x makespan). ``worst_ftf`` and ``unfair_share`` need a fair-share reference.
    """
    c = state.jobs.columns
    n = c.n
    jct = completion_times(state)
    finished = c.state[:n] == JobState.SUCCEEDED
    started = ~np.isnan(c.first_start[:n])
    service = c.service[:n].sum() if n else 0.0
    makespan = (
        float(np.nanmax(c.ended_at[:n][finished]) - np.nanmin(c.submitted[:n])) if finished.any() else None
    )
    devices = state.fleet.devices.n
    return {
        "policy": state.config.policy,
        "jobs": len(state.jobs),
        "finished": int(finished.sum()),
        "avg_jct": _or_none(jct.mean() if len(jct) else math.nan),
        "median_jct": _percentile(jct, 50),
        "p95_jct": _percentile(jct, 95),
        "p99_jct": _percentile(jct, 99),
        "makespan": makespan,
        "avg_queueing": _or_none(c.waited[:n][started].mean() if started.any() else math.nan),
        "utilisation": None if not makespan else float(service) / (devices * makespan),
        "preemptions": int(c.preemptions[:n].sum()),
        "gpu_hours": float(service) / 3600.0,
        "worst_ftf": None,
        "unfair_share": None,
        "decisions": state.decisions,
        "cpu_s": cpu_s,
    }


def completion_times(state: State) -> NDArray[np.float64]:
    """JCTs in seconds of the jobs that succeeded, in order of rows."""
    c = state.jobs.columns
    ended = c.state[: c.n] == JobState.SUCCEEDED
    times: NDArray[np.float64] = c.ended_at[: c.n][ended] - c.submitted[: c.n][ended]
    return times


def _percentile(values: NDArray[np.float64], q: float) -> float | None:
    return float(np.percentile(values, q)) if len(values) else None


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
