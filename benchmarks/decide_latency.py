"""One decision with 2,000 active jobs on 2,500 devices, under each policy that is shipped.

Measured is ``Engine.decide`` alone, from taking the delta to the finished Decision: with one event between decisions
(a job ends, another comes), and the first after a restart, which ranks every job anew. Beside it, for the same State:
a decision in plain Python that sorts the active jobs and places first-fit.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from dataclasses import dataclass, field

from benchmarks import _naive
from benchmarks.harness import Claim, Outcome, main, percentile, spread, table

ACTIVE, DEVICES = 2_000, 2_500
CLUSTERS = {
    "one type": "312x8:v100,1x4:v100",
    "three types": "104x8:v100,104x8:p100,104x8:k80,1x4:v100",
}
POLICIES = ("fifo", "srtf", "tiresias")
SIZES, SHARES = (1, 2, 4, 8, 16, 32), (0.62, 0.12, 0.12, 0.10, 0.03, 0.01)
DECISIONS, COLD, PLAIN = 400, 40, 20
EVERY = 5.0  # seconds between events on the engine's clock

CLAIM = Claim(f"one decide, {ACTIVE} active jobs on {DEVICES} devices: slowest policy's median", 5.0, "ms")


@dataclass(slots=True)
class Timed:
    """Seconds of each decision."""

    steady: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)


class World:
    """A cluster in the twin with always as many active jobs; ``step`` lets one event happen and times the decision."""

    def __init__(self, policy: str, cluster: str) -> None:
        from haibun.app import make_engine
        from haibun.spec.cluster import load_cluster
        from haibun.twin.executor import TwinExecutor

        self.draw = random.Random(7)
        self.policy = policy
        self.engine = make_engine(load_cluster(cluster), policy, rates=_rates())
        self.executor = TwinExecutor()
        self.now, self.made = 0.0, 0
        for _ in range(ACTIVE):
            self.submit()
            self.now += EVERY
        self.decide()

    def submit(self) -> None:
        """Another job."""
        from haibun.core.events import JobSubmitted
        from haibun.core.vocabulary import Job, Shape

        self.made += 1
        size = self.draw.choices(SIZES, SHARES)[0]
        job = Job(str(self.made), (Shape(size),), total_steps=self.draw.lognormvariate(9.0, 1.5))
        self.executor.expect(job.id, 1e12)
        self.engine.apply(JobSubmitted(self.now, job))

    def finish(self) -> None:
        """One of the running jobs ends."""
        from haibun.core.events import AttemptSucceeded
        from haibun.core.vocabulary import RUNNING

        jobs = self.engine.state.jobs
        running = [row for row in jobs.gangs if jobs.columns.state[row] == RUNNING]
        row = self.draw.choice(running)
        self.engine.apply(AttemptSucceeded(self.now, jobs.job(row).id, int(jobs.columns.epoch[row])))

    def decide(self) -> float:
        """Decide, timed, and make the plan true; what follows at once is decided too, untimed."""
        from haibun.core.events import Decided

        engine = self.engine
        started = time.perf_counter()
        decision = engine.decide(self.now)
        took = time.perf_counter() - started
        events = [] if decision is None else [Decided(self.now, decision)]
        while events:
            actions = [action for event in events for action in engine.apply(event)]
            events = self.executor.perform(actions, self.now)
        return took

    def step(self) -> float:
        """One event, one decision."""
        self.now += EVERY
        if self.engine.state.active_rows().size >= ACTIVE:
            self.finish()
        else:
            self.submit()
        return self.decide()


def _rates() -> object:
    from haibun.core.state import UnitRates

    return UnitRates()


def cold(world: World) -> float:
    """The first decision after a restart from a snapshot of the world."""
    from haibun.app import make_stages
    from haibun.core import snapshot
    from haibun.core.engine import Engine

    world.now += EVERY
    world.finish()
    engine = Engine(snapshot.load(snapshot.dump(world.engine.state), _rates()), make_stages(world.policy))
    started = time.perf_counter()
    engine.decide(world.now)
    took = time.perf_counter() - started
    world.decide()
    return took


def plain(world: World) -> float:
    """The same decision in plain Python, from plain values and the policy's own keys."""
    from haibun.core.state import Delta

    engine, state = world.engine, world.engine.state
    c, fleet = state.jobs.columns, state.fleet
    rows = state.active_rows().tolist()
    ranking = engine.stages.policy.rank(engine.view.refresh(), Delta(), world.now).ranking
    keys = {r: (*ranking.keys[r].tolist(), r) for r in rows}
    width = {r: state.jobs.job(r).shapes[0].devices for r in rows}
    holds = {r: int(c.type[r]) for r in state.jobs.gangs}
    room = fleet.pools.free[: fleet.pools.n].tolist()
    started = time.perf_counter()
    _naive.decide(rows, keys.__getitem__, width, holds, room)
    return time.perf_counter() - started


def timed(policy: str, cluster: str) -> tuple[Timed, World]:
    """All three ways for one policy on one cluster."""
    world = World(policy, cluster)
    for _ in range(50):
        world.step()
    gc.collect()
    gc.disable()
    found = Timed([world.step() for _ in range(DECISIONS)])
    found.cold = [cold(world) for _ in range(COLD)]
    found.plain = [plain(world) for _ in range(PLAIN)]
    gc.enable()
    return found, world


def measure() -> Outcome:
    """Each policy on each cluster."""
    from haibun.app import prepare_kernels

    prepare_kernels()
    rows = [("policy", "cluster", "one event: median, p95", "after a restart", "plain Python", "waiting")]
    slowest, ratios = 0.0, []
    for policy in POLICIES:
        for name, cluster in CLUSTERS.items():
            found, world = timed(policy, cluster)
            middle, first = statistics.median(found.steady), statistics.median(found.cold)
            slowest = max(slowest, middle, first)
            ratios.append(statistics.median(found.plain) / middle)
            told = f"{middle * 1e3:.2f}, {percentile(found.steady, 95) * 1e3:.2f} ms"
            spreads = spread(found.cold, "ms", 1e3), spread(found.plain, "ms", 1e3)
            rows.append((policy, name, told, *spreads, str(world.engine.state.queued)))
    print(table(rows))
    ratio = statistics.median(ratios)
    return Outcome(
        slowest * 1e3,
        [("plain Python over Haibun (median of all)", f"{ratio:.1f}")],
        {"plain_over_haibun": ratio},
    )


if __name__ == "__main__":
    main(CLAIM, measure)
