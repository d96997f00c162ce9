"""A decision becomes the plan."""

from __future__ import annotations

import math

from haibun.core.decision import Decision, Evict, Place
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
    decision: Decision = event.decision
    state.decisions += 1
    for change in decision.memory:
        column = state.memory.column(change.column, state.jobs.columns.n)
        for job, value in zip(change.jobs, change.values, strict=True):
            column[row_of(state, job)] = value
    for evict in decision.evict:
        _evict(state, evict, actions)
    for place in decision.place:
        _place(state, place, actions)


def _evict(state: State, evict: Evict, actions: Actions) -> None:
    row = row_of(state, evict.job)
    if state.jobs.columns.state[row] not in (STARTING, RUNNING):
        raise ValueError(f"job {evict.job} is {state.jobs.state(row).name.lower()}: it cannot be evicted")
    state.jobs.columns.preemptions[row] += 1
    give_back(state, row, REQUEUE, evict.reason, actions)


def _place(state: State, place: Place, actions: Actions) -> None:
    job_id = place.jobs[0]
    row = row_of(state, job_id)
    c, fleet = state.jobs.columns, state.fleet
    if c.state[row] != QUEUED:
        raise ValueError(f"job {job_id} is {state.jobs.state(row).name.lower()}: it cannot be placed")
    if any(fleet.devices.claim[d] != NO_JOB for d in place.devices):
        raise ValueError(f"the decision gives job {job_id} a device that another job has")
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
