"""A seeded workload generator, so that a machine without traces can replay too.

Defaults are fitted by eye to the 82,247 jobs of the Philly trace (see `haibun.trace.philly`): 93 % of its
gangs have one device; durations are log-normal (single devices: median of logs 6.7, deviation 2.0) with
longer ones for larger gangs, and a heavy tail: 3 % of jobs run longer than a day, 0.02 % longer than thirty.
tests/trace/test_generate.py holds the two side by side.

Only `numpy.random.Generator.random` is drawn from: its stream is fixed for a seed, where those of the named
distributions may change with the version of NumPy (NEP 19).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from haibun.trace.table import Floats, Ints, Trace

DAY = 86_400.0
ORIGIN = 1_507_507_200.0  # Monday 2017-10-09 00:00 UTC, Philly's busiest week: where written dates begin


@dataclass(frozen=True, slots=True)
class Workload:
    """What the jobs of a generated trace look like. Seconds and devices.

    Attributes:
        sizes, size_shares: gang sizes and how often each occurs (shares are normalised).
        median: median duration of a single-device job's body.
        sigma: standard deviation of the logarithm of durations in the body.
        size_exponent: the median grows with gang size to this power.
        tail_share: jobs drawn from the heavy tail instead of the body.
        tail_start, tail_alpha: scale and shape of the tail, a Pareto distribution.
        shortest, longest: bounds of a duration; the tail is cut (not piled up) at the longest.
        tenant_shares: how the jobs divide among tenants ``vc0``, ``vc1``, ...
        arrivals: ``poisson``, or ``diurnal``: a rate that swings by a sine of period one day.
        swing: amplitude of the diurnal rate relative to its mean, from 0 to 1. The rate peaks at 06:00
            of the trace's clock, a quarter of a period after its start.
    """

    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    size_shares: tuple[float, ...] = (0.9317, 0.0221, 0.0227, 0.0200, 0.0025, 0.0009, 0.0001)
    median: float = 830.0
    sigma: float = 1.9
    size_exponent: float = 1.4
    tail_share: float = 0.02
    tail_start: float = DAY
    tail_alpha: float = 1.2
    shortest: float = 1.0
    longest: float = 55 * DAY
    tenant_shares: tuple[float, ...] = (0.50, 0.20, 0.12, 0.09, 0.03, 0.02, 0.02, 0.02)
    arrivals: Literal["poisson", "diurnal"] = "poisson"
    swing: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what no workload can be.

        Raises:
            ValueError: names the parameter.
        """
        if len(self.sizes) != len(self.size_shares) or not self.sizes:
            raise ValueError(f"sizes has {len(self.sizes)} entries and size_shares {len(self.size_shares)}")
        if min(self.sizes) < 1:
            raise ValueError("sizes must be 1 or more")
        for name in ("size_shares", "tenant_shares"):
            shares = getattr(self, name)
            if not shares or min(shares) < 0 or not 0 < sum(shares) < np.inf:
                raise ValueError(f"{name} must be 0 or more, and not all 0")
        if not 0 < self.shortest <= self.longest < np.inf:
            raise ValueError("0 < shortest <= longest must hold")
        if not (self.median > 0 and self.sigma >= 0 and self.tail_alpha > 0):
            raise ValueError("median and tail_alpha must be greater than 0, sigma 0 or more")
        if not (0 <= self.tail_share <= 1 and 0 <= self.swing <= 1):
            raise ValueError("tail_share and swing must lie between 0 and 1")
        if not 0 < self.tail_start < self.longest:
            raise ValueError("tail_start must lie between 0 and longest")
        if self.arrivals not in ("poisson", "diurnal"):
            raise ValueError(f"arrivals is {self.arrivals!r}; it must be 'poisson' or 'diurnal'")


def generate(
    jobs: int = 1000,
    devices: int = 448,
    load: float = 0.8,
    seed: int = 0,
    workload: Workload | None = None,
) -> Trace:
    """Draw a trace; the same arguments give the same trace.

    Args:
        jobs: how many.
        devices: those of the cluster it is meant for; no gang is larger.
        load: device-seconds asked for, over ``devices`` x the time from first to last submission (up to the
        chance of
            arrivals, some 1/sqrt(jobs)). Above 1 the queue grows without end.
        seed: of the random numbers.
        workload: what the jobs look like; None: like Philly's.

    Returns:
        Whole seconds throughout, so that writing it as CSV and reading it back changes nothing.

    Raises:
        ValueError: an argument is out of range, or no gang size fits the cluster.
    """
    shape = workload or Workload()
    if jobs < 1 or devices < 1:
        raise ValueError("jobs and devices must be 1 or more")
    if not 0 < load < np.inf:
        raise ValueError(f"load is {load}; it must be greater than 0")
    rng = np.random.Generator(np.random.PCG64(seed))
    sizes = _sizes(rng, shape, jobs, devices)
    duration = _durations(rng, shape, sizes)
    span = float((duration * sizes).sum()) / (devices * load)
    submit = _arrivals(rng, shape, jobs, span)
    tenant = _choose(rng, shape.tenant_shares, jobs)
    return Trace(
        name=f"generated-{jobs}-{seed}",
        format="generated",
        ids=[f"job-{i}" for i in range(jobs)],
        submit=submit - submit[0],
        duration=duration,
        total_steps=np.full(jobs, np.nan),
        devices=sizes,
        model=np.full(jobs, -1, dtype=np.int64),
        models=(),
        tenant=tenant,
        tenants=tuple(f"vc{i}" for i in range(len(shape.tenant_shares))),
        priority=np.zeros(jobs, dtype=np.int64),
        weight=np.ones(jobs),
        origin=ORIGIN + float(submit[0]),
    )


def _choose(rng: np.random.Generator, shares: tuple[float, ...], n: int) -> Ints:
    bounds = np.cumsum(shares) / sum(shares)
    return np.minimum(np.searchsorted(bounds, rng.random(n), side="right"), len(shares) - 1).astype(np.int64)


def _sizes(rng: np.random.Generator, shape: Workload, n: int, devices: int) -> Ints:
    fitting = [(s, share) for s, share in zip(shape.sizes, shape.size_shares, strict=True) if s <= devices]
    if not fitting or not sum(share for _, share in fitting):
        raise ValueError(f"no gang size in {shape.sizes} fits {devices} devices")
    values = np.array([s for s, _ in fitting], dtype=np.int64)
    return values[_choose(rng, tuple(share for _, share in fitting), n)]


def _durations(rng: np.random.Generator, shape: Workload, sizes: Ints) -> Floats:
    """Log-normal body and truncated Pareto tail, in whole seconds."""
    n = len(sizes)
    u, v, w, pick = (rng.random(n) for _ in range(4))
    normal = np.sqrt(-2.0 * np.log1p(-u)) * np.cos(2.0 * np.pi * v)  # Box and Muller (1958)
    body = shape.median * sizes**shape.size_exponent * np.exp(shape.sigma * normal)
    reach = 1.0 - (shape.tail_start / shape.longest) ** shape.tail_alpha
    tail = shape.tail_start * (1.0 - w * reach) ** (-1.0 / shape.tail_alpha)
    seconds = np.where(pick < shape.tail_share, tail, body)
    return np.clip(np.rint(seconds), max(1.0, np.ceil(shape.shortest)), max(1.0, np.floor(shape.longest)))


def _arrivals(rng: np.random.Generator, shape: Workload, n: int, span: float) -> Floats:
    """Arrival times of a Poisson process in ``[0, span]``, given that there are n: sorted uniforms,
    time-warped.

    For a varying rate the uniforms are mapped through the inverse of the cumulative rate
    ``t + swing * P / 2pi * (1 - cos(2pi t / P))`` (Cinlar's inversion), on a grid of 10 minutes or finer.
    """
    uniform = np.sort(rng.random(n))
    if shape.arrivals == "poisson":
        return np.rint(uniform * span)
    points = int(min(max(span / 600.0, 1000.0), 1e6))
    t = np.linspace(0.0, span, points)
    cumulative = t + shape.swing * DAY / (2 * np.pi) * (1.0 - np.cos(2 * np.pi * t / DAY))
    times: Floats = np.rint(np.interp(uniform * cumulative[-1], cumulative, t))
    return times
