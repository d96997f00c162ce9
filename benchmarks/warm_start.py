"""How soon a warm job makes its first step, counted from the decision that started it.

A real server with its agent and warm pool; a small torch script attached to Haibun. The decision's time is that of the
journalled Decision (so its own fsync, the launch and the start are all counted), the step's is told by the script at
the end of its first step. Beside it: the same script, the same figure, under ``torchrun --nproc-per-node 1``, from the
command to the end of the first step. The two take turns.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import _live
from benchmarks.harness import REPOSITORY, Claim, MeasureError, Outcome, main, spread

RUNS = 7
SETTLE = 2.0  # seconds between runs, in which the pool forks its next worker
SCRIPT = Path(__file__).with_name("_step.py")

CLAIM = Claim("first step of a warm job after its decision", 0.3, "s")


def warm(up: _live.Server) -> float:
    """Seconds from decision to the end of the first step of one job."""
    job = up.client.run(["python", str(SCRIPT)], env={"PYTHONPATH": str(REPOSITORY)})
    view = up.client.wait(job, 60.0)
    told = _live.words(up, job, "first-step")
    if view.state != "succeeded" or not told:
        lines = "\n".join(line.text for line in up.client.logs(job))
        raise MeasureError(f"job {job} has {view.state}: {view.why}\n{lines}")
    started = up.client.show(job).attempts[-1].started
    if started is None:
        raise MeasureError(f"job {job} has no start")
    return float(told[0][0]) - started


def cold() -> float:
    """Seconds from the command to the end of the first step under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", str(SCRIPT)]
    started = time.time()
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=_live.environment(), cwd="/"
    )
    for line in done.stdout.splitlines():
        if line.startswith("first-step"):
            return float(line.split()[1]) - started
    raise MeasureError(f"torchrun gave no step: {done.stderr[-1000:]}")


def measure() -> Outcome:
    """Warm and cold in turns."""
    warms: list[float] = []
    colds: list[float] = []
    with _live.server(2) as up:
        time.sleep(SETTLE)
        up.await_("a warm worker", lambda: _try_once(up), 120.0)
        for _ in range(RUNS):
            time.sleep(SETTLE)
            warms.append(warm(up))
            colds.append(cold())
    figure, other = statistics.median(warms), statistics.median(colds)
    return Outcome(
        figure,
        [
            ("Haibun, warm: decision to first step", spread(warms, "s")),
            ("torchrun, cold: command to first step", spread(colds, "s")),
            ("cold over warm", f"{other / figure:.1f}"),
        ],
        {"cold": other, "ratio": other / figure},
    )


def _try_once(up: _live.Server) -> float | None:
    """The pool is up once a start takes much less than importing torch does."""
    took = warm(up)
    if took < 1.0:
        return took
    time.sleep(SETTLE)
    return None


if __name__ == "__main__":
    main(CLAIM, measure)
