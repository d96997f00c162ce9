"""Replays of the Philly trace, for the benchmarks of each policy."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Child, data, last_json, run, spread

CLUSTER, DEVICES = "56x8:v100", 448
RUNS = 3
MOST_BYTES = 1 << 30


def philly() -> Path:
    """The trace. Raises Skipped where it is not there."""
    return data("jobs/philly/philly_jobs.csv")


def simulate(policy: str, runs: int = RUNS, more: Sequence[str] = ()) -> tuple[list[Child], dict[str, Any]]:
    """``haibun simulate`` as whole processes, once beforehand to have its code compiled: all runs, and the result."""
    argv = [sys.executable, "-m", "haibun.cli.main", "simulate", str(philly()), "--cluster", CLUSTER]
    argv += ["--policy", policy, "--json", *more]
    warm = [sys.executable, "-c", "from haibun.app import prepare_kernels; prepare_kernels()"]
    run(warm)
    children = [run(argv) for _ in range(runs)]
    return children, last_json(children[-1].out.replace("\n", " "))["results"][0]


def rows(children: list[Child]) -> list[tuple[str, str]]:
    """What is told of the runs."""
    return [
        ("CPU of the whole process", spread([c.cpu for c in children], "s")),
        ("wall clock", spread([c.wall for c in children], "s")),
        ("peak memory", spread([c.peak / 1e6 for c in children], "MB")),
    ]


def median_cpu(children: list[Child]) -> float:
    """Median CPU seconds."""
    return statistics.median(c.cpu for c in children)
