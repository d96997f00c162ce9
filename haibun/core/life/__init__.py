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
from haibun.core.life import attempts, nodes, plan, requests
from haibun.core.life.steps import END, Actions, give_back, queue, row_of
from haibun.core.reasons import Reason, Why
from haibun.core.state import State
from haibun.core.vocabulary import RECOVERING, RUNNING


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


def _jobs_retired(state: State, event: JobsRetired, actions: Actions) -> None:
    for job in event.jobs:
        row = row_of(state, job)
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
            queue(state, row)
        elif c.state[row] == RUNNING and c.walltime[row] != math.inf:
            c.accrue(row, state.now)
            if c.ran[row] >= c.walltime[row] - 1e-6:
                reason = Reason(Why.WALLTIME_OVER, (float(c.walltime[row]),))
                give_back(state, row, END, reason, actions)


_HANDLERS: dict[type, Callable[[State, Any, Actions], None]] = {
    Configured: nodes.configured,
    NodeJoined: nodes.node_joined,
    NodeLost: nodes.node_lost,
    NodeDrained: nodes.node_drained,
    NodeResumed: nodes.node_resumed,
    JobSubmitted: requests.job_submitted,
    JobCancelled: requests.job_cancelled,
    JobPaused: requests.job_paused,
    JobResumed: requests.job_resumed,
    JobReprioritised: requests.job_reprioritised,
    AttemptStarted: attempts.attempt_started,
    AttemptProgressed: attempts.attempt_progressed,
    AttemptHeld: attempts.attempt_held,
    AttemptStopped: attempts.attempt_stopped,
    AttemptSucceeded: attempts.attempt_succeeded,
    AttemptFailed: attempts.attempt_failed,
    ThroughputMeasured: nodes.throughput_measured,
    Decided: plan.decided,
    JobsRetired: _jobs_retired,
    Tick: _tick,
}
