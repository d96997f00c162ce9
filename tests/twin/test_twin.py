"""The twin: costs charged as stated, figures worked out by hand, nothing gained and nothing lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from haibun.app import make_engine, make_stages
from haibun.core.actions import ContinueAttempt, HoldAttempt, StartAttempt, StopAttempt
from haibun.core.codec import encode
from haibun.core.engine import Engine
from haibun.core.events import AttemptHeld, AttemptStarted, AttemptStopped, AttemptSucceeded, NodeJoined
from haibun.core.stages import Keys, Rows
from haibun.core.state import State, UnitRates
from haibun.core.view import View
from haibun.core.vocabulary import Cluster, DeviceGroup, Job, Node, Shape, StopMode
from haibun.order.keyed import Due, Keyed, columns, not_running
from haibun.order.lane import Lanes
from haibun.profile import ThroughputTable
from haibun.trace.generate import generate
from haibun.twin.costs import Costs
from haibun.twin.executor import TwinExecutor
from haibun.twin.metrics import summary
from haibun.twin.replay import History, Replay, ReplayError

POLICIES = {"fifo": {}, "srtf": {}, "tiresias": {"queue_limits": [600.0, 6000.0], "promote_knob": 2.0}}


def rack(*nodes: int) -> Cluster:
    return Cluster(tuple(Node(f"n{i}", (DeviceGroup("gpu", k),)) for i, k in enumerate(nodes)))


def replay(cluster: Cluster, jobs: list[Job], times: list[float], costs: Costs | None = None) -> State:
    engine = make_engine(cluster, "fifo", rates=UnitRates())
    Replay(engine, iter(jobs), times, TwinExecutor(costs)).run()
    return engine.state


def job(name: str, seconds: float, devices: int = 1, priority: int = 0) -> Job:
    return Job(name, (Shape(devices),), total_steps=seconds, priority=priority)


def jct(state: State) -> list[float]:
    c = state.jobs.columns
    return pytest.approx((c.ended_at - c.submitted)[: c.n].tolist())  # type: ignore[no-any-return]


# --- costs ---------------------------------------------------------------------------------------------------------


def test_start_resume_checkpoint_and_stop_are_charged_as_stated() -> None:
    costs = Costs(start=1.0, resume=2.0, move=4.0, checkpoint=3.0, stop=0.5)
    state = replay(rack(1), [job("a", 10.0), job("b", 3.0, priority=1)], [0.0, 2.0], costs)
    # a: up at 1, told at 2 with one step done, gone at 5. b: up at 6, last step at 9, gone at 9.5.
    # a: up again at 11.5 where it was before (no move), nine steps until 20.5, gone at 21.
    assert jct(state) == [21.0, 7.5]


def test_a_move_is_charged_where_devices_differ_and_only_there() -> None:
    jobs = [job("x", 6.0, priority=2), job("a", 10.0), job("b", 100.0, priority=1)]
    state = replay(rack(1, 1), jobs, [0.0, 0.0, 2.0], Costs(resume=2.0, move=4.0))
    # a ran 0-2 beside x, gave way to b, and goes on at 6 where x was: up at 12, eight more steps
    assert jct(state) == [6.0, 20.0, 100.0]


def test_without_costs_a_preempted_job_loses_nothing() -> None:
    state = replay(rack(1), [job("a", 10.0), job("b", 3.0, priority=1)], [0.0, 2.0])
    assert jct(state) == [13.0, 3.0]
    assert state.jobs.columns.lost[:2].tolist() == [0.0, 0.0]


def test_costs_are_numbers_of_seconds() -> None:
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="start"):
            Costs(start=bad)


# --- the executor --------------------------------------------------------------------------------------------------


def started(seconds: float = 10.0, costs: Costs | None = None) -> TwinExecutor:
    executor = TwinExecutor(costs)
    executor.expect("a", seconds)
    executor.perform([StartAttempt("a", 1, (0,), durable=2.0, rate=1.0)], 0.0)
    return executor


def test_time_spent_held_is_added_to_the_end() -> None:
    executor = started()
    assert executor.next_due() == 8.0
    assert executor.perform([HoldAttempt("a", 1)], 3.0) == [AttemptHeld(3.0, "a", 1, 5.0)]
    assert executor.next_due() == np.inf
    assert executor.perform([ContinueAttempt("a", 1)], 4.0) == [AttemptStarted(4.0, "a", 1)]
    assert executor.next_due() == 9.0
    assert executor.take_due(9.0) == [AttemptSucceeded(9.0, "a", 1, 10.0)]


def test_going_on_is_nothing_to_an_attempt_that_runs_or_is_not_there() -> None:
    executor = started()
    assert (
        executor.perform([ContinueAttempt("a", 1), ContinueAttempt("a", 9), ContinueAttempt("b", 1)], 3.0)
        == []
    )
    assert executor.next_due() == 8.0


def test_a_killed_attempt_falls_back_to_what_it_started_from_and_a_checkpointed_one_does_not() -> None:
    for mode, durable in ((StopMode.KILL, 2.0), (StopMode.CHECKPOINT, 5.0)):
        stopped = started().perform([StopAttempt("a", 1, mode)], 3.0)
        assert stopped == [AttemptStopped(3.0, "a", 1, 5.0, durable)]


def test_an_attempt_stopped_before_it_was_up_never_comes_up() -> None:
    executor = started(costs=Costs(start=5.0, checkpoint=60.0))
    executor.perform([StopAttempt("a", 1, StopMode.CHECKPOINT)], 1.0)
    assert executor.next_due() == 61.0
    assert executor.take_due(61.0) == [AttemptStopped(61.0, "a", 1, 2.0, 2.0)]


def test_no_attempt_does_more_steps_than_its_job_has() -> None:
    executor = started(costs=Costs(stop=100.0))
    assert executor.perform([StopAttempt("a", 1, StopMode.CHECKPOINT)], 50.0) == [
        AttemptStopped(50.0, "a", 1, 10.0, 10.0)
    ]


def test_an_order_to_an_attempt_that_has_passed_does_nothing() -> None:
    executor = started()
    assert executor.perform([StopAttempt("a", 7, StopMode.KILL), HoldAttempt("b", 1)], 1.0) == []


# --- figures -------------------------------------------------------------------------------------------------------


def test_figures_of_a_replay_worked_out_by_hand() -> None:
    state = replay(rack(4), [job("a", 10.0, 4), job("b", 5.0, 4), job("c", 2.0)], [0.0, 1.0, 2.0])
    figures = summary(state, 1.5)
    expected = {
        "policy": "fifo",
        "jobs": 3,
        "finished": 3,
        "avg_jct": 13.0,
        "median_jct": 14.0,
        "p95_jct": 14.9,
        "p99_jct": 14.98,
        "makespan": 17.0,
        "avg_queueing": 22.0 / 3.0,
        "utilisation": 62.0 / 68.0,
        "preemptions": 0,
        "gpu_hours": 62.0 / 3600.0,
        "cpu_s": 1.5,
    }
    assert {name: figures[name] for name in expected} == pytest.approx(expected)


def test_figures_that_do_not_exist_are_none() -> None:
    figures = summary(State())
    assert [figures[name] for name in ("avg_jct", "p99_jct", "makespan", "avg_queueing", "utilisation")] == [
        None
    ] * 5


def test_a_throughput_table_sets_the_pace_on_each_device_type() -> None:
    table = ThroughputTable()
    for kind, rate in (("slow", 1.0), ("fast", 4.0)):
        table.set("m", kind, 1, rate)
    cluster = Cluster((Node("s", (DeviceGroup("slow", 1),)), Node("f", (DeviceGroup("fast", 1),))))
    engine = make_engine(cluster, "fifo", rates=table)
    jobs = [Job(str(i), (Shape(1),), model="m", total_steps=40.0) for i in range(3)]
    Replay(engine, iter(jobs), [0.0] * 3).run()
    assert jct(engine.state) == [10.0, 40.0, 20.0]


def test_a_job_that_comes_just_when_another_ends_starts_there_and_then() -> None:
    state = replay(rack(1), [job("a", 10.0), job("b", 5.0), job("c", 5.0)], [0.0, 10.0, 15.0])
    assert jct(state) == [10.0, 5.0, 5.0]
    assert state.jobs.columns.waited[:3].tolist() == [0.0, 0.0, 0.0]


# --- conservation and determinism ----------------------------------------------------------------------------------


def journal(policy: str, costs: Costs, seed: int) -> tuple[State, History, bytes]:
    trace = generate(120, 16, load=1.3, seed=seed).select(max_devices=16)
    engine = make_engine(rack(4, 8, 4), policy, POLICIES[policy], rates=UnitRates())
    journal = bytearray()
    handle = engine.handle

    def recorded(events: Any, now: float) -> Any:
        return handle(events, now, record=lambda event: journal.extend(encode(event)[2]))

    engine.handle = recorded  # type: ignore[method-assign]
    history = History()
    Replay(engine, trace.jobs(), trace.submit.tolist(), TwinExecutor(costs), history).run()
    return engine.state, history, bytes(journal)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("costs", [Costs(), Costs(5.0, 20.0, 10.0, 30.0, 2.0)])
def test_service_is_width_times_time_on_devices_and_every_step_is_done_once(
    policy: str, costs: Costs
) -> None:
    state, history, _ = journal(policy, costs, seed=3)
    c = state.jobs.columns
    had = np.zeros(c.n)
    for span in history.spans:
        had[state.jobs.row_of[span.job]] += len(span.devices) * (span.end - span.start)
    assert c.service[: c.n] == pytest.approx(had)
    assert c.done[: c.n] == pytest.approx(c.total[: c.n])
    assert c.lost[: c.n].sum() == pytest.approx(0.0)
    if not any(getattr(costs, name) for name in costs.__struct_fields__):
        widths = [state.jobs.job(row).shapes[0].devices for row in range(c.n)]
        assert c.service[: c.n] == pytest.approx(c.total[: c.n] * widths)
    figures = summary(state)
    assert 0.0 < figures["utilisation"] <= 1.0
    assert max(history.busy) <= 16


@pytest.mark.parametrize("policy", POLICIES)
def test_a_replay_gives_the_same_journal_byte_for_byte(policy: str) -> None:
    costs = Costs(1.0, 2.0, 3.0, 4.0, 0.5)
    assert journal(policy, costs, seed=5)[2] == journal(policy, costs, seed=5)[2]


# --- faults of the policy and of the input -------------------------------------------------------------------------


class Thrashes(Keyed):
    """Whoever waits goes before whoever runs."""

    name = "thrashes"

    def keys(self, view: View, rows: Rows, now: float) -> Keys:
        return columns(~not_running(view, rows))


class WakesUp(Keyed):
    """Wants to be woken now, for ever."""

    name = "wakes-up"

    def keys(self, view: View, rows: Rows, now: float) -> Keys:
        return columns(view.jobs.submitted[rows])

    def due(self, view: View, lanes: Lanes, now: float) -> Due:
        return Due(wake_at=now)


@pytest.mark.parametrize(("policy", "words"), [(Thrashes, "changes its plan"), (WakesUp, "wakes up")])
def test_a_policy_that_never_comes_to_rest_is_reported(policy: type[Keyed], words: str) -> None:
    stages = make_stages("fifo")
    stages.policy = policy()
    engine = Engine(State(UnitRates()), stages)
    engine.apply(NodeJoined(0.0, Node("n", (DeviceGroup("gpu", 1),))))
    with pytest.raises(ReplayError, match=f"{words} for ever"):
        Replay(engine, iter([job("a", 5.0), job("b", 5.0)]), [0.0, 1.0]).run()


def test_jobs_that_can_never_start_are_reported_by_name() -> None:
    with pytest.raises(ReplayError, match=r"1 jobs can never start or never end, among them big"):
        replay(rack(2, 2), [job("small", 1.0), job("big", 1.0, 5)], [0.0, 0.0])
