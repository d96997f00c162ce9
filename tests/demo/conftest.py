"""What the tests of the demo share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from demo_world import CLUSTER, DURABLE, PROFILE, ZERO, Writing, jobs

from haibun.app import make_engine
from haibun.core.events import AnyEvent, AttemptFailed
from haibun.demo.conduct import Killed, Observed
from haibun.demo.record import Record, fold
from haibun.demo.workload import FULL, POLICY
from haibun.twin.executor import TwinExecutor
from haibun.twin.replay import History, Replay


@pytest.fixture
def written() -> tuple[list[AnyEvent], History]:
    """The events of a run in which gpt's worker is killed after six seconds, and what happened."""
    plain = make_engine(CLUSTER, POLICY, rates=PROFILE.table())
    engine = Writing(plain.state, plain.stages)
    engine.written = []
    fault = AttemptFailed(ZERO + 6.0, "4", 1, "rank 0 was killed by SIGKILL", durable=DURABLE, node="here")
    history = History()
    executor = TwinExecutor(by_model=PROFILE.costs, faults=[fault])
    Replay(
        engine, iter(jobs()), [ZERO + (26.5 if p.after else p.at) for p in FULL.plans], executor, history
    ).run()
    return engine.written, history


@pytest.fixture
def live(written: tuple[list[AnyEvent], History]) -> Record:
    """The same, folded from its events."""
    return fold(written[0], [job.id for job in jobs()], CLUSTER, POLICY, PROFILE.table())


@pytest.fixture
def seen(live: Record) -> Observed:
    """What boards would have shown."""
    stopped = {(e.job, e.epoch + 1): _whole(e.durable) for e in live.events if hasattr(e, "durable")}
    return Observed(
        {job.name: job.id for job in live.jobs}, stopped, killed=Killed("4", 1, 0, 1234, 72, int(DURABLE))
    )


def _whole(step: float) -> float:
    """Steps of the twin may be fractions; those of a worker are whole numbers."""
    return int(step) if step.is_integer() else step
