"""Replaying the Philly trace under FIFO, as a user does it: one process from its first import to its last line.

Beside it: a bare FIFO queue in plain Python over the same rows, which must come to the same completion times; the
ratio is what State, events, placement on nodes and reasons cost.
"""

from __future__ import annotations

import time

from benchmarks import _naive, _replays
from benchmarks.harness import Claim, Outcome, main

CLAIM = Claim("Philly replay (82,247 jobs, 56 x 8 devices), FIFO: CPU of the whole process", 20.0, "s")


def measure() -> Outcome:
    """Haibun's runs, then the bare queue."""
    children, result = _replays.simulate("fifo")
    from haibun.trace import read

    trace = read(_replays.philly())
    started = time.process_time()
    times = trace.submit.tolist(), trace.duration.tolist(), trace.devices.tolist()
    jct = _naive.fifo(*times, _replays.DEVICES)
    bare = time.process_time() - started
    mean = sum(jct) / len(jct)
    cpu = _replays.median_cpu(children)
    peak = max(c.peak for c in children)
    same = abs(mean - result["avg_jct"]) <= 1e-6 * mean
    return Outcome(
        cpu,
        [
            *_replays.rows(children),
            ("bare FIFO queue, the simulation alone", f"{bare:.2f} s (ratio {cpu / bare:.1f})"),
            ("average JCT, Haibun and bare", f"{result['avg_jct']:.3f} s, {mean:.3f} s"),
            ("decisions", str(result["decisions"])),
        ],
        {"peak_bytes": peak, "ratio_to_bare": cpu / bare, "avg_jct": result["avg_jct"], "same_jct": same},
        also=same and peak <= _replays.MOST_BYTES,
    )


if __name__ == "__main__":
    main(CLAIM, measure)
