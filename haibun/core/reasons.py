"""Why: a code and its operands, stored with every decision and rendered on demand."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

Operand = str | int | float


class Why(StrEnum):
    """Reason codes. The value is what the journal holds: it never changes meaning."""

    PLACED = "placed"
    PLACED_BY_PREEMPTION = "placed-by-preemption"
    PREEMPTED = "preempted"
    NOT_ENOUGH_FREE = "not-enough-free"
    FRAGMENTED = "fragmented"
    NOT_ENOUGH_HOST = "not-enough-host"
    BEHIND = "behind"
    NO_ROOM_LEFT = "no-room-left"
    NEVER_FITS = "never-fits"
    WAITS_FOR_JOB = "waits-for-job"
    BACKS_OFF = "backs-off"
    PAUSED_BY_USER = "paused-by-user"
    CANCELLED_BY_USER = "cancelled-by-user"
    DEPENDENCY_FAILED = "dependency-failed"
    WALLTIME_OVER = "walltime-over"
    NODE_LOST = "node-lost"
    NODE_DRAINED = "node-drained"
    ATTEMPT_FAILED = "attempt-failed"
    RETRIES_SPENT = "retries-spent"
    WAITS_FOR_RELEASE = "waits-for-release"
    RUNS = "runs"
    ENDED = "ended"
    DUE = "due"


_TEMPLATES: dict[Why, str] = {
    Why.PLACED: "ranked {0} by {1}; {2} {3} free on {4}",
    Why.PLACED_BY_PREEMPTION: "ranked {0} by {1}; {2} {3} taken from lower-ranked jobs on {4}",
    Why.PREEMPTED: "ranked {0} by {1}, below {2}, which needs its devices",
    Why.NOT_ENOUGH_FREE: "needs {0} {1}; {2} are free or held by lower-ranked jobs",
    Why.FRAGMENTED: "needs {0} {1} within one {2}; {3} are free, but not together",
    Why.NOT_ENOUGH_HOST: "needs {0} {1} with {2} CPUs and {3} bytes of memory each; no nodes have that left",
    Why.BEHIND: "{0} takes no job past a blocked one; job {1} is ahead and blocked",
    Why.NO_ROOM_LEFT: "jobs that rank ahead: {0}; {1} devices are left after them, and it needs {2}",
    Why.NEVER_FITS: "asks for {0} {1}; the cluster's healthy nodes offer at most {2} in that form",
    Why.WAITS_FOR_JOB: "waits for job {0}",
    Why.BACKS_OFF: "failed (failures so far: {0}); tries again in {1:.0f} s",
    Why.PAUSED_BY_USER: "paused by its user",
    Why.CANCELLED_BY_USER: "cancelled by its user",
    Why.DEPENDENCY_FAILED: "job {0}, which it depends on, did not succeed",
    Why.WALLTIME_OVER: "ran for its whole walltime of {0:.10g} s",
    Why.NODE_LOST: "node {0} was lost",
    Why.NODE_DRAINED: "node {0} is being drained",
    Why.ATTEMPT_FAILED: "attempt {0} failed: {1}",
    Why.RETRIES_SPENT: "attempt {0} failed: {1}; no retries left",
    Why.WAITS_FOR_RELEASE: "its devices are claimed; waits for job {0} to give them back",
    Why.RUNS: "runs on {0}",
    Why.ENDED: "ended: {0}",
    Why.DUE: "there is room for it: the next decision places it",
}


class Reason(Struct, frozen=True, gc=False):
    """A code and its operands, in the order of the code's template."""

    code: Why
    operands: tuple[Operand, ...] = ()

    def render(self) -> str:
        """One sentence for people."""
        return _TEMPLATES[self.code].format(*self.operands)
