"""Everything that can happen to the scheduler. State changes by these alone.

Every event bears ``at``, seconds on the clock of whoever drives the engine (Unix time live, trace time in the twin).
Heartbeats and metrics are telemetry, not events; progress is reported at a bounded rate. An event about an attempt
bears its epoch; one with a stale epoch changes nothing.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from haibun.core.decision import Decision
from haibun.core.vocabulary import Job, JobId, Node, NodeName


class Event(Struct, frozen=True, tag_field="kind", gc=False):
    """``version`` of each class is written beside it; see ``codec`` for how old ones are read."""

    at: float


class Configured(Event, frozen=True, tag="configured", gc=False):
    """The policy and placer in force from now on, with their parameters."""

    policy: str
    params: dict[str, Any] = field(default_factory=dict)
    placer: str = "consolidated"


class NodeJoined(Event, frozen=True, tag="node-joined", gc=False):
    """A node is there, new or back. A node known by that name keeps its device numbers."""

    node: Node


class NodeLost(Event, frozen=True, tag="node-lost", gc=False):
    """A node is declared dead: its attempts are over, their epochs raised."""

    node: NodeName


class NodeDrained(Event, frozen=True, tag="node-drained", gc=False):
    """Nothing new starts there; what runs is asked to move when ``evict``."""

    node: NodeName
    evict: bool = True


class NodeResumed(Event, frozen=True, tag="node-resumed", gc=False):
    """A drained node takes work again."""

    node: NodeName


class JobSubmitted(Event, frozen=True, tag="job-submitted", gc=False):
    job: Job


class JobCancelled(Event, frozen=True, tag="job-cancelled", gc=False):
    job: JobId


class JobPaused(Event, frozen=True, tag="job-paused", gc=False):
    """Its user wants it stopped for now. ``hold`` keeps process and devices; otherwise both are given up."""

    job: JobId
    hold: bool = False


class JobResumed(Event, frozen=True, tag="job-resumed", gc=False):
    job: JobId


class JobReprioritised(Event, frozen=True, tag="job-reprioritised", gc=False):
    job: JobId
    priority: int


class AttemptStarted(Event, frozen=True, tag="attempt-started", gc=False):
    """All workers of the attempt are up."""

    job: JobId
    epoch: int


class AttemptProgressed(Event, frozen=True, tag="attempt-progressed", gc=False):
    """``step`` steps are done in all, ``durable`` of them safe in a checkpoint; ``rate`` in steps/s, if measured."""

    job: JobId
    epoch: int
    step: float
    durable: float = 0.0
    rate: float | None = None
    total: float | None = None


class AttemptHeld(Event, frozen=True, tag="attempt-held", gc=False):
    """It stands still with its process and devices kept."""

    job: JobId
    epoch: int
    step: float


class AttemptStopped(Event, frozen=True, tag="attempt-stopped", gc=False):
    """It was told to stop and has: nothing of it is left on its devices. Work past ``durable`` is lost."""

    job: JobId
    epoch: int
    step: float
    durable: float


class AttemptSucceeded(Event, frozen=True, tag="attempt-succeeded", gc=False):
    """It ended by itself, with exit code 0; nothing of it is left on its devices."""

    job: JobId
    epoch: int
    step: float | None = None


class AttemptFailed(Event, frozen=True, tag="attempt-failed", gc=False):
    """It ended by itself, and not well; nothing of it is left on its devices.

    ``node`` is where it went wrong, if that is known: the next attempt keeps away from it where it can.
    ``fatal`` means that no retry can help (the command does not exist, say).
    """

    job: JobId
    epoch: int
    cause: str
    step: float = 0.0
    durable: float = 0.0
    node: NodeName | None = None
    fatal: bool = False


class ThroughputMeasured(Event, frozen=True, tag="throughput-measured", gc=False):
    """``rate`` steps/s of ``model`` on ``devices`` of a type; ``consolidated``: all on one node."""

    model: str
    device_type: str
    devices: int
    rate: float
    consolidated: bool = True


class Decided(Event, frozen=True, tag="decided", gc=False):
    decision: Decision


class JobsRetired(Event, frozen=True, tag="jobs-retired", gc=False):
    """Ended jobs leave the State; the tables of the store keep what happened to them."""

    jobs: tuple[JobId, ...]


class Tick(Event, frozen=True, tag="tick", gc=False):
    """Time has passed: due back-offs, walltimes and policy wake-ups are looked at."""


AnyEvent = (
    Configured
    | NodeJoined
    | NodeLost
    | NodeDrained
    | NodeResumed
    | JobSubmitted
    | JobCancelled
    | JobPaused
    | JobResumed
    | JobReprioritised
    | AttemptStarted
    | AttemptProgressed
    | AttemptHeld
    | AttemptStopped
    | AttemptSucceeded
    | AttemptFailed
    | ThroughputMeasured
    | Decided
    | JobsRetired
    | Tick
)
