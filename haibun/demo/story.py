"""What happened and why, one sentence at a time, from the events of a live run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from haibun.core.decision import Decision
from haibun.core.events import (
    AnyEvent,
    AttemptFailed,
    AttemptStopped,
    AttemptSucceeded,
    Decided,
    JobSubmitted,
)
from haibun.core.reasons import Reason
from haibun.demo.record import Record
from haibun.report.rows import Moment

_JOB = re.compile(r"\bjob (\w+)")

Restored = Mapping[tuple[str, int], int]


class Story:
    """Tells a record. ``restored``: the step that an attempt began from, by job and epoch, where it was seen."""

    def __init__(self, record: Record, restored: Restored) -> None:
        self._record, self._restored = record, restored
        self._epochs: dict[str, int] = {}
        self._told: list[Moment] = []

    def tell(self) -> list[Moment]:
        """All moments, in order."""
        for event in self._record.events:
            self._see(event)
        return self._told

    def _see(self, event: AnyEvent) -> None:
        match event:
            case JobSubmitted():
                job = event.job
                rank = f", priority {job.priority}" if job.priority else ""
                wants = _count(job.shapes[0].devices, "device")
                self._say(event, f"{job.name} is submitted: {wants}, {job.total_steps:,.0f} steps{rank}")
            case Decided():
                self._decided(event, event.decision)
            case AttemptStopped():
                kept = "every step of it saved" if event.durable >= event.step else "not all of it saved"
                self._say(
                    event, f"{self._name(event.job)} gives its devices back at step {event.step:,.0f}, {kept}"
                )
            case AttemptFailed():
                what = f"{self._name(event.job)} fails at step {event.step:,.0f}: {event.cause}"
                self._say(event, f"{what}; step {event.durable:,.0f} is safe", "bad")
            case AttemptSucceeded():
                took = self._record.completion(event.job)
                self._say(event, f"{self._name(event.job)} is done, {took:.1f} s after it was submitted")
            case _:
                pass

    def _decided(self, event: Decided, decision: Decision) -> None:
        for evict in decision.evict:
            self._say(
                event, f"{self._name(evict.job)} is asked for its devices: {self._reason(evict.reason)}"
            )
        for place in decision.place:
            job = place.jobs[0]
            epoch = self._epochs[job] = self._epochs.get(job, 0) + 1
            where = "device " if len(place.devices) == 1 else "devices "
            where += ", ".join(map(str, place.devices))
            why = self._reason(place.reason)
            if epoch == 1:
                self._say(event, f"{self._name(job)} starts on {where}: {why}")
                continue
            step = self._restored.get((job, epoch))
            goes_on = f" from step {step:,}" if step is not None else ""
            self._say(event, f"{self._name(job)} goes on{goes_on} on {where}: {why}", "good")

    def _say(self, event: AnyEvent, text: str, kind: str = "") -> None:
        self._told.append(Moment(event.at - self._record.zero, text, kind))

    def _name(self, job: str) -> str:
        return self._record.name(job)

    def _reason(self, reason: Reason) -> str:
        """In words, with jobs by name and ranks counted from 1."""
        return _JOB.sub(lambda found: self._named(found[1]), reason.render())

    def _named(self, job: str) -> str:
        return self._name(job) if job in self._record.state.jobs.row_of else f"job {job}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")
