"""What the benchmarks share: measuring, statistics, and one form of report."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
RESAMPLES = 10_000


class Skipped(Exception):  # noqa: N818 - not an error
    """The benchmark cannot run here; the message says what is missing."""


class MeasureError(RuntimeError):
    """Something that should have worked did not; the message says what."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a benchmark shows. ``at_most``: the figure must not be above ``target``, else not below."""

    text: str
    target: float
    unit: str = ""
    at_most: bool = True

    def holds(self, figure: float) -> bool:
        """Whether the figure reaches the target."""
        return figure <= self.target if self.at_most else figure >= self.target

    def told_target(self) -> str:
        """The target, for people."""
        return f"{'<=' if self.at_most else '>='} {self.target:g} {self.unit}".rstrip()


@dataclass(slots=True)
class Outcome:
    """What was measured: the figure, rows of (what, figure) for people, and more keys for the JSON line.

    ``also``: whether what the claim says beside its figure holds (memory, equal results).
    """

    figure: float
    rows: list[tuple[str, str]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    also: bool = True


@dataclass(frozen=True, slots=True)
class Child:
    """A process that has ended: CPU seconds (its own waited children included), seconds, peak bytes, output."""

    cpu: float
    wall: float
    peak: int
    out: str


def main(claim: Claim, measure: Callable[[], Outcome]) -> None:
    """Run one benchmark: a table, and last one JSON line. Exit code 1 where it could not be measured at all."""
    try:
        outcome = measure()
    except Skipped as e:
        print(f"{claim.text}: skipped: {e}")
        print(
            json.dumps(
                {"claim": claim.text, "figure": None, "target": claim.told_target(), "skipped": str(e)}
            )
        )
        return
    except MeasureError as e:
        print(f"{claim.text}: failed: {e}", file=sys.stderr)
        print(
            json.dumps({"claim": claim.text, "figure": None, "target": claim.told_target(), "failed": str(e)})
        )
        sys.exit(1)
    holds = claim.holds(outcome.figure) and outcome.also
    rows = [*outcome.rows, ("figure", f"{outcome.figure:.4g} {claim.unit}".rstrip())]
    rows += [("target", claim.told_target()), ("holds", "yes" if holds else "NO")]
    print(f"{claim.text}\n{table(rows)}")
    result = {
        "claim": claim.text,
        "figure": outcome.figure,
        "target": claim.told_target(),
        "holds": holds,
        "unit": claim.unit,
        "machine": machine(),
        **outcome.more,
    }
    print(json.dumps(result))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length as text, the columns aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"  {line}".rstrip() for line in lines)


def machine() -> str:
    """Where the figures come from: cores, and how many processes wanted one of them when they were taken."""
    return f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}"


def spread(values: Sequence[float], unit: str = "", scale: float = 1.0) -> str:
    """``median (least - most, n)``."""
    told = [v * scale for v in values]
    middle = f"{statistics.median(told):.4g} {unit}".rstrip()
    return f"{middle} ({min(told):.4g} - {max(told):.4g}, n={len(told)})"


def percentile(values: Sequence[float], q: float) -> float:
    """The smallest value that at least ``q`` percent of all are not above."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(q) // 100) - 1)]


def paired_ratio(a: Sequence[float], b: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """Median of the ratios a[i] / b[i], and its 95 % interval by bootstrap over the pairs."""
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return statistics.median(ratios), medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


def run(argv: Sequence[str], env: Mapping[str, str] | None = None, timeout: float = 600.0) -> Child:
    """Run a command to its end and account for it by the operating system (wait4).

    Raises:
        MeasureError: it took too long, or did not end with 0.
    """
    import signal
    import time

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        child = subprocess.Popen(
            list(argv), stdout=out, stderr=err, cwd=REPOSITORY, env={**os.environ, **(env or {})}
        )
        signal.signal(signal.SIGALRM, lambda *_: child.kill())
        signal.setitimer(signal.ITIMER_REAL, timeout)
        _, status, usage = os.wait4(child.pid, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        wall = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode:
            last = err.read().decode(errors="replace").strip()[-2000:]
            raise MeasureError(f"{' '.join(argv)} ended with {child.returncode} after {wall:.0f} s: {last}")
        text = out.read().decode(errors="replace")
    return Child(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * 1024, text)


def last_json(text: str) -> dict[str, Any]:
    """The object on the last line of a program's output.

    Raises:
        MeasureError: there is none.
    """
    lines = text.strip().splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise MeasureError(f"no JSON on the last line of: {text[-500:]!r}") from None
    if not isinstance(found, dict):
        raise MeasureError(f"no object on the last line of: {text[-500:]!r}")
    return found


def data(path: str) -> Path:
    """A file of the public traces: in HAIBUN_DATA, else in ``shared/data`` beside the repository.

    Raises:
        Skipped: it is not there.
    """
    folder = Path(os.environ.get("HAIBUN_DATA") or REPOSITORY.parent / "shared" / "data")
    if not (folder / path).exists():
        raise Skipped(f"there is no {folder / path}; set HAIBUN_DATA to the folder that holds jobs/")
    return folder / path
