"""A row a job, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from typing import TextIO

from haibun.report.rows import Run

HEADER = (
    *("policy", "id", "name", "tenant", "devices", "state"),
    *("submitted", "started", "finished", "jct", "preemptions", "failures"),
)


def write_jobs(runs: Sequence[Run], file: TextIO) -> None:
    """Write all jobs of all runs; times in seconds, empty where something has not happened."""
    out = csv.writer(file, lineterminator="\n")
    out.writerow(HEADER)
    for run in runs:
        j = run.jobs
        columns = [
            [run.label] * len(j), j.ids, j.names, j.tenants, j.devices.tolist(), j.states,
            *(_times(c.tolist()) for c in (j.submitted, j.started, j.finished, j.jct())),
            j.preemptions.tolist(), j.failures.tolist(),
        ]  # fmt: skip
        out.writerows(zip(*columns, strict=True))


def _times(values: Sequence[float]) -> list[float | str]:
    return ["" if math.isnan(v) else round(v, 6) for v in values]
