"""Turns applied events into the rows of the tables for people: one a job, one an attempt."""

from __future__ import annotations

import math

from haibun.core.events import AnyEvent, AttemptFailed, AttemptSucceeded, NodeLost
from haibun.core.reasons import Why
from haibun.core.state import State
from haibun.core.vocabulary import JobId, JobState
from haibun.run.gang import Ends
from haibun.store import AttemptRow, JobRow

# How an attempt that was told to stop ended, by why it was told so. One that stopped by itself (its agent was shut
# down, or it vanished) has merely stopped.
_OUTCOMES = {
    Why.PREEMPTED: "preempted",
    Why.NODE_DRAINED: "preempted",
    Why.PAUSED_BY_USER: "paused",
    Why.CANCELLED_BY_USER: "cancelled",
    Why.WALLTIME_OVER: "failed",
    Why.NODE_LOST: "lost",
}


class History:
    """Which rows have changed since the last ``take``, and the attempts that are open.

    Made from the State of a snapshot and shown every event since, it knows all that a crash kept from being written:
    rows go to the store with the append after the events that they tell of.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._jobs: dict[JobId, None] = {}
        self._attempts: dict[tuple[JobId, int], AttemptRow] = {}
        self._rows = state.delta.rows
        self._seen = len(self._rows)
        self.open: dict[JobId, AttemptRow] = {}
        for row in state.jobs.gangs:
            self._open(row)

    @property
    def pending(self) -> bool:
        """Whether there are rows to write."""
        return bool(self._jobs or self._attempts)

    def note(self, event: AnyEvent) -> None:
        """Look at what an event, just applied, has changed."""
        state = self._state
        rows = state.delta.rows
        if rows is not self._rows:  # a decision took the former list; all in it had been seen
            self._rows, self._seen = rows, 0
        touched, self._seen = rows[self._seen :], len(rows)
        for row in dict.fromkeys(touched):
            job = state.jobs.jobs[row]
            if job is not None:
                self._attempt(row, event)
                self._jobs[job.id] = None

    def take(self) -> tuple[list[JobRow], list[AttemptRow]]:
        """Rows to write with the next append, as they are now."""
        row_of = self._state.jobs.row_of
        jobs = [self._job_row(row_of[job]) for job in self._jobs if job in row_of]
        attempts = list(self._attempts.values())
        self._jobs, self._attempts = {}, {}
        return jobs, attempts

    def give_back(self, jobs: list[JobRow], attempts: list[AttemptRow]) -> None:
        """Rows that could not be written; newer ones of the same attempt win."""
        self._jobs |= dict.fromkeys(row.id for row in jobs)
        self._attempts = {**{(row.job, row.epoch): row for row in attempts}, **self._attempts}

    def _attempt(self, row: int, event: AnyEvent) -> None:
        state = self._state
        job = state.jobs.job(row).id
        was = self.open.get(job)
        here = row in state.jobs.gangs
        if was is not None and (not here or was.epoch != state.jobs.columns.epoch[row]):
            del self.open[job]
            self._attempts[job, was.epoch] = self._closed(was, row, event)
        if here and job not in self.open:
            self._open(row)

    def _open(self, row: int) -> None:
        state, c = self._state, self._state.jobs.columns
        job, gang = state.jobs.job(row).id, state.jobs.gangs[row]
        nodes = state.fleet.node_names(gang)
        attempt = AttemptRow(job, int(c.epoch[row]), float(c.started_at[row]), nodes=nodes, devices=gang)
        self.open[job] = attempt
        self._attempts[job, attempt.epoch] = attempt

    def _closed(self, was: AttemptRow, row: int, event: AnyEvent) -> AttemptRow:
        c = self._state.jobs.columns
        outcome, cause = self._outcome(was.job, row, event)
        durable = float(c.durable[row])
        steps = float(c.done[row])
        told = event.step if isinstance(event, Ends) and event.job == was.job else None
        if told is not None:  # what is past ``durable`` has left the State by now
            steps = max(durable, told)
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
            durable,
        )

    def _outcome(self, job: JobId, row: int, event: AnyEvent) -> tuple[str, str]:
        """How an attempt ended, and why."""
        if isinstance(event, AttemptSucceeded) and event.job == job:
            return "succeeded", ""
        if isinstance(event, AttemptFailed) and event.job == job:
            return "failed", event.cause
        if isinstance(event, NodeLost):
            return "lost", f"node {event.node} was lost"
        reason = self._state.jobs.reasons.get(row)
        outcome = _OUTCOMES.get(reason.code) if reason is not None else None
        if outcome is None or reason is None:
            return "stopped", ""
        return outcome, reason.render()

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
