"""Schedules worked out by hand, one second a step, replayed under each policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from haibun.app import UnknownPolicyError, make_engine, make_policy
from haibun.core.state import State, UnitRates
from haibun.core.vocabulary import Cluster, DeviceGroup, Job, Node, Shape
from haibun.twin.replay import Replay

ONE, TWO, FOUR = (Cluster((Node("n", (DeviceGroup("gpu", k),)),)) for k in (1, 2, 4))
Plan = list[tuple[float, int, float, int]]  # (submission, devices, seconds, priority)


def run(
    policy: str, cluster: Cluster, plan: Plan, params: dict[str, Any] | None = None, at: float = 0.0
) -> State:
    engine = make_engine(cluster, policy, params, rates=UnitRates(), at=at)
    jobs = [
        Job(str(i), (Shape(k),), total_steps=seconds, priority=priority)
        for i, (_, k, seconds, priority) in enumerate(plan)
    ]
    Replay(engine, iter(jobs), [at + submitted for submitted, *_ in plan]).run()
    return engine.state


def ends(state: State) -> list[float]:
    return pytest.approx(state.jobs.columns.ended_at[: state.jobs.columns.n].tolist())  # type: ignore[no-any-return]


# --- fifo --------------------------------------------------------------------------------------------------------


def test_fifo_lets_nobody_pass_a_blocked_job() -> None:
    state = run("fifo", FOUR, [(0, 4, 10, 0), (1, 4, 5, 0), (2, 1, 2, 0)])
    assert ends(state) == [10, 15, 17]


def test_fifo_fills_the_cluster_in_order_of_submission() -> None:
    state = run("fifo", FOUR, [(0, 2, 10, 0), (1, 2, 3, 0), (2, 2, 1, 0), (2, 2, 1, 0)])
    assert ends(state) == [10, 4, 5, 6]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias"])
def test_a_job_of_higher_priority_takes_devices_and_one_of_the_same_priority_waits(policy: str) -> None:
    state = run(policy, ONE, [(0, 1, 10, 0), (2, 1, 13, 1), (3, 1, 20, 1)])
    assert ends(state) == [43, 15, 35]
    assert state.jobs.columns.preemptions[:3].tolist() == [1, 0, 0]


def test_fifo_takes_devices_only_from_the_lowest_priority_there_is() -> None:
    state = run("fifo", TWO, [(0, 1, 10, 1), (0, 1, 10, 0), (5, 1, 5, 2)])
    assert ends(state) == [10, 15, 10]


# --- srtf --------------------------------------------------------------------------------------------------------


def test_srtf_runs_what_has_least_left_to_run() -> None:
    state = run("srtf", ONE, [(0, 1, 10, 0), (1, 1, 2, 0), (2, 1, 4, 0)])
    assert ends(state) == [16, 3, 7]


def test_srtf_counts_what_is_left_of_a_running_job_and_not_its_whole_length() -> None:
    state = run("srtf", ONE, [(0, 1, 10, 0), (6, 1, 5, 0), (6, 1, 3, 0)])
    assert ends(state) == [13, 18, 9]


def test_srtf_passes_a_blocked_job() -> None:
    state = run("srtf", TWO, [(0, 1, 10, 0), (1, 2, 3, 0), (2, 1, 4, 0)])
    assert ends(state) == [13, 4, 8]


# --- tiresias ----------------------------------------------------------------------------------------------------


def tiresias(cluster: Cluster, plan: Plan, limits: list[float], knob: float = 0.0, at: float = 0.0) -> State:
    return run("tiresias", cluster, plan, {"queue_limits": limits, "promote_knob": knob}, at)


def test_tiresias_demotes_a_job_at_the_queue_limit() -> None:
    assert ends(tiresias(ONE, [(0, 1, 10, 0), (2, 1, 4, 0)], [5.0])) == [14, 9]


def test_tiresias_counts_devices_times_seconds() -> None:
    assert ends(tiresias(TWO, [(0, 2, 10, 0), (1, 1, 4, 0)], [5.0])) == [14, 6.5]


def test_tiresias_runs_a_queue_in_order_of_first_start_without_taking_turns() -> None:
    state = tiresias(ONE, [(0, 1, 8, 0)] * 3, [5.0])
    assert ends(state) == [18, 21, 24]
    assert state.jobs.columns.preemptions[:3].tolist() == [1, 1, 1]


def test_tiresias_has_as_many_queues_as_limits_and_one_more() -> None:
    # 0: 0-2, 2-4 of queue 1 after 1 has had 2; both then in queue 2, in order of first start
    state = tiresias(ONE, [(0, 1, 6, 0), (0, 1, 6, 0)], [2.0, 4.0])
    assert ends(state) == [10, 12]


def test_tiresias_promotes_a_job_that_has_waited_knob_times_as_long_as_it_ran() -> None:
    plan: Plan = [(0, 1, 8, 0), *[(0.0, 1, 4.0, 0)] * 4]
    state = tiresias(ONE, plan, [5.0], knob=2.0)
    # job 0 runs 0-5, is promoted at 15 and, first started at 0, goes before job 3 (13-15): 15-18
    assert ends(state) == [18, 9, 13, 20, 24]


def test_tiresias_without_promotion_lets_it_wait_until_queue_0_is_empty() -> None:
    plan: Plan = [(0, 1, 8, 0), *[(0.0, 1, 4.0, 0)] * 4]
    assert ends(tiresias(ONE, plan, [5.0])) == [24, 9, 13, 17, 21]


def test_tiresias_counts_service_anew_after_a_promotion() -> None:
    plan: Plan = [(0, 1, 12, 0), *[(0.0, 1, 4.0, 0)] * 5]
    state = tiresias(ONE, plan, [5.0], knob=2.0)
    # promoted at 15, demoted again at 20 after 5 more seconds: the rest comes last
    assert ends(state) == [32, 9, 13, 22, 26, 30]


@pytest.mark.parametrize("at", [0.0, 1.7e9 + 0.123])
@pytest.mark.parametrize("nodes", [1, 512])
def test_tiresias_wakes_up_once_for_a_demotion_at_any_clock_and_width(at: float, nodes: int) -> None:
    cluster = Cluster(tuple(Node(f"n{i}", (DeviceGroup("gpu", 8),)) for i in range(nodes)))
    width = 8 * nodes
    limits = [width * 33.3, width * 77.7]
    engine = make_engine(cluster, "tiresias", {"queue_limits": limits}, rates=UnitRates(), at=at)
    jobs = [Job(str(i), (Shape(width),), total_steps=1000.0) for i in range(2)]
    rounds = 0
    decide = engine.decide

    def counted(now: float) -> Any:
        nonlocal rounds
        rounds += 1
        return decide(now)

    engine.decide = counted  # type: ignore[method-assign]
    Replay(engine, iter(jobs), [at, at]).run()
    assert rounds < 60


@pytest.mark.parametrize(
    "params",
    [
        {"queue_limits": []},
        {"queue_limits": [0.0]},
        {"queue_limits": [-1.0, 5.0]},
        {"queue_limits": [5.0, 5.0]},
        {"queue_limits": [float("nan")]},
        {"queue_limits": "soon"},
        {"promote_knob": -1.0},
        {"promote_knob": float("nan")},
        {"quantum": 3.0},
    ],
)
def test_parameters_that_make_no_sense_are_refused_in_words(params: dict[str, Any]) -> None:
    with pytest.raises(UnknownPolicyError, match="tiresias"):
        make_policy("tiresias", params)


def test_the_queue_of_a_job_follows_from_its_service_alone() -> None:
    """So a job whose devices were slow to come free is not put back with more service than its queue allows."""
    from haibun.core.view import View
    from haibun.order.tiresias import Tiresias

    state = tiresias(ONE, [(0, 1, 3, 0), (0, 1, 7, 0), (0, 1, 40, 0)], [5.0, 30.0])
    keys = Tiresias([5.0, 30.0]).keys(View(state), np.arange(3), 50.0)
    assert keys[:, 1].tolist() == [0.0, 1.0, 2.0]
