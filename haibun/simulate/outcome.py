"""What came of a replay: figures, and rows for tables and reports."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from haibun.core.state import State
from haibun.core.vocabulary import JobState
from haibun.report.rows import Floats, Jobs, NodeDevices, Run, Series, Span
from haibun.twin.replay import History

JOBS_HEADER = (
    *("policy", "job", "name", "tenant", "devices", "submitted", "first_start", "finished"),
    *("jct", "queueing", "preemptions", "state"),
)
_STATES = {int(state): state.name.lower() for state in JobState}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy's replay. ``run`` and ``queueing`` (seconds a job waited) where rows were asked for."""

    figures: dict[str, Any]
    run: Run | None = None
    queueing: Floats | None = None


def rows_of(state: State, figures: dict[str, Any], history: History | None) -> tuple[Run, Floats]:
    """The run as plain rows, and how long each job waited."""
    c, n = state.jobs.columns, state.jobs.columns.n
    jobs = [state.jobs.job(row) for row in range(n)]
    rows = Jobs(
        ids=[job.id for job in jobs],
        names=[job.name for job in jobs],
        tenants=[job.tenant for job in jobs],
        devices=np.array([job.shapes[0].devices for job in jobs], np.int64),
        submitted=c.submitted[:n].copy(),
        started=c.first_start[:n].copy(),
        finished=c.ended_at[:n].copy(),
        states=[_STATES[s] for s in c.state[:n].tolist()],
        preemptions=c.preemptions[:n].copy(),
        failures=c.failures[:n].copy(),
    )
    kept = history or History()
    spans = [Span(s.job, s.devices, s.start, s.end, s.outcome) for s in kept.spans]
    series = Series(
        np.array(kept.times, np.float64), np.array(kept.busy, np.int64), np.array(kept.queued, np.int64)
    )
    return Run(str(figures["policy"]), figures, rows, spans, series, _nodes(state)), c.waited[:n].copy()


def _nodes(state: State) -> list[NodeDevices]:
    fleet = state.fleet
    devices: list[list[int]] = [[] for _ in range(fleet.nodes.n)]
    for pool in range(fleet.pools.n):
        first = int(fleet.pools.first[pool])
        devices[int(fleet.pools.node[pool])] += range(first, first + int(fleet.pools.count[pool]))
    return [
        NodeDevices(name, "+".join(group.type for group in node.devices), numbers)
        for name, node, numbers in zip(fleet.names.names, fleet.descriptions, devices, strict=True)
    ]


def write_jobs(outcomes: Sequence[Outcome], file: TextIO) -> None:
    """A row a job and policy. Seconds since the first submission; empty where something has not happened."""
    out = csv.writer(file, lineterminator="\n")
    out.writerow(JOBS_HEADER)
    for outcome in outcomes:
        if outcome.run is None or outcome.queueing is None:
            continue
        jobs = outcome.run.jobs
        times = [jobs.submitted, jobs.started, jobs.finished, jobs.jct(), outcome.queueing]
        columns = [[_text(v) for v in column.tolist()] for column in times]
        out.writerows(
            zip(
                *([outcome.run.label] * len(jobs), jobs.ids, jobs.names, jobs.tenants, jobs.devices.tolist()),
                *(*columns, jobs.preemptions.tolist(), jobs.states),
                strict=True,
            )
        )


def _text(seconds: float) -> float | str:
    return "" if math.isnan(seconds) else round(seconds, 6)
