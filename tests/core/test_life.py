"""The life of a job, event by event: what each request, report and loss does in each state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from core_world import World, gang, picture, rack

from haibun.core.actions import ContinueAttempt, HoldAttempt, StartAttempt, StopAttempt
from haibun.core.admission import AdmissionError, admit
from haibun.core.decision import Decision, Evict, Place
from haibun.core.events import (
    AttemptFailed,
    AttemptHeld,
    AttemptProgressed,
    AttemptStarted,
    AttemptStopped,
    AttemptSucceeded,
    Decided,
    JobCancelled,
    JobPaused,
    JobReprioritised,
    JobResumed,
    JobsRetired,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeResumed,
    Tick,
)
from haibun.core.life import apply
from haibun.core.reasons import Reason, Why
from haibun.core.snapshot import dump, load
from haibun.core.state import LearntRates, State
from haibun.core.vocabulary import Job, JobState, Locality, Shape, StopMode


def submit(world: World, *jobs: Job) -> None:
    for job in jobs:
        world.feed(JobSubmitted(world.now, job))


def one(state: str) -> World:
    """A world with one device, whose job ``j`` is in a state; another job ``k`` is behind or ahead where need be."""
    w = World(rack(1), "fifo")
    if state == "pending":
        submit(w, gang("k", walltime=1e9), gang("j", depends_on=("k",)))
        return w
    if state in ("queued", "awaiting"):
        submit(w, gang("k"), gang("j", priority=int(state == "awaiting")))
        w.start("k") if "k" in w.attempts else None
        return w
    submit(w, gang("j", retries=1))
    if state == "starting":
        return w
    w.start("j")
    w.progress("j", 4.0, 3.0)
    if state == "held":
        w.feed(JobPaused(w.now, "j", hold=True))
        w.held("j")
    elif state == "paused":
        w.feed(JobPaused(w.now, "j"))
        w.stopped("j")
    elif state == "stopping":
        w.feed(JobPaused(w.now, "j"))
        w.feed(JobResumed(w.now, "j"))
    elif state == "recovering":
        w.fail("j")
    return w


STATES = {
    "pending": JobState.PENDING,
    "queued": JobState.QUEUED,
    "awaiting": JobState.STARTING,
    "starting": JobState.STARTING,
    "running": JobState.RUNNING,
    "held": JobState.PAUSED,
    "paused": JobState.PAUSED,
    "stopping": JobState.STOPPING,
    "recovering": JobState.RECOVERING,
}


@pytest.mark.parametrize("state", STATES)
def test_the_states_of_this_table_are_what_they_are_called(state: str) -> None:
    assert one(state).where("j") == STATES[state]


@pytest.mark.parametrize("state", STATES)
def test_a_cancelled_job_ends_in_every_state_once_its_devices_are_free(state: str) -> None:
    w = one(state)
    w.feed(JobCancelled(w.now, "j"))
    if state in ("starting", "running", "held", "stopping"):
        assert w.where("j") == JobState.STOPPING
        assert w.attempts["j"].stop == StopMode.KILL
        w.stopped("j")
    assert w.where("j") == JobState.CANCELLED
    assert not w.jobs.gangs.get(w.jobs.row_of["j"])
    w.feed(JobCancelled(w.now, "j"), JobPaused(w.now, "j"), JobResumed(w.now, "j"))
    assert w.where("j") == JobState.CANCELLED


@pytest.mark.parametrize("state", STATES)
def test_a_paused_job_gives_everything_up_in_every_state_and_goes_on_when_resumed(state: str) -> None:
    w = one(state)
    w.feed(JobPaused(w.now, "j"))
    if "j" in w.attempts:
        w.stopped("j")
    assert w.where("j") == JobState.PAUSED
    assert w.jobs.row_of["j"] not in w.jobs.gangs
    w.wait(1e6)
    assert w.where("j") == JobState.PAUSED
    w.feed(JobResumed(w.now, "j"))
    w.finish()
    assert w.where("j") == JobState.SUCCEEDED


@pytest.mark.parametrize("state", STATES)
def test_resuming_a_job_that_is_not_paused_changes_no_job(state: str) -> None:
    w = one(state)
    before = w.where("j")
    w.feed(JobResumed(w.now, "j"))
    if state not in ("paused", "held"):
        assert w.where("j") == before
    w.behave()
    w.finish()
    assert w.where("j") == JobState.SUCCEEDED


def test_a_held_job_keeps_devices_and_process_and_its_work() -> None:
    w = one("held")
    assert w.jobs.gangs[0] == (0,)
    assert w.feed(JobResumed(w.now, "j")) == [ContinueAttempt("j", 1)]
    w.goes_on("j")
    assert w.where("j") == JobState.RUNNING
    assert w.column("j", "done") == 4.0


def test_whoever_asks_last_wins_when_hold_and_resume_overtake_each_other() -> None:
    w = one("running")
    assert w.feed(JobPaused(w.now, "j", hold=True)) == [HoldAttempt("j", 1)]
    w.feed(JobResumed(w.now, "j"))
    assert w.held("j") == [ContinueAttempt("j", 1)]  # it stood still in the meantime
    assert w.feed(JobPaused(w.now, "j", hold=True)) == [HoldAttempt("j", 1)]
    w.feed(AttemptStarted(w.now, "j", 1))  # of the continue that has been taken back
    assert w.where("j") == JobState.PAUSED
    w.wait(100.0)
    assert w.where("j") == JobState.PAUSED


TAKEN: dict[str, Callable[[World], object]] = {
    "its node is lost": lambda w: w.feed(NodeLost(w.now, "n0")),
    "its node is drained": lambda w: (w.feed(NodeDrained(w.now, "n0")), w.stopped("j")),
    "its process fails": lambda w: w.fail("j"),
}


@pytest.mark.parametrize("how", TAKEN)
def test_a_held_job_stays_paused_when(how: str) -> None:
    w = one("held")
    TAKEN[how](w)
    assert w.where("j") == JobState.PAUSED
    assert not w.jobs.gangs
    w.feed(NodeJoined(w.now, w.state.fleet.descriptions[0]), NodeResumed(w.now, "n0"))
    w.wait(1e4)
    assert w.where("j") == JobState.PAUSED


# --- attempts ----------------------------------------------------------------------------------------------------


REPORTS: list[Callable[[int], Any]] = [
    lambda epoch: AttemptStarted(0.0, "j", epoch),
    lambda epoch: AttemptProgressed(0.0, "j", epoch, 9.0, 9.0),
    lambda epoch: AttemptHeld(0.0, "j", epoch, 9.0),
    lambda epoch: AttemptStopped(0.0, "j", epoch, 9.0, 9.0),
    lambda epoch: AttemptSucceeded(0.0, "j", epoch, 9.0),
    lambda epoch: AttemptFailed(0.0, "j", epoch, "late", 9.0, 9.0),
]


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("epoch", [-1, +1])
def test_a_report_of_another_epoch_changes_nothing_in_any_state(report: Any, state: str, epoch: int) -> None:
    w = one(state)
    epoch += w.column("j", "epoch")
    before = picture(w.state)
    actions = apply(w.state, report(epoch))
    assert picture(w.state) | {"sequence": 0} == before | {"sequence": 0}
    alive = isinstance(report(0), AttemptStarted | AttemptProgressed | AttemptHeld)
    assert actions == ([StopAttempt("j", epoch, StopMode.KILL)] if alive else [])


def test_back_off_doubles_from_one_second_to_five_minutes() -> None:
    w = World(rack(1), "fifo")
    submit(w, gang("j", retries=12))
    pauses = []
    for _ in range(11):
        w.fail("j")
        assert w.where("j") == JobState.RECOVERING
        pauses.append(w.engine.next_wake() - w.now)
        w.wait(pauses[-1] * 0.99)
        assert w.where("j") == JobState.RECOVERING
        w.wait(pauses[-1] * 0.01)
        assert w.where("j") == JobState.STARTING
    assert pauses == pytest.approx([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300])


def test_a_job_fails_for_good_after_its_retries_and_at_once_if_no_retry_can_help() -> None:
    w = World(rack(2), "fifo")
    submit(w, gang("j", retries=1), gang("k", retries=5))
    w.fail("j")
    w.fail("k", fatal=True)
    assert (w.where("j"), w.where("k")) == (JobState.RECOVERING, JobState.FAILED)
    w.wait(1.0)
    w.fail("j")
    assert w.where("j") == JobState.FAILED


def test_the_next_attempt_keeps_away_from_the_node_where_the_last_failed() -> None:
    w = World(rack(2, 2), "fifo")
    submit(w, gang("j", retries=3))
    w.fail("j", node="n0")
    (start,) = [a for a in w.wait(1.0) if isinstance(a, StartAttempt)]
    assert w.state.fleet.node_names(start.devices) == ("n1",)


def test_a_failure_on_a_node_nobody_knows_is_a_failure_like_another() -> None:
    w = one("running")
    w.fail("j", node="who?")
    assert w.where("j") == JobState.RECOVERING


def test_no_step_before_the_last_durable_one_is_done_again() -> None:
    w = one("running")
    w.fail("j")
    actions = w.wait(1.0)
    assert actions == [StartAttempt("j", 2, (0,), durable=3.0, rate=0.0, moved=True)]
    w.start("j")
    w.progress("j", 1.0)  # a report from before its checkpoint was loaded
    assert w.column("j", "done") == 3.0


def test_walltime_counts_running_alone_over_all_attempts() -> None:
    w = World(rack(1), "fifo")
    submit(w, gang("j", walltime=10.0, retries=1))
    w.wait(5.0)
    w.start("j")
    w.wait(4.0)
    w.feed(JobPaused(w.now, "j", hold=True))
    w.held("j")
    w.wait(100.0)
    w.feed(JobResumed(w.now, "j"))
    w.goes_on("j")
    w.wait(3.0)
    w.fail("j")
    w.wait(1.0)
    w.start("j")
    assert w.wait(2.9) == []
    assert w.wait(0.1) == [StopAttempt("j", 2, StopMode.CHECKPOINT)]
    w.stopped("j")
    assert w.where("j") == JobState.FAILED
    assert w.column("j", "ran") == pytest.approx(10.0)


def test_an_attempt_that_succeeds_while_it_is_told_to_stop_has_succeeded() -> None:
    w = one("stopping")
    w.succeed("j")
    assert w.where("j") == JobState.SUCCEEDED


# --- nodes -------------------------------------------------------------------------------------------------------


def two_nodes() -> World:
    """Job ``j`` runs on both nodes of a cluster."""
    w = World(rack(2, 2), "fifo")
    submit(w, gang("j", 4))
    w.start("j")
    w.progress("j", 4.0, 3.0)
    return w


def test_a_gang_that_loses_one_of_two_nodes_is_stopped_there_and_queues_only_once_it_is_gone() -> None:
    w = two_nodes()
    assert w.feed(NodeLost(w.now, "n0")) == [StopAttempt("j", 1, StopMode.KILL)]
    assert w.where("j") == JobState.STOPPING
    w.feed(NodeJoined(w.now, w.state.fleet.descriptions[0]))
    assert w.where("j") == JobState.STOPPING
    assert [type(a) for a in w.stopped("j")] == [StartAttempt]
    assert w.column("j", "done") == 3.0
    assert w.column("j", "epoch") == 2


def test_a_gang_that_loses_both_nodes_queues_at_once_and_its_work_falls_back_to_what_is_durable() -> None:
    w = two_nodes()
    w.feed(NodeLost(w.now, "n0"), NodeLost(w.now, "n1"))
    assert w.where("j") == JobState.QUEUED
    assert not w.attempts
    assert w.column("j", "done") == 3.0


def test_a_job_told_to_stop_falls_back_too_when_its_node_is_lost_before_it_has() -> None:
    w = one("running")
    w.feed(JobPaused(w.now, "j"))
    w.feed(NodeLost(w.now, "n0"))
    assert w.where("j") == JobState.PAUSED
    assert w.column("j", "done") == 3.0


def test_lost_work_is_booked_once() -> None:
    w = two_nodes()
    w.progress("j", 13.0, 3.0, rate=2.0)
    w.feed(NodeLost(w.now, "n0"))
    w.stopped("j")
    assert w.column("j", "lost") == pytest.approx(5.0)


def test_what_was_only_planned_for_a_node_never_starts_there_when_it_is_lost_or_drained() -> None:
    for leave in (NodeLost(0.0, "n0"), NodeDrained(0.0, "n0"), NodeDrained(0.0, "n0", evict=False)):
        w = World(rack(2, 2), "fifo")
        submit(w, gang("low", 2), gang("low2", 2))
        w.behave()
        submit(w, gang("high", 3, priority=1))
        assert w.where("high") == JobState.STARTING
        actions = w.feed(leave)
        if "low" in w.attempts and w.attempts["low"].stop:
            actions += w.stopped("low")
        starts = [a for a in actions if isinstance(a, StartAttempt)]
        assert all(w.state.fleet.node_names(a.devices) == ("n1",) for a in starts)
        assert w.where("high") == JobState.QUEUED


def test_a_drained_node_takes_nothing_new_until_it_is_resumed_whatever_happens_to_it() -> None:
    w = World(rack(1), "fifo")
    w.feed(NodeDrained(w.now, "n0"))
    submit(w, gang("j"))
    node = w.state.fleet.descriptions[0]
    for event in (NodeJoined(0.0, node), NodeLost(0.0, "n0"), NodeJoined(0.0, node)):
        w.feed(event)
        assert w.where("j") == JobState.QUEUED
    w.feed(NodeLost(0.0, "n0"), NodeResumed(0.0, "n0"))
    assert w.where("j") == JobState.QUEUED, "a lost node does not come back by being resumed"
    w.feed(NodeJoined(0.0, node))
    assert w.where("j") == JobState.STARTING


@pytest.mark.parametrize("evict", [True, False])
def test_draining_moves_what_runs_if_and_only_if_asked(evict: bool) -> None:
    w = World(rack(1, 1), "fifo")
    submit(w, gang("j", preemptible=False))
    w.start("j")
    actions = w.feed(NodeDrained(w.now, "n0", evict=evict))
    assert actions == ([StopAttempt("j", 1, StopMode.CHECKPOINT)] if evict else [])
    if evict:
        (start,) = [a for a in w.stopped("j") if isinstance(a, StartAttempt)]
        assert start.devices == (1,)


# --- order and dependencies --------------------------------------------------------------------------------------


def test_jobs_are_cancelled_with_what_they_depend_on_however_long_the_chain() -> None:
    w = World(rack(1), "fifo")
    submit(w, gang("0"))
    state, length = w.state, 3000
    for i in range(1, length):
        apply(state, JobSubmitted(0.0, gang(str(i), depends_on=(str(i - 1),))))
    apply(state, JobCancelled(0.0, str(length // 2)))
    apply(state, AttemptFailed(0.0, "0", 1, "no", fatal=True))
    states = [state.jobs.state(state.jobs.row_of[str(i)]) for i in range(length)]
    assert states == [JobState.FAILED, *[JobState.CANCELLED] * (length - 1)]


def test_a_job_is_queued_when_the_last_it_depends_on_succeeds() -> None:
    w = World(rack(2), "fifo")
    submit(w, gang("a"), gang("b"), gang("j", depends_on=("a", "b")))
    w.behave()
    w.succeed("a")
    assert w.where("j") == JobState.PENDING
    w.succeed("b")
    assert w.where("j") == JobState.STARTING
    submit(w, gang("k", depends_on=("a", "b")))
    assert w.where("k") == JobState.STARTING


def test_a_row_used_again_is_no_ones_dependent() -> None:
    w = World(rack(1), "fifo")
    submit(w, gang("a"), gang("j", depends_on=("a",)))
    w.feed(JobCancelled(w.now, "j"), JobsRetired(w.now, ("j",)))
    submit(w, gang("b"), gang("j", depends_on=("b",)))
    w.behave()
    w.succeed("a")
    assert w.where("j") == JobState.PENDING
    w.behave()
    w.succeed("b")
    assert w.where("j") == JobState.STARTING


def test_raising_a_priority_takes_devices_at_once_and_lowering_it_gives_them_up() -> None:
    w = World(rack(1), "fifo")
    submit(w, gang("a"), gang("b"))
    w.start("a")
    assert w.feed(JobReprioritised(w.now, "b", 1)) == [StopAttempt("a", 1, StopMode.CHECKPOINT)]
    w.stopped("a")
    w.start("b")
    assert w.feed(JobReprioritised(w.now, "b", -1)) == [StopAttempt("b", 1, StopMode.CHECKPOINT)]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias"])
def test_no_policy_takes_the_devices_of_a_job_that_is_not_preemptible(policy: str) -> None:
    w = World(rack(2), policy)
    submit(w, gang("j", 2, preemptible=False, total_steps=1e6))
    w.start("j")
    submit(w, gang("k", 1, priority=9, total_steps=1.0))
    w.wait(1e6)
    assert w.where("j") == JobState.RUNNING
    assert w.where("k") == JobState.QUEUED


def test_an_evicted_jobs_devices_are_planned_at_once_and_given_on_once_they_are_free() -> None:
    w = World(rack(2), "fifo")
    submit(w, gang("low", 2))
    w.start("low")
    w.wait(10.0)
    submit(w, gang("high", 2, priority=1))
    assert (w.where("low"), w.where("high")) == (JobState.STOPPING, JobState.STARTING)
    w.wait(5.0)
    assert [type(a) for a in w.stopped("low")] == [StartAttempt]
    w.wait(1.0)
    w.start("high")
    w.succeed("high")
    assert w.column("low", "service") == pytest.approx(2 * 15.0)
    assert w.column("high", "service") == pytest.approx(2 * 1.0), "no device is had by two at once"


# --- what contradicts the State ------------------------------------------------------------------------------------


def test_events_that_contradict_the_state_are_refused() -> None:
    w = one("running")
    reason = Reason(Why.PLACED, (0, "test", 1, "a", "n0"))
    submit(w, gang("k"))
    wrong = [
        JobSubmitted(0.0, gang("j")),
        JobCancelled(0.0, "nobody"),
        NodeLost(0.0, "nowhere"),
        JobsRetired(0.0, ("j",)),
        Decided(0.0, Decision(place=(Place(("k",), (0,), 0, reason),))),
        Decided(0.0, Decision(place=(Place(("j",), (0,), 0, reason),))),
        Decided(0.0, Decision(evict=(Evict("k", reason),))),
    ]
    for event in wrong:
        with pytest.raises(ValueError, match=r"job|node"):
            apply(w.state, event)


def test_admission_refuses_what_can_never_be_placed_and_nothing_else() -> None:
    w = World(rack(2, 2, cpus=4.0), "fifo")
    admit(w.state, gang("j", 4))
    admit(w.state, gang("j", 2, cpus=2.0))
    for bad in (
        gang("j", 5),
        gang("j", 3, shape={"locality": Locality.NODE}),
        gang("j", 1, cpus=4.5),
        gang("j", 2, shape={"device_type": "z"}),
        gang("j", 6, shape={"nodes": 2}),
        gang("j", depends_on=("nobody",)),
    ):
        with pytest.raises(AdmissionError):
            admit(w.state, bad)


def test_a_snapshot_holds_what_a_policy_remembers_though_jobs_came_since() -> None:
    w = World(rack(1), "tiresias")
    submit(w, gang("0"))
    w.state.memory.column("tiresias.base", 1)[0] = 7.0
    for i in range(1, 500):
        apply(w.state, JobSubmitted(0.0, gang(str(i))))
    restored = load(dump(w.state), LearntRates())
    assert picture(restored) == picture(w.state)
    assert restored.memory.columns["tiresias.base"][0] == 7.0


def test_time_never_runs_backwards() -> None:
    w = one("running")
    w.wait(10.0)
    apply(w.state, Tick(3.0))
    assert w.state.now == 10.0
    assert not math.isnan(w.column("j", "service"))
    assert State().now == -math.inf
    assert Shape(1).locality is Locality.SITE
