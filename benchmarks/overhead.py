"""What Haibun costs a running script: its steps/s under Haibun against those under bare torchrun.

Both run at once, bound to the same CPUs, and take turns: one makes a segment of steps while the other waits for its
turn, so that what else happens on the machine hits both alike. While torchrun's is measured, Haibun's controller and
agent are stopped (SIGSTOP), for bare means without them. Once with a script attached to ``haibun.train``, once with a
plain one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks import _live
from benchmarks.harness import REPOSITORY, Claim, MeasureError, Outcome, main, paired_ratio, spread

SCRIPT = Path(__file__).with_name("_paced.py")
PAIRS = 120
SEGMENT = 0.3  # seconds of steps a turn
WARM_UP = 50  # steps

CLAIM = Claim("steps/s under Haibun over those under bare torchrun, same CPUs", 0.99, at_most=False)


@dataclass(slots=True)
class Runner:
    """One of the two processes, at the other end of its pipes."""

    go: IO[str]
    done: IO[str]
    cpus: set[int]

    @classmethod
    def meet(cls, folder: Path) -> Runner:
        """Wait for the script that was given this folder's pipes."""
        go, done = open(folder / "go", "w"), open(folder / "done")  # noqa: SIM115
        return cls(go, done, set(map(int, done.readline().split())))

    def segment(self, steps: int) -> float:
        """Seconds for so many steps, as the script saw them."""
        self.go.write(f"{steps}\n")
        self.go.flush()
        said = self.done.readline()
        if not said:
            raise MeasureError("a script ended in the middle of the measurement")
        return float(said)

    def close(self) -> None:
        """Let the script end."""
        for pipe in (self.go, self.done):
            with contextlib.suppress(OSError):
                pipe.close()


@contextlib.contextmanager
def pipes() -> Iterator[Path]:
    """A folder with the two named pipes."""
    with tempfile.TemporaryDirectory(prefix="haibun-bench-") as name:
        folder = Path(name)
        os.mkfifo(folder / "go")
        os.mkfifo(folder / "done")
        yield folder


@contextlib.contextmanager
def under_haibun(up: _live.Server, plain: bool) -> Iterator[Runner]:
    """The script as a job."""
    with pipes() as folder:
        argv = [
            "python",
            str(SCRIPT),
            str(folder / "go"),
            str(folder / "done"),
            *(["--plain"] if plain else []),
        ]
        job = up.client.run(argv, env={"PYTHONPATH": str(REPOSITORY)})
        runner = Runner.meet(folder)
        try:
            yield runner
        finally:
            runner.close()
            up.client.wait(job, 60.0)


@contextlib.contextmanager
def under_torchrun(cpus: set[int], plain: bool) -> Iterator[Runner]:
    """The script under torchrun, on these CPUs."""
    with pipes() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", str(SCRIPT)]
        command += [str(folder / "go"), str(folder / "done"), *(["--plain"] if plain else [])]
        process = subprocess.Popen(
            ["taskset", "-c", ",".join(map(str, sorted(cpus))), *command],
            env=_live.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        runner = Runner.meet(folder)
        try:
            yield runner
        finally:
            runner.close()
            process.wait(60.0)


@contextlib.contextmanager
def still(pids: list[int]) -> Iterator[None]:
    """These processes stand still meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def compare(up: _live.Server, plain: bool) -> tuple[list[float], list[float]]:
    """Steps/s of each segment, under Haibun and under torchrun."""
    ours: list[float] = []
    bare: list[float] = []
    parts = [up.process.pid, up.agent()]
    with under_haibun(up, plain) as haibun, under_torchrun(haibun.cpus, plain) as torchrun:
        if torchrun.cpus != haibun.cpus:
            raise MeasureError(f"different CPUs: {haibun.cpus} and {torchrun.cpus}")
        haibun.segment(WARM_UP)
        steps = max(1, round(SEGMENT * WARM_UP / torchrun.segment(WARM_UP)))
        for pair in range(PAIRS):
            for turn in (0, 1):
                if (pair + turn) % 2:
                    ours.append(steps / haibun.segment(steps))
                else:
                    with still(parts):
                        bare.append(steps / torchrun.segment(steps))
    return ours, bare


def measure() -> Outcome:
    """Attached and plain."""
    cores = len(os.sched_getaffinity(0))
    with _live.server(cores) as up:
        time.sleep(3.0)
        attached, plain = compare(up, plain=False), compare(up, plain=True)
    told = []
    ratios = []
    for name, (ours, bare) in (("attached to haibun.train", attached), ("plain script", plain)):
        ratio, low, high = paired_ratio(ours, bare)
        ratios.append((ratio, low, high))
        told += [(f"{name}: Haibun", spread(ours, "steps/s")), (f"{name}: torchrun", spread(bare, "steps/s"))]
        told.append((f"{name}: ratio", f"{ratio:.4f} (95 % interval {low:.4f} - {high:.4f}, {PAIRS} pairs)"))
    figure, low, high = ratios[0]
    return Outcome(figure, told, {"interval": [low, high], "plain": ratios[1], "pairs": PAIRS})


if __name__ == "__main__":
    main(CLAIM, measure)
