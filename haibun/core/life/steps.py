"""Steps that several events share: queueing, starting, giving back, ending."""

from __future__ import annotations

import math

from haibun.core.actions import Action, StartAttempt, StopAttempt
from haibun.core.jobs import Intent, JobColumns
from haibun.core.reasons import Reason, Why
from haibun.core.state import State
from haibun.core.vocabulary import (
    CANCELLED,
    FAILED,
    PAUSED,
    PENDING,
    QUEUED,
    STOPPING,
    SUCCEEDED,
    StopMode,
)

Actions = list[Action]

NONE, REQUEUE, PAUSE, CANCEL, END, RECOVER = map(int, Intent)  # as ints: see vocabulary
CHECKPOINT, KILL = StopMode.CHECKPOINT, StopMode.KILL


def node_number(state: State, name: str) -> int:
    """The number of a node by name. Raises ValueError where there is none."""
    node = state.fleet.names.get(name)
    if node is None:
        raise ValueError(f"no node is named {name!r}")
    return node


def row_of(state: State, job: str) -> int:
    row = state.jobs.row_of.get(job)
    if row is None:
        raise ValueError(f"no job is named {job!r}")
    return row


def per_device(state: State, row: int) -> tuple[int, int]:
    """Thousandths of a core and bytes that the job takes for each device."""
    return state.demands.per_device[int(state.jobs.columns.demand[row])]


def queue(state: State, row: int) -> None:
    """The job waits for devices from now on."""
    c = state.jobs.columns
    c.state[row] = QUEUED
    c.queued_at[row] = state.now
    state.queued += 1
    state.touch(row)


def leave_queue(state: State, row: int) -> None:
    """The job waits for devices no longer; its waiting is booked."""
    c = state.jobs.columns
    if c.state[row] == QUEUED:
        state.queued -= 1
        c.waited[row] += state.now - c.queued_at[row]


def end(state: State, row: int, how: int, reason: Reason) -> None:
    """The job is over, its devices given back; those that depend on it go on, or are cancelled with all of theirs."""
    c = state.jobs.columns
    ending = [(row, how, reason)]  # no recursion: chains of dependents may be long
    while ending:
        row, how, reason = ending.pop()
        if c.state[row] >= SUCCEEDED and how == CANCELLED:
            continue
        leave_queue(state, row)
        c.state[row], c.intent[row] = how, NONE
        c.ended_at[row] = state.now
        state.jobs.reasons[row] = reason
        state.touch(row, decide=False)
        job = state.jobs.job(row).id
        for name in state.jobs.dependents.pop(job, ()):
            dependent = state.jobs.row_of.get(name)
            if dependent is None or c.state[dependent] >= SUCCEEDED:
                continue
            if how != SUCCEEDED and job in state.jobs.job(dependent).depends_on:
                ending.append((dependent, CANCELLED, Reason(Why.DEPENDENCY_FAILED, (job,))))
                continue
            c.blockers[dependent] -= 1
            if not c.blockers[dependent] and c.state[dependent] == PENDING:
                queue(state, dependent)


def give_back(
    state: State,
    row: int,
    intent: int,
    reason: Reason,
    actions: Actions,
    mode: StopMode = CHECKPOINT,
) -> None:
    """Take a job off its devices. One whose workers were never launched gives them back on the spot."""
    c = state.jobs.columns
    c.accrue(row, state.now)
    intent = _as_user_wants(c, row, intent)
    if not c.launched[row]:
        state.awaiting_release.pop(row, None)
        c.intent[row] = intent
        state.jobs.reasons[row] = reason
        gone(state, row, actions)
    else:
        begin_stop(state, row, intent, reason, mode, actions)


def begin_stop(
    state: State,
    row: int,
    intent: int,
    reason: Reason,
    mode: StopMode,
    actions: Actions,
    tell: bool = True,
) -> None:
    """The plan takes the gang back; the world follows when the attempt has stopped."""
    c = state.jobs.columns
    cpu, memory = per_device(state, row)
    state.awaiting_release.pop(row, None)
    state.fleet.unclaim(row, state.jobs.gangs[row], cpu, memory)
    c.state[row], c.intent[row], c.held[row] = STOPPING, _as_user_wants(c, row, intent), False
    c.rate[row] = 0.0
    state.jobs.reasons[row] = reason
    state.touch(row)
    if tell:
        actions.append(StopAttempt(state.jobs.job(row).id, int(c.epoch[row]), mode))


def _as_user_wants(c: JobColumns, row: int, intent: int) -> int:
    """A job that stands still for its user, or was told to, stays paused when its devices are taken or lost."""
    wants_pause = c.intent[row] == PAUSE and intent in (REQUEUE, RECOVER)
    return PAUSE if wants_pause else intent


def lose_work(state: State, row: int, durable: float) -> None:
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


def free(state: State, row: int) -> None:
    """Nothing of the job is left on any device."""
    c = state.jobs.columns
    cpu, memory = per_device(state, row)
    gang = state.jobs.gangs.pop(row)
    state.awaiting_release.pop(row, None)
    state.fleet.unclaim(row, gang, cpu, memory)
    state.fleet.release(row, gang, cpu, memory)
    c.width[row], c.rate[row], c.held[row], c.launched[row] = 0, 0.0, False, False
    c.running_since[row], c.intent[row] = math.nan, NONE
    state.touch(row)


def gone(state: State, row: int, actions: Actions) -> None:
    """A stopped job has left its devices; what was intended for it happens."""
    c = state.jobs.columns
    intent = c.intent[row]
    free(state, row)
    if intent == CANCEL:
        end(state, row, CANCELLED, state.jobs.reasons[row])
    elif intent == END:
        end(state, row, FAILED, state.jobs.reasons[row])
    elif intent == PAUSE:
        c.state[row] = PAUSED
    else:
        queue(state, row)
    launch_waiting(state, actions)


def launch(state: State, row: int, actions: Actions) -> bool:
    """Start the attempt if its devices are free; says whether it did."""
    c, fleet = state.jobs.columns, state.fleet
    gang = state.jobs.gangs[row]
    cpu, memory = per_device(state, row)
    if not fleet.can_occupy(gang, cpu, memory):
        return False
    fleet.occupy(row, gang, cpu, memory)
    c.launched[row], c.as_of[row] = True, state.now
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


def launch_waiting(state: State, actions: Actions) -> None:
    """Start planned attempts whose devices have come free."""
    for row in list(state.awaiting_release):
        if launch(state, row, actions):
            del state.awaiting_release[row]
