"""What users ask: submit, cancel, pause, resume, reprioritise."""

from __future__ import annotations

from haibun.core.actions import ContinueAttempt, HoldAttempt, StopAttempt
from haibun.core.events import (
    JobCancelled,
    JobPaused,
    JobReprioritised,
    JobResumed,
    JobSubmitted,
)
from haibun.core.life.steps import (
    CANCEL,
    KILL,
    NONE,
    PAUSE,
    RECOVER,
    REQUEUE,
    Actions,
    end,
    give_back,
    leave_queue,
    queue,
    row_of,
)
from haibun.core.reasons import Reason, Why
from haibun.core.state import State
from haibun.core.vocabulary import (
    CANCELLED,
    PAUSED,
    PENDING,
    QUEUED,
    RECOVERING,
    RUNNING,
    STARTING,
    STOPPING,
    SUCCEEDED,
)

WAITING = (PENDING, QUEUED, RECOVERING)


def job_submitted(state: State, event: JobSubmitted, actions: Actions) -> None:
    """A job is queued, or waits for those it depends on."""
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
        queue(state, row)
        return
    if failed:
        end(state, row, CANCELLED, Reason(Why.DEPENDENCY_FAILED, (failed[0],)))
    else:
        c.state[row] = PENDING
        state.jobs.reasons[row] = Reason(Why.WAITS_FOR_JOB, (waits_for[0],))


def _has_succeeded(state: State, job: str) -> bool:
    row = state.jobs.row_of.get(job)
    return row is not None and state.jobs.columns.state[row] == SUCCEEDED


def _has_ended(state: State, job: str) -> bool:
    row = state.jobs.row_of.get(job)
    return row is not None and bool(state.jobs.columns.state[row] >= SUCCEEDED)


def job_cancelled(state: State, event: JobCancelled, actions: Actions) -> None:
    """A job is ended for good, from whatever state."""
    row = row_of(state, event.job)
    reason = Reason(Why.CANCELLED_BY_USER)
    was = int(state.jobs.columns.state[row])
    c = state.jobs.columns
    if was >= SUCCEEDED:
        return
    if was in WAITING or (was == PAUSED and not c.held[row]):
        end(state, row, CANCELLED, reason)
    elif was == STOPPING:
        c.intent[row] = CANCEL
        state.jobs.reasons[row] = reason
        actions.append(StopAttempt(event.job, int(c.epoch[row]), KILL))
    else:
        give_back(state, row, CANCEL, reason, actions, KILL)


def job_paused(state: State, event: JobPaused, actions: Actions) -> None:
    """A job is stopped for now."""
    row = row_of(state, event.job)
    was = int(state.jobs.columns.state[row])
    c = state.jobs.columns
    reason = Reason(Why.PAUSED_BY_USER)
    if was in WAITING:
        leave_queue(state, row)
        c.state[row] = PAUSED
        state.jobs.reasons[row] = reason
        state.touch(row)
    elif was == STOPPING and c.intent[row] in (REQUEUE, RECOVER):
        c.intent[row] = PAUSE
        state.jobs.reasons[row] = reason
    elif event.hold and (was == RUNNING or (was == PAUSED and c.held[row])):
        if c.intent[row] != PAUSE:
            c.intent[row] = PAUSE
            actions.append(HoldAttempt(event.job, int(c.epoch[row])))
    elif was in (STARTING, RUNNING) or (was == PAUSED and c.held[row]):
        give_back(state, row, PAUSE, reason, actions)


def job_resumed(state: State, event: JobResumed, actions: Actions) -> None:
    """A paused job goes on, or queues again."""
    row = row_of(state, event.job)
    was = int(state.jobs.columns.state[row])
    c = state.jobs.columns
    if was == PAUSED and c.held[row]:
        c.intent[row] = NONE
        actions.append(ContinueAttempt(event.job, int(c.epoch[row])))
    elif was == RUNNING and c.intent[row] == PAUSE:  # told to stand still, and does not yet: see attempt_held
        c.intent[row] = NONE
    elif was == PAUSED:
        state.jobs.reasons.pop(row, None)
        if c.blockers[row]:
            c.state[row] = PENDING
        else:
            queue(state, row)
    elif was == STOPPING and c.intent[row] == PAUSE:
        c.intent[row] = REQUEUE


def job_reprioritised(state: State, event: JobReprioritised, actions: Actions) -> None:
    """A job ranks differently from now on."""
    row = row_of(state, event.job)
    state.jobs.columns.priority[row] = event.priority
    state.touch(row)
