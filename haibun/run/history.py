"""Turns applied events into the rows of the tables for people: one a job, one an attempt."""

from __future__ import annotations

import math

from haibun.core.events import (
    AnyEvent,
    AttemptFailed,
    AttemptStopped,
    AttemptSucceeded,
    Decided,
    NodeLost,
)
from haibun.core.state import State
from haibun.core.vocabulary import JobId, JobState
from haibun.store import AttemptRow, JobRow

_STOPPED = {"queued": "preempted", "recovering": "failed", "paused": "paused", "cancelled": "cancelled"}


class History:
    """Rows that have changed since the last ``take``; attempts that are open."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._jobs: dict[JobId, JobRow] = {}
        self._attempts: dict[tuple[JobId, int], AttemptRow] = {}
        self._rows: list[int] = []
        self._seen = 0
        self.open: dict[JobId, AttemptRow] = {}
        for row in state.jobs.gangs:
            self._open(row, float(state.jobs.columns.started_at[row]))
        for row in state.jobs.row_of.values():  # what a crash kept from being written
            self._jobs[state.jobs.job(row).id] = self._job_row(row)

    @property
    def pending(self) -> bool:
        """Whether there are rows to write."""
        return bool(self._jobs or self._attempts)

    def note(self, event: AnyEvent) -> None:
        """Look at what an event, just applied, has changed."""
        state = self._state
        rows = state.delta.rows
        if rows is not self._rows:  # a decision took the former list
            self._rows, self._seen = rows, 0
        touched, self._seen = rows[self._seen :], len(rows)
        if isinstance(event, Decided):
            touched = [
                state.jobs.row_of[job] for place in event.decision.place for job in place.jobs
            ] + touched
        for row in dict.fromkeys(touched):
            if state.jobs.jobs[row] is None:
                continue
            self._attempt(row, event)
            job = self._job_row(row)
            self._jobs[job.id] = job

    def take(self) -> tuple[list[JobRow], list[AttemptRow]]:
        """Rows to write with the next append."""
        jobs, attempts = list(self._jobs.values()), list(self._attempts.values())
        self._jobs, self._attempts = {}, {}
        return jobs, attempts

    def give_back(self, jobs: list[JobRow], attempts: list[AttemptRow]) -> None:
        """Rows that could not be written; newer ones of the same job win."""
        self._jobs = {**{row.id: row for row in jobs}, **self._jobs}
        self._attempts = {**{(row.job, row.epoch): row for row in attempts}, **self._attempts}

    def _open(self, row: int, at: float) -> None:
        state = self._state
        job, gang = state.jobs.job(row).id, state.jobs.gangs[row]
        attempt = AttemptRow(
            job, int(state.jobs.columns.epoch[row]), at, nodes=state.fleet.node_names(gang), devices=gang
        )
        self.open[job] = attempt
        self._attempts[job, attempt.epoch] = attempt

    def _attempt(self, row: int, event: AnyEvent) -> None:
        state = self._state
        job = state.jobs.job(row).id
        was = self.open.get(job)
        epoch = int(state.jobs.columns.epoch[row])
        here = row in state.jobs.gangs
        if was is not None and (not here or was.epoch != epoch):
            del self.open[job]
            self._attempts[job, was.epoch] = self._closed(was, row, event)
        if here and job not in self.open:
            self._open(row, event.at)

    def _closed(self, was: AttemptRow, row: int, event: AnyEvent) -> AttemptRow:
        c = self._state.jobs.columns
        outcome, cause = "lost", ""
        steps = float(c.done[row])
        if isinstance(event, AttemptSucceeded) and event.job == was.job:
            outcome = "succeeded"
        elif isinstance(event, AttemptFailed) and event.job == was.job:
            outcome, cause, steps = "failed", event.cause, event.step
        elif isinstance(event, AttemptStopped) and event.job == was.job:
            outcome, steps = _STOPPED.get(JobState(int(c.state[row])).name.lower(), "ended"), event.step
        elif isinstance(event, NodeLost):
            cause = f"node {event.node} was lost"
        elif not isinstance(event, (AttemptStopped, AttemptFailed)):
            outcome = _STOPPED.get(JobState(int(c.state[row])).name.lower(), "ended")
        return AttemptRow(
            was.job,
            was.epoch,
            was.started,
            self._state.now,
            was.nodes,
            was.devices,
            outcome,
            cause,
            steps,
            float(c.durable[row]),
        )

    def _job_row(self, row: int) -> JobRow:
        state, c = self._state, self._state.jobs.columns
        job = state.jobs.job(row)
        reason = state.jobs.reasons.get(row)
        return JobRow(
            id=job.id,
            name=job.name,
            tenant=job.tenant,
            priority=int(c.priority[row]),
            devices=int(c.width[row]) or job.shapes[0].devices,
            state=JobState(int(c.state[row])).name.lower(),
            submitted=float(c.submitted[row]),
            first_start=known(c.first_start[row]),
            finished=known(c.ended_at[row]),
            preemptions=int(c.preemptions[row]),
            failures=int(c.failures[row]),
            steps=float(c.done[row]),
            total_steps=known(c.total[row]),
            service=float(c.service[row]),
            model=job.model,
            reason=reason.render() if reason else "",
        )


def known(value: float) -> float | None:
    """None for nan."""
    return None if math.isnan(value) else float(value)
