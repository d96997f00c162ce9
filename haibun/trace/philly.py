"""The Philly trace as the Pollux authors extracted it: ``timestamp,duration,num_gpus,gpu_time,cluster``.

Source: msr-fiddle/philly-traces (CC-BY-4.0), via petuum/adaptdl, branch osdi21-artifact,
simulator/traces/philly.csv. The cluster is the anonymised virtual cluster and becomes the tenant.
``gpu_time`` is duration x num_gpus, and not read.
"""

from __future__ import annotations

from pathlib import Path

from haibun.trace.csvrows import csv_rows
from haibun.trace.rows import MAX_SECONDS
from haibun.trace.table import Trace

COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
WANTED = ("timestamp", "duration", "num_gpus", "cluster")


def read_philly(path: Path, text: str, *, strict: bool = False) -> Trace:
    """Read a CSV of Philly's form. Rows need not be in order of time (in the original they are not).

    Raises:
        TraceError: see `haibun.trace.read`.
    """
    rows = csv_rows(path, text, WANTED, strict=strict)
    return rows.trace(
        format="philly",
        submit=rows.dates("timestamp"),
        duration=rows.numbers("duration", positive=True, most=MAX_SECONDS),
        devices=rows.devices("num_gpus"),
        tenant=rows.codes("cluster"),
    )
