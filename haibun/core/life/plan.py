"""A decision becomes the plan."""

from __future__ import annotations

import math

from haibun.core.decision import Decision, Place
from haibun.core.events import (
    Decided,
)
from haibun.core.fleet import NO_JOB
from haibun.core.life.steps import (
    REQUEUE,
    Actions,
    give_back,
    launch,
    leave_queue,
    per_device,
    row_of,
)
from haibun.core.state import State
from haibun.core.vocabulary import (
    QUEUED,
    RUNNING,
    STARTING,
)


def decided(state: State, event: Decided, actions: Actions) -> None:
    """Apply a decision whole; one that contradicts the State is refused whole."""
    decision: Decision = event.decision
    _check(state, decision)
    state.decisions += 1
    for change in decision.memory:
        column = state.memory.column(change.column, state.jobs.columns.n)
        for job, value in zip(change.jobs, change.values, strict=True):
            column[row_of(state, job)] = value
    for evict in decision.evict:
        row = row_of(state, evict.job)
        state.jobs.columns.preemptions[row] += 1
        give_back(state, row, REQUEUE, evict.reason, actions)
    for place in decision.place:
        _place(state, place, actions)


def _check(state: State, decision: Decision) -> None:
    """The invariants that a policy or placer could break: who may be evicted, who placed, on whose devices.

    Raises:
        ValueError: it breaks one; nothing has been changed.
    """
    states, claim = state.jobs.columns.state, state.fleet.devices.claim
    evicted = set()
    for evict in decision.evict:
        row = row_of(state, evict.job)
        if states[row] not in (STARTING, RUNNING) or row in evicted:
            raise ValueError(f"job {evict.job} is {state.jobs.state(row).name.lower()}: it cannot be evicted")
        evicted.add(row)
    given: set[int] = set()
    for place in decision.place:
        row = row_of(state, place.jobs[0])
        if states[row] != QUEUED:
            raise ValueError(
                f"job {place.jobs[0]} is {state.jobs.state(row).name.lower()}: it cannot be placed"
            )
        for device in place.devices:
            holder = claim[device]
            if device in given or (holder != NO_JOB and int(holder) not in evicted):
                raise ValueError(f"job {place.jobs[0]} is given device {device}, which another job has")
            given.add(device)


def _place(state: State, place: Place, actions: Actions) -> None:
    row = row_of(state, place.jobs[0])
    c, fleet = state.jobs.columns, state.fleet
    cpu, memory = per_device(state, row)
    fleet.claim(row, place.devices, cpu, memory)
    leave_queue(state, row)
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
    if not launch(state, row, actions):
        state.awaiting_release[row] = None
