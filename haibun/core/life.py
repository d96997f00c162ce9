"""How events change the State: the life of a job, of an attempt and of a node, as one function for each event.

``apply`` is the only way in. It returns the actions that make the change true. Applying the same events to the same
State always gives the same State; an event about an attempt whose epoch has passed changes nothing, and where such an
attempt shows itself alive, it is told to stop.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

from haibun.core.actions import Action, ContinueAttempt, HoldAttempt, StartAttempt, StopAttempt
from haibun.core.decision import Decision, Evict, Place
from haibun.core.events import (
    AnyEvent,
    AttemptFailed,
    AttemptHeld,
    AttemptProgressed,
    AttemptStarted,
    AttemptStopped,
    AttemptSucceeded,
    Configured,
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
    ThroughputMeasured,
    Tick,
)
from haibun.core.fleet import NO_JOB, Health
from haibun.core.jobs import Intent
from haibun.core.reasons import Reason, Why
from haibun.core.state import State
from haibun.core.vocabulary import (
    CANCELLED,
    FAILED,
    PAUSED,
    PENDING,
    QUEUED,
    RECOVERING,
    RUNNING,
    STARTING,
    STOPPING,
    SUCCEEDED,
    StopMode,
)

BACKOFF_FIRST = (
    1.0  # seconds before the first retry; doubles with each failure: a broken node or script must not spin
)
BACKOFF_MOST = 300.0

WAITING = (PENDING, QUEUED, RECOVERING)
Actions = list[Action]

_NONE, _REQUEUE, _PAUSE, _CANCEL, _END, _RECOVER = map(int, Intent)  # as ints: see vocabulary
_CHECKPOINT, _KILL = StopMode.CHECKPOINT, StopMode.KILL
_SUCCEEDED = Reason(Why.ENDED, ("succeeded",))


def apply(state: State, event: AnyEvent) -> Actions:
    """Change the State by one event; returns what an executor must now do, in order.

    Raises:
        ValueError: the event contradicts the State (an unknown job, a decision that over-commits): a fault of whoever
            made the event, which should have validated it first (``admission``).
    """
    actions: Actions = []
    if event.at > state.now:
        state.now = event.at
    _run_timers(state, actions)
    _HANDLERS[type(event)](state, event, actions)
    state.sequence += 1
    return actions


# --- configuration and nodes -----------------------------------------------------------------------------------


def _configured(state: State, event: Configured, actions: Actions) -> None:
    config = state.config
    if event.policy != config.policy:
        state.memory.columns.clear()
    config.policy, config.params, config.placer = event.policy, event.params, event.placer
    state.delta.full = state.dirty = True


def _node_joined(state: State, event: NodeJoined, actions: Actions) -> None:
    state.fleet.join(event.node)
    state.capacity_changed()


def _node_resumed(state: State, event: NodeResumed, actions: Actions) -> None:
    state.fleet.set_health(_node(state, event.node), Health.UP)
    state.capacity_changed()


def _node_drained(state: State, event: NodeDrained, actions: Actions) -> None:
    node = _node(state, event.node)
    state.fleet.set_health(node, Health.DRAINING)
    state.capacity_changed()
    if event.evict:
        for row in _rows_on(state, node):
            if state.jobs.columns.state[row] in (STARTING, RUNNING):
                _give_back(state, row, _REQUEUE, Reason(Why.NODE_DRAINED, (event.node,)), actions)


def _node_lost(state: State, event: NodeLost, actions: Actions) -> None:
    node = _node(state, event.node)
    state.fleet.set_health(node, Health.LOST)
    state.capacity_changed()
    for row in _rows_on(state, node):
        _lose_node(state, row, node, event, actions)


def _lose_node(state: State, row: int, node: int, event: NodeLost, actions: Actions) -> None:
    """One gang loses what it has on a node: the rest of it is stopped, or if nothing is left it queues again."""
    c, fleet = state.jobs.columns, state.fleet
    reason = Reason(Why.NODE_LOST, (event.node,))
    if not c.launched[row]:
        _give_back(state, row, _REQUEUE, reason, actions)
        return
    gang = state.jobs.gangs[row]
    cpu, memory = _per_device(state, row)
    there = tuple(d for d in gang if fleet.node_of(d) == node)
    fleet.release(row, there, cpu, memory)
    if c.state[row] != STOPPING:
        c.accrue(row, state.now)
        c.avoid[row] = node
        _lose_work(state, row, float(c.durable[row]))
        _begin_stop(state, row, _RECOVER, reason, _KILL, actions, tell=len(there) < len(gang))
    if all(fleet.devices.owner[d] != row for d in gang):
        _gone(state, row, actions)


def _rows_on(state: State, node: int) -> list[int]:
    return [
        row for row, gang in state.jobs.gangs.items() if any(state.fleet.node_of(d) == node for d in gang)
    ]


def _node(state: State, name: str) -> int:
    node = state.fleet.names.get(name)
    if node is None:
        raise ValueError(f"no node is named {name!r}")
    return node


# --- what users ask --------------------------------------------------------------------------------------------


def _job_submitted(state: State, event: JobSubmitted, actions: Actions) -> None:
    job = event.job
    if job.id in state.jobs.row_of:
        raise ValueError(f"job {job.id} was submitted already")
    row = state.jobs.add(job)
    c = state.jobs.columns
    c.demand[row] = state.demands.number(job, state.fleet, state.rates)
    c.submitted[row] = c.as_of[row] = event.at
    waits_for = [d for d in job.depends_on if not _has_succeeded(state, d)]
    failed = [d for d in waits_for if _has_ended(state, d)]
    waits_for += [d for d in job.after if d in state.jobs.row_of and not _has_ended(state, d)]
    c.blockers[row] = len(waits_for)
    if not waits_for:
        _queue(state, row)
        return
    if failed:
        _end(state, row, CANCELLED, Reason(Why.DEPENDENCY_FAILED, (failed[0],)))
    else:
        c.state[row] = PENDING
        state.jobs.reasons[row] = Reason(Why.WAITS_FOR_JOB, (waits_for[0],))


def _has_succeeded(state: State, job: str) -> bool:
    row = state.jobs.row_of.get(job)
    return row is not None and state.jobs.columns.state[row] == SUCCEEDED


def _has_ended(state: State, job: str) -> bool:
    row = state.jobs.row_of.get(job)
    return row is not None and bool(state.jobs.columns.state[row] >= SUCCEEDED)


def _job_cancelled(state: State, event: JobCancelled, actions: Actions) -> None:
    row = _row(state, event.job)
    reason = Reason(Why.CANCELLED_BY_USER)
    was = int(state.jobs.columns.state[row])
    c = state.jobs.columns
    if was >= SUCCEEDED:
        return
    if was in WAITING or (was == PAUSED and not c.held[row]):
        _end(state, row, CANCELLED, reason)
    elif was == STOPPING:
        c.intent[row] = _CANCEL
        state.jobs.reasons[row] = reason
        actions.append(StopAttempt(event.job, int(c.epoch[row]), _KILL))
    else:
        _give_back(state, row, _CANCEL, reason, actions, _KILL)


def _job_paused(state: State, event: JobPaused, actions: Actions) -> None:
    row = _row(state, event.job)
    was = int(state.jobs.columns.state[row])
    c = state.jobs.columns
    reason = Reason(Why.PAUSED_BY_USER)
    if was in WAITING:
        _leave_queue(state, row)
        c.state[row] = PAUSED
        state.jobs.reasons[row] = reason
        state.touch(row)
    elif was == STOPPING and c.intent[row] in (_REQUEUE, _RECOVER):
        c.intent[row] = _PAUSE
        state.jobs.reasons[row] = reason
    elif was == RUNNING and event.hold:
        actions.append(HoldAttempt(event.job, int(c.epoch[row])))
    elif was in (STARTING, RUNNING) or (was == PAUSED and c.held[row] and not event.hold):
        _give_back(state, row, _PAUSE, reason, actions)


def _job_resumed(state: State, event: JobResumed, actions: Actions) -> None:
    row = _row(state, event.job)
    was = int(state.jobs.columns.state[row])
    c = state.jobs.columns
    if was == PAUSED and c.held[row]:
        actions.append(ContinueAttempt(event.job, int(c.epoch[row])))
    elif was == PAUSED:
        if c.blockers[row]:
            c.state[row] = PENDING
        else:
            _queue(state, row)
    elif was == STOPPING and c.intent[row] == _PAUSE:
        c.intent[row] = _REQUEUE


def _job_reprioritised(state: State, event: JobReprioritised, actions: Actions) -> None:
    row = _row(state, event.job)
    state.jobs.columns.priority[row] = event.priority
    state.touch(row)


# --- decisions -------------------------------------------------------------------------------------------------


def _decided(state: State, event: Decided, actions: Actions) -> None:
    decision: Decision = event.decision
    state.decisions += 1
    for change in decision.memory:
        column = state.memory.column(change.column, state.jobs.columns.n)
        for job, value in zip(change.jobs, change.values, strict=True):
            column[_row(state, job)] = value
    for evict in decision.evict:
        _evict(state, evict, actions)
    for place in decision.place:
        _place(state, place, actions)


def _evict(state: State, evict: Evict, actions: Actions) -> None:
    row = _row(state, evict.job)
    if state.jobs.columns.state[row] not in (STARTING, RUNNING):
        raise ValueError(f"job {evict.job} is {state.jobs.state(row).name.lower()}: it cannot be evicted")
    state.jobs.columns.preemptions[row] += 1
    _give_back(state, row, _REQUEUE, evict.reason, actions)


def _place(state: State, place: Place, actions: Actions) -> None:
    job_id = place.jobs[0]
    row = _row(state, job_id)
    c, fleet = state.jobs.columns, state.fleet
    if c.state[row] != QUEUED:
        raise ValueError(f"job {job_id} is {state.jobs.state(row).name.lower()}: it cannot be placed")
    if any(fleet.devices.claim[d] != NO_JOB for d in place.devices):
        raise ValueError(f"the decision gives job {job_id} a device that another job has")
    cpu, memory = _per_device(state, row)
    fleet.claim(row, place.devices, cpu, memory)
    _leave_queue(state, row)
    state.jobs.gangs[row] = place.devices
    c.epoch[row] += 1
    c.state[row], c.launched[row] = STARTING, False
    c.width[row] = len(place.devices)
    c.type[row] = fleet.pools.type[fleet.devices.pool[place.devices[0]]]
    c.as_of[row] = c.started_at[row] = state.now
    if math.isnan(c.first_start[row]):
        c.first_start[row] = state.now
    state.jobs.reasons[row] = place.reason
    state.touch(row, decide=False)
    if not _launch(state, row, actions):
        state.awaiting_release[row] = None


def _launch(state: State, row: int, actions: Actions) -> bool:
    """Start the attempt if its devices are free; says whether it did."""
    c, fleet = state.jobs.columns, state.fleet
    gang = state.jobs.gangs[row]
    cpu, memory = _per_device(state, row)
    if not fleet.can_occupy(gang, cpu, memory):
        return False
    fleet.occupy(row, gang, cpu, memory)
    c.launched[row] = True
    job = state.jobs.job(row)
    consolidated = len(gang) == 1 or len(fleet.node_names(gang)) == 1
    rate = state.rates.rate(job.model, fleet.types.names[c.type[row]], len(gang), consolidated)
    c.speed[row] = rate
    actions.append(
        StartAttempt(
            job.id,
            int(c.epoch[row]),
            gang,
            durable=float(c.durable[row]),
            rate=0.0 if math.isnan(rate) else rate,
            moved=bool(c.epoch[row] > 1),
        )
    )
    return True


# --- what attempts report --------------------------------------------------------------------------------------


def _current(state: State, event: Any, actions: Actions, alive: bool = False) -> int | None:
    """The row of the job whose present attempt the event is about; None for a stale one (stopped, if it lives)."""
    row = state.jobs.row_of.get(event.job)
    if row is not None and row in state.jobs.gangs and state.jobs.columns.epoch[row] == event.epoch:
        return row
    if alive:
        actions.append(StopAttempt(event.job, event.epoch, _KILL))
    return None


def _attempt_started(state: State, event: AttemptStarted, actions: Actions) -> None:
    row = _current(state, event, actions, alive=True)
    if row is None:
        return
    c = state.jobs.columns
    if c.state[row] not in (STARTING, PAUSED):
        return
    c.accrue(row, state.now)
    if c.state[row] == STARTING:
        c.running_since[row] = state.now
    c.state[row], c.held[row] = RUNNING, False
    speed = c.speed[row]
    c.rate[row] = 0.0 if math.isnan(speed) else speed
    walltime = c.walltime[row]
    if walltime != math.inf:
        state.set_timer(state.now + max(0.0, float(walltime - c.ran[row])), row)
    state.touch(row, decide=False)


def _attempt_progressed(state: State, event: AttemptProgressed, actions: Actions) -> None:
    row = _current(state, event, actions, alive=True)
    if row is None:
        return
    c = state.jobs.columns
    c.accrue(row, state.now)
    c.done[row] = event.step
    c.durable[row] = max(float(c.durable[row]), event.durable)
    if event.total is not None:
        c.total[row] = event.total
    if event.rate is not None:
        c.speed[row] = event.rate
        if c.state[row] == RUNNING:
            c.rate[row] = event.rate
    state.touch(row, decide=False)


def _attempt_held(state: State, event: AttemptHeld, actions: Actions) -> None:
    row = _current(state, event, actions, alive=True)
    if row is None or state.jobs.columns.state[row] != RUNNING:
        return
    c = state.jobs.columns
    c.accrue(row, state.now)
    c.done[row], c.rate[row] = event.step, 0.0
    c.state[row], c.held[row] = PAUSED, True
    state.jobs.reasons[row] = Reason(Why.PAUSED_BY_USER)
    state.touch(row, decide=False)


def _attempt_stopped(state: State, event: AttemptStopped, actions: Actions) -> None:
    row = _current(state, event, actions)
    if row is None:
        return
    c = state.jobs.columns
    c.accrue(row, state.now)
    c.done[row] = event.step
    _lose_work(state, row, event.durable)
    if c.state[row] != STOPPING:
        c.intent[row] = _REQUEUE
    _gone(state, row, actions)


def _attempt_succeeded(state: State, event: AttemptSucceeded, actions: Actions) -> None:
    row = _current(state, event, actions)
    if row is None:
        return
    c = state.jobs.columns
    c.accrue(row, state.now)
    if event.step is not None:
        c.done[row] = event.step
    _free(state, row)
    _end(state, row, SUCCEEDED, _SUCCEEDED)
    _launch_waiting(state, actions)


def _attempt_failed(state: State, event: AttemptFailed, actions: Actions) -> None:
    row = _current(state, event, actions)
    if row is None:
        return
    c = state.jobs.columns
    c.accrue(row, state.now)
    c.done[row] = max(event.step, event.durable)
    _lose_work(state, row, event.durable)
    if c.state[row] == STOPPING:  # it was to stop anyway
        _gone(state, row, actions)
        return
    c.failures[row] += 1
    if event.node is not None:
        c.avoid[row] = _node(state, event.node)
    _free(state, row)
    if event.fatal or c.failures[row] > c.retries[row]:
        _end(state, row, FAILED, Reason(Why.RETRIES_SPENT, (event.epoch, event.cause)))
    else:
        _back_off(state, row, event)
    _launch_waiting(state, actions)


def _back_off(state: State, row: int, event: AttemptFailed) -> None:
    c = state.jobs.columns
    pause = min(BACKOFF_MOST, BACKOFF_FIRST * 2.0 ** float(c.failures[row] - 1))
    c.state[row] = RECOVERING
    c.not_before[row] = state.now + pause
    c.queued_at[row] = state.now
    state.set_timer(state.now + pause, row)
    state.jobs.reasons[row] = Reason(Why.ATTEMPT_FAILED, (event.epoch, event.cause))
    state.touch(row)


def _throughput_measured(state: State, event: ThroughputMeasured, actions: Actions) -> None:
    state.rates.observe(event.model, event.device_type, event.devices, event.consolidated, event.rate)
    state.capacity_changed()


def _jobs_retired(state: State, event: JobsRetired, actions: Actions) -> None:
    for job in event.jobs:
        row = _row(state, job)
        if not state.jobs.state(row).ended:
            raise ValueError(f"job {job} has not ended: it cannot be retired")
        state.drop_timers(row)
        state.jobs.retire(row)
        state.memory.forget(row)
        state.touch(row, decide=False)


def _tick(state: State, event: Tick, actions: Actions) -> None:
    state.dirty = True


def _run_timers(state: State, actions: Actions) -> None:
    c = state.jobs.columns
    while state.timers and state.timers[0][0] <= state.now:
        _, row, epoch = heapq.heappop(state.timers)
        if c.epoch[row] != epoch:
            continue
        if c.state[row] == RECOVERING:
            _queue(state, row)
        elif c.state[row] == RUNNING and c.walltime[row] != math.inf:
            c.accrue(row, state.now)
            if c.ran[row] >= c.walltime[row] - 1e-6:
                reason = Reason(Why.WALLTIME_OVER, (float(c.walltime[row]),))
                _give_back(state, row, _END, reason, actions)


# --- shared steps ----------------------------------------------------------------------------------------------


def _row(state: State, job: str) -> int:
    row = state.jobs.row_of.get(job)
    if row is None:
        raise ValueError(f"no job is named {job!r}")
    return row


def _per_device(state: State, row: int) -> tuple[int, int]:
    """Thousandths of a core and bytes that the job takes for each device."""
    d, demand = state.demands.rows, state.jobs.columns.demand[row]
    return int(d.cpu[demand]), int(d.memory[demand])


def _queue(state: State, row: int) -> None:
    c = state.jobs.columns
    c.state[row] = QUEUED
    c.queued_at[row] = state.now
    state.queued += 1
    state.touch(row)


def _leave_queue(state: State, row: int) -> None:
    c = state.jobs.columns
    if c.state[row] == QUEUED:
        state.queued -= 1
        c.waited[row] += state.now - c.queued_at[row]


def _end(state: State, row: int, how: int, reason: Reason) -> None:
    """The job is over, its devices given back; those that depend on it go on or are cancelled."""
    c = state.jobs.columns
    _leave_queue(state, row)
    c.state[row], c.intent[row] = how, _NONE
    c.ended_at[row] = state.now
    state.jobs.reasons[row] = reason
    state.touch(row, decide=False)
    job = state.jobs.job(row).id
    for name in state.jobs.dependents.pop(job, ()):
        dependent = state.jobs.row_of.get(name)
        if dependent is None or c.state[dependent] >= SUCCEEDED:
            continue
        if how != SUCCEEDED and job in state.jobs.job(dependent).depends_on:
            _end(state, dependent, CANCELLED, Reason(Why.DEPENDENCY_FAILED, (job,)))
            continue
        c.blockers[dependent] -= 1
        if not c.blockers[dependent] and c.state[dependent] == PENDING:
            _queue(state, dependent)


def _give_back(
    state: State,
    row: int,
    intent: int,
    reason: Reason,
    actions: Actions,
    mode: StopMode = _CHECKPOINT,
) -> None:
    """Take a job off its devices. One whose workers were never launched gives them back on the spot."""
    c = state.jobs.columns
    c.accrue(row, state.now)
    if not c.launched[row]:
        state.awaiting_release.pop(row, None)
        c.intent[row] = intent
        state.jobs.reasons[row] = reason
        _gone(state, row, actions)
    else:
        _begin_stop(state, row, intent, reason, mode, actions)


def _begin_stop(
    state: State,
    row: int,
    intent: int,
    reason: Reason,
    mode: StopMode,
    actions: Actions,
    tell: bool = True,
) -> None:
    c = state.jobs.columns
    cpu, memory = _per_device(state, row)
    state.awaiting_release.pop(row, None)
    state.fleet.unclaim(row, state.jobs.gangs[row], cpu, memory)
    c.state[row], c.intent[row], c.held[row] = STOPPING, intent, False
    c.rate[row] = 0.0
    state.jobs.reasons[row] = reason
    state.touch(row)
    if tell:
        actions.append(StopAttempt(state.jobs.job(row).id, int(c.epoch[row]), mode))


def _lose_work(state: State, row: int, durable: float) -> None:
    """Fall back to the last durable step, and book the seconds of running that are lost with the steps after it.

    A job that counts no steps (an unmodified script) loses all that this attempt ran.
    """
    c = state.jobs.columns
    durable = max(durable, float(c.durable[row]))
    c.durable[row] = durable
    behind = float(c.done[row]) - durable
    if behind > 0.0 and c.speed[row] > 0.0:
        c.lost[row] += behind / float(c.speed[row])
    elif c.done[row] == 0.0 and not math.isnan(c.running_since[row]):
        c.lost[row] += state.now - c.running_since[row]
    c.done[row] = durable


def _free(state: State, row: int) -> None:
    """Nothing of the job is left on any device."""
    c = state.jobs.columns
    cpu, memory = _per_device(state, row)
    gang = state.jobs.gangs.pop(row)
    state.awaiting_release.pop(row, None)
    state.fleet.unclaim(row, gang, cpu, memory)
    state.fleet.release(row, gang, cpu, memory)
    c.width[row], c.rate[row], c.held[row], c.launched[row] = 0, 0.0, False, False
    c.running_since[row] = math.nan
    state.touch(row)


def _gone(state: State, row: int, actions: Actions) -> None:
    """A stopped job has left its devices; what was intended for it happens."""
    c = state.jobs.columns
    intent = c.intent[row]
    _free(state, row)
    c.intent[row] = _NONE
    if intent == _CANCEL:
        _end(state, row, CANCELLED, state.jobs.reasons[row])
    elif intent == _END:
        _end(state, row, FAILED, state.jobs.reasons[row])
    elif intent == _PAUSE:
        c.state[row] = PAUSED
    else:
        _queue(state, row)
    _launch_waiting(state, actions)


def _launch_waiting(state: State, actions: Actions) -> None:
    """Start planned attempts whose devices have come free."""
    for row in list(state.awaiting_release):
        if _launch(state, row, actions):
            del state.awaiting_release[row]


_HANDLERS: dict[type, Callable[[State, Any, Actions], None]] = {
    Configured: _configured,
    NodeJoined: _node_joined,
    NodeLost: _node_lost,
    NodeDrained: _node_drained,
    NodeResumed: _node_resumed,
    JobSubmitted: _job_submitted,
    JobCancelled: _job_cancelled,
    JobPaused: _job_paused,
    JobResumed: _job_resumed,
    JobReprioritised: _job_reprioritised,
    AttemptStarted: _attempt_started,
    AttemptProgressed: _attempt_progressed,
    AttemptHeld: _attempt_held,
    AttemptStopped: _attempt_stopped,
    AttemptSucceeded: _attempt_succeeded,
    AttemptFailed: _attempt_failed,
    ThroughputMeasured: _throughput_measured,
    Decided: _decided,
    JobsRetired: _jobs_retired,
    Tick: _tick,
}
