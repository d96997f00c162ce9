"""How well the twin foretells a live run: the demo's jobs, real, then replayed with a profile frozen before the run.

Each round is a whole demo in a home of its own: kinds of jobs are measured and the profile frozen, the jobs run under
the live controller (one is preempted twice, one killed), then the submissions and the kill are replayed in the twin.
The twin knows the profile, the times of submission and of the kill, and nothing else of the live run.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.harness import Claim, MeasureError, Outcome, main, spread

ROUNDS = int(os.environ.get("HAIBUN_BENCH_ROUNDS", "3"))

CLAIM = Claim("live against twin: median JCT error, same order of starts", 0.10)


def measure() -> Outcome:
    """Rounds of the demo. The figure is the median over the rounds' medians."""
    from haibun.demo.outcome import Outcome as Shown
    from haibun.demo.run import DemoOptions, perform

    console = Console(file=sys.stderr)
    shown: list[Shown] = []
    loads: list[float] = []
    for _ in range(ROUNDS):
        try:
            with tempfile.TemporaryDirectory(prefix="haibun-bench-") as folder:
                shown.append(perform(DemoOptions(home=Path(folder, "home")), console))
        except RuntimeError as e:
            raise MeasureError(str(e)) from e
        loads.append(os.getloadavg()[0])
    errors = [found.agreement.median_error for found in shown]
    same = [found.agreement.same_order for found in shown]
    rows = [("median JCT error of a round", spread(errors, ""))]
    rows.append(("same order of starts", f"{sum(same)} of {len(same)}"))
    for name in shown[0].agreement.errors:
        signed = [found.agreement.errors[name] for found in shown]
        rows.append((f"  {name}: (twin - live) / live", ", ".join(f"{e:+.1%}" for e in signed)))
    rows.append(("load average at the end of a round", ", ".join(f"{load:.1f}" for load in loads)))
    wrong = [check.claim for found in shown for check in found.checks if not check.holds]
    rows += [("DID NOT HOLD", claim) for claim in wrong]
    figure = statistics.median(errors)
    more = {"errors": errors, "same_order": same, "loads": loads, "failed_claims": wrong}
    return Outcome(figure, rows, more, also=all(same) and not wrong)


if __name__ == "__main__":
    main(CLAIM, measure)
