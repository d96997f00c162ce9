"""Replaying the Philly trace under Tiresias (342,000 preemptions), one process from first import to last line.

Beside it, on the trace's first jobs: a simulator in plain Python that sorts the active jobs at every event. It knows
no nodes, so another of several equal jobs may be preempted: its average JCT is near, not equal.
"""

from __future__ import annotations

import time

from benchmarks import _naive, _replays
from benchmarks.harness import Claim, Outcome, main

CLAIM = Claim("Philly replay (82,247 jobs, 56 x 8 devices), Tiresias: CPU of the whole process", 60.0, "s")
PREFIX = 8_000  # jobs for the comparison: the plain one would take many minutes for all


def measure() -> Outcome:
    """Haibun's runs, then both on the prefix."""
    children, result = _replays.simulate("tiresias")
    prefix, short = _replays.simulate("tiresias", 1, ["--limit", str(PREFIX)])
    from haibun.trace import read

    trace = read(_replays.philly()).select(limit=PREFIX)
    started = time.process_time()
    plain = _naive.Tiresias(trace.devices.tolist(), trace.duration.tolist(), trace.submit.tolist())
    jct = plain.run(_replays.DEVICES)
    bare = time.process_time() - started
    mean = sum(jct) / len(jct)
    cpu, ours = _replays.median_cpu(children), prefix[0].cpu
    near = abs(mean - short["avg_jct"]) <= 0.02 * mean
    return Outcome(
        cpu,
        [
            *_replays.rows(children),
            ("decisions, preemptions", f"{result['decisions']}, {result['preemptions']}"),
            (
                f"first {PREFIX} jobs: Haibun, sorting",
                f"{ours:.1f} s, {bare:.1f} s (ratio {ours / bare:.2f})",
            ),
            ("average JCT of these", f"{short['avg_jct']:.1f} s, {mean:.1f} s"),
        ],
        {
            "peak_bytes": max(c.peak for c in children),
            "ratio_to_sorting": ours / bare,
            "avg_jct": result["avg_jct"],
            "decisions": result["decisions"],
        },
        also=near,
    )


if __name__ == "__main__":
    main(CLAIM, measure)
