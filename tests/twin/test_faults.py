"""Faults from outside, and costs by model."""

from __future__ import annotations

import pytest

from haibun.app import make_engine
from haibun.core.events import AttemptFailed
from haibun.core.state import State
from haibun.core.vocabulary import Cluster, DeviceGroup, Job, Node, Shape
from haibun.profile import ThroughputTable
from haibun.twin.costs import Costs
from haibun.twin.executor import TwinExecutor
from haibun.twin.replay import Replay

BACK_OFF = 1.0


def replay(executor: TwinExecutor, *models: str | None) -> State:
    """A job of ten steps a model, one step a second, all at once on devices enough."""
    cluster = Cluster((Node("n", (DeviceGroup("x", len(models)),)),))
    engine = make_engine(cluster, rates=Table())
    jobs = [Job(str(i), (Shape(1),), model=m, total_steps=10.0, retries=1) for i, m in enumerate(models)]
    Replay(engine, iter(jobs), [0.0] * len(jobs), executor).run()
    return engine.state


class Table(ThroughputTable):
    def rate(self, model: str | None, device_type: str, devices: int, consolidated: bool = True) -> float:
        return 1.0


def test_a_fault_costs_the_steps_past_the_durable_one_and_the_back_off() -> None:
    fault = AttemptFailed(6.5, "0", 1, "killed", durable=4.0)
    state = replay(TwinExecutor(Costs(resume=2.0), faults=[fault]), None, None)
    ended = state.jobs.columns.ended_at
    assert ended[0] == pytest.approx(6.5 + BACK_OFF + 2.0 + 6.0)
    assert ended[1] == 10.0
    assert state.jobs.columns.failures[0] == 1


def test_nothing_is_durable_that_the_twin_has_not_done() -> None:
    state = replay(TwinExecutor(faults=[AttemptFailed(2.0, "0", 1, "killed", durable=9.0)]), None)
    assert state.jobs.columns.ended_at[0] == pytest.approx(2.0 + BACK_OFF + 8.0)


@pytest.mark.parametrize(
    "fault", [AttemptFailed(3.0, "0", 2, "killed"), AttemptFailed(30.0, "0", 1, "killed")]
)
def test_a_fault_spares_an_attempt_that_is_not_there(fault: AttemptFailed) -> None:
    state = replay(TwinExecutor(faults=[fault]), None)
    assert state.jobs.columns.ended_at[0] == 10.0
    assert state.jobs.columns.failures[0] == 0


def test_faults_happen_in_the_order_of_their_times() -> None:
    faults = [AttemptFailed(8.0, "1", 1, "killed"), AttemptFailed(3.0, "0", 1, "killed")]
    state = replay(TwinExecutor(faults=faults), None, None)
    assert state.jobs.columns.ended_at[:2].tolist() == pytest.approx(
        [3.0 + BACK_OFF + 10.0, 8.0 + BACK_OFF + 10.0]
    )


def test_costs_go_by_model_where_it_has_its_own() -> None:
    executor = TwinExecutor(Costs(start=1.0), by_model={"slow": Costs(start=5.0, stop=2.0)})
    state = replay(executor, "slow", "other", None)
    assert state.jobs.columns.ended_at[:3].tolist() == [17.0, 11.0, 11.0]
