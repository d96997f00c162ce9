"""A trace as a CSV of Philly's form, which many simulators read."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from os import PathLike

import numpy as np

from haibun.trace.philly import COLUMNS
from haibun.trace.table import Trace

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write_philly(trace: Trace, path: str | PathLike[str]) -> None:
    """Write ``timestamp,duration,num_gpus,gpu_time,cluster``; reading it back gives the same times, sizes
    and tenants.

    Raises:
        ValueError: a job has no duration (Philly's form knows no steps).
        OSError: the file cannot be written.
    """
    unknown = np.flatnonzero(np.isnan(trace.duration))
    if len(unknown):
        raise ValueError(
            f"job {trace.ids[int(unknown[0])]} has no duration: Philly's form cannot hold {trace.name}"
        )
    start = _EPOCH + timedelta(seconds=trace.origin)
    with open(path, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for submit, duration, devices, tenant in zip(
            trace.submit.tolist(),
            trace.duration.tolist(),
            trace.devices.tolist(),
            trace.tenant.tolist(),
            strict=True,
        ):
            when = (start + timedelta(seconds=submit)).replace(tzinfo=None).isoformat(sep=" ")
            writer.writerow((when, duration, devices, duration * devices, trace.tenants[tenant]))
