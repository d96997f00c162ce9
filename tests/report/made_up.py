"""Runs made up for tests: jobs on devices that are free first, with some attempts cut short."""

from __future__ import annotations

import heapq
import random

import numpy as np

from haibun.report.rows import Jobs, NodeDevices, Run, Series, Span


def run(label: str, jobs: int, nodes: int, per_node: int, *, seed: int = 1, mean: float = 600.0) -> Run:
    """``jobs`` jobs of ``mean`` seconds on average, submitted so that the cluster is about full."""
    rng = random.Random(seed)
    width = nodes * per_node
    free = [(0.0, d) for d in range(width)]
    spans, rows = list[Span](), []
    for i in range(jobs):
        submitted = i * mean * 1.9 / width
        count = min(rng.choice((1, 1, 1, 2, 4)), width)
        left, started, cut, failed = rng.expovariate(1 / mean) + 1.0, float("nan"), 0, 0
        while True:
            held = [heapq.heappop(free) for _ in range(count)]
            start = max(submitted, *(t for t, _ in held))
            started = start if started != started else started
            outcome = rng.choices(("succeeded", "preempted", "failed"), (8, 1, 0.3))[0]
            lasts = left if outcome == "succeeded" else left * rng.random()
            left -= lasts
            devices = tuple(sorted(d for _, d in held))
            spans.append(Span(f"job-{i}", devices, start, start + lasts, outcome))
            for d in devices:
                heapq.heappush(free, (start + lasts, d))
            cut, failed = cut + (outcome == "preempted"), failed + (outcome == "failed")
            if outcome == "succeeded":
                break
        rows.append((submitted, started, start + lasts, count, cut, failed))
    columns = np.array(rows).T if rows else np.empty((6, 0))
    table = Jobs(
        ids=[f"job-{i}" for i in range(jobs)],
        names=[f"{('gpt', 'resnet', 'bert')[i % 3]}-{i}" for i in range(jobs)],
        tenants=["vision" if i % 2 else "language" for i in range(jobs)],
        devices=columns[3].astype(np.int64),
        submitted=columns[0],
        started=columns[1],
        finished=columns[2],
        states=["succeeded"] * jobs,
        preemptions=columns[4].astype(np.int64),
        failures=columns[5].astype(np.int64),
    )
    cluster = [
        NodeDevices(f"node-{n}", "v100", range(n * per_node, (n + 1) * per_node)) for n in range(nodes)
    ]
    return Run(label, _figures(label, table), table, spans, _series(table, spans), cluster)


def _series(jobs: Jobs, spans: list[Span]) -> Series:
    changes = [(s.start, len(s.devices), 0) for s in spans] + [(s.end, -len(s.devices), 0) for s in spans]
    changes += [(t, 0, 1) for t in jobs.submitted.tolist()] + [(t, 0, -1) for t in jobs.started.tolist()]
    changes.sort()
    table = np.array(changes) if changes else np.empty((0, 3))
    return Series(
        table[:, 0], np.cumsum(table[:, 1]).astype(np.int64), np.cumsum(table[:, 2]).astype(np.int64)
    )


def _figures(label: str, jobs: Jobs) -> dict[str, object]:
    jct = jobs.jct()
    return {
        "policy": label,
        "jobs": len(jobs),
        "finished": len(jct),
        "avg_jct": float(jct.mean()) if len(jct) else None,
        "median_jct": float(np.median(jct)) if len(jct) else None,
        "makespan": float(jobs.finished.max()) if len(jct) else None,
        "avg_queueing": float((jobs.started - jobs.submitted).mean()) if len(jct) else None,
        "utilisation": 0.87,
        "preemptions": int(jobs.preemptions.sum()),
        "worst_ftf": None,
        "decisions": 3 * len(jobs),
        "cpu_s": 1.25,
    }
