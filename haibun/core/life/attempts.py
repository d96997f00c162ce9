"""What attempts report."""

from __future__ import annotations

import math
from typing import Any

from haibun.core.actions import ContinueAttempt, StopAttempt
from haibun.core.events import (
    AttemptFailed,
    AttemptHeld,
    AttemptProgressed,
    AttemptStarted,
    AttemptStopped,
    AttemptSucceeded,
)
from haibun.core.life.steps import (
    KILL,
    PAUSE,
    Actions,
    end,
    free,
    gone,
    launch_waiting,
    lose_work,
)
from haibun.core.reasons import Reason, Why
from haibun.core.state import State
from haibun.core.vocabulary import (
    FAILED,
    PAUSED,
    RECOVERING,
    RUNNING,
    STARTING,
    STOPPING,
    SUCCEEDED,
)

# Seconds before the first retry; doubles with each failure, up to the most: a broken node or script must not spin.
BACKOFF_FIRST = 1.0
BACKOFF_MOST = 300.0

_SUCCEEDED = Reason(Why.ENDED, ("succeeded",))


def _current(state: State, event: Any, actions: Actions, alive: bool = False) -> int | None:
    """The row of the job whose present attempt the event is about; None for a stale one (stopped, if it lives)."""
    row = state.jobs.row_of.get(event.job)
    if row is not None and row in state.jobs.gangs and state.jobs.columns.epoch[row] == event.epoch:
        return row
    if alive:
        actions.append(StopAttempt(event.job, event.epoch, KILL))
    return None


def attempt_started(state: State, event: AttemptStarted, actions: Actions) -> None:
    """All workers are up: the job runs (again, after a hold)."""
    row = _current(state, event, actions, alive=True)
    if row is None:
        return
    c = state.jobs.columns
    if c.state[row] not in (STARTING, PAUSED) or c.intent[row] == PAUSE:
        return
    c.accrue(row, state.now)
    if c.state[row] == STARTING:
        c.running_since[row] = state.now
    else:
        state.jobs.reasons.pop(row, None)  # that it was paused is over
    c.state[row], c.held[row] = RUNNING, False
    speed = c.speed[row]
    c.rate[row] = 0.0 if math.isnan(speed) else speed
    walltime = c.walltime[row]
    if walltime != math.inf:
        state.set_timer(state.now + max(0.0, float(walltime - c.ran[row])), row)
    state.touch(row, decide=False)


def attempt_progressed(state: State, event: AttemptProgressed, actions: Actions) -> None:
    """Book the steps and the speed that were measured."""
    row = _current(state, event, actions, alive=True)
    if row is None:
        return
    c = state.jobs.columns
    c.accrue(row, state.now)
    c.durable[row] = max(float(c.durable[row]), event.durable)
    c.done[row] = max(event.step, float(c.durable[row]))
    if event.total is not None:
        c.total[row] = event.total
    if event.rate is not None:
        c.speed[row] = event.rate
        if c.state[row] == RUNNING:
            c.rate[row] = event.rate
    state.touch(row, decide=False)


def attempt_held(state: State, event: AttemptHeld, actions: Actions) -> None:
    """It stands still with process and devices kept."""
    row = _current(state, event, actions, alive=True)
    if row is None or state.jobs.columns.state[row] != RUNNING:
        return
    c = state.jobs.columns
    c.accrue(row, state.now)
    c.done[row], c.rate[row] = max(event.step, float(c.durable[row])), 0.0
    c.state[row], c.held[row] = PAUSED, True
    state.jobs.reasons[row] = Reason(Why.PAUSED_BY_USER)
    state.touch(row, decide=False)
    if c.intent[row] != PAUSE:  # its user thought better of it in the meantime
        actions.append(ContinueAttempt(event.job, event.epoch))


def attempt_stopped(state: State, event: AttemptStopped, actions: Actions) -> None:
    """It left its devices because it was told to; what was intended for it happens."""
    row = _current(state, event, actions)
    if row is None:
        return
    c = state.jobs.columns
    c.accrue(row, state.now)
    c.done[row] = event.step
    lose_work(state, row, event.durable)
    gone(state, row, actions)


def attempt_succeeded(state: State, event: AttemptSucceeded, actions: Actions) -> None:
    """It ended well: so does the job."""
    row = _current(state, event, actions)
    if row is None:
        return
    c = state.jobs.columns
    c.accrue(row, state.now)
    if event.step is not None:
        c.done[row] = event.step
    free(state, row)
    end(state, row, SUCCEEDED, _SUCCEEDED)
    launch_waiting(state, actions)


def attempt_failed(state: State, event: AttemptFailed, actions: Actions) -> None:
    """It ended badly: the job backs off and is tried again, or fails."""
    row = _current(state, event, actions)
    if row is None:
        return
    c = state.jobs.columns
    c.accrue(row, state.now)
    c.done[row] = max(event.step, event.durable)
    lose_work(state, row, event.durable)
    if c.state[row] == STOPPING:  # it was to stop anyway
        gone(state, row, actions)
        return
    c.failures[row] += 1
    where = None if event.node is None else state.fleet.names.get(event.node)
    if where is not None:
        c.avoid[row] = where
    paused = c.intent[row] == PAUSE
    free(state, row)
    if event.fatal or c.failures[row] > c.retries[row]:
        end(state, row, FAILED, Reason(Why.RETRIES_SPENT, (event.epoch, event.cause)))
    elif paused:
        c.state[row] = PAUSED
    else:
        _back_off(state, row, event)
    launch_waiting(state, actions)


def _back_off(state: State, row: int, event: AttemptFailed) -> None:
    c = state.jobs.columns
    pause = min(BACKOFF_MOST, BACKOFF_FIRST * 2.0 ** float(c.failures[row] - 1))
    c.state[row] = RECOVERING
    c.not_before[row] = state.now + pause
    c.queued_at[row] = state.now
    state.set_timer(state.now + pause, row)
    state.jobs.reasons[row] = Reason(Why.ATTEMPT_FAILED, (event.epoch, event.cause))
    state.touch(row)
