"""Rows of the tables for people.

What happened to each job and to each of its attempts. Times in Unix seconds.
"""

from __future__ import annotations

from msgspec import Struct

from haibun.core.vocabulary import JobId, NodeName


class JobRow(Struct, frozen=True):
    """One job.

    Attributes:
        devices: devices of its gang, as last placed or as first asked for.
        state: name of a ``JobState`` in lower case.
        first_start, finished: None while that has not happened.
        preemptions, failures: attempts that ended so.
        steps, total_steps: steps done; steps in all, where known.
        service: device-seconds that it held.
        reason: why it is in this state, for people.
    """

    id: JobId
    name: str
    tenant: str
    priority: int
    devices: int
    state: str
    submitted: float
    first_start: float | None = None
    finished: float | None = None
    preemptions: int = 0
    failures: int = 0
    steps: float = 0.0
    total_steps: float | None = None
    service: float = 0.0
    model: str | None = None
    reason: str = ""


class AttemptRow(Struct, frozen=True):
    """One life of a job's workers.

    Attributes:
        nodes: in the order of its ranks. devices: device numbers of the State, ascending.
        outcome: '' while it lives; else succeeded, failed, preempted, cancelled, lost.
        cause: for people; '' where there is nothing to say.
        steps, durable: steps done when it ended; those of them that were safe in a checkpoint.
    """

    job: JobId
    epoch: int
    started: float
    ended: float | None = None
    nodes: tuple[NodeName, ...] = ()
    devices: tuple[int, ...] = ()
    outcome: str = ""
    cause: str = ""
    steps: float = 0.0
    durable: float = 0.0


class JobFilter(Struct, frozen=True):
    """Which jobs to list; an empty or None field lets all pass.

    ``since``, ``before``: bounds on submission.
    """

    ids: tuple[JobId, ...] = ()
    states: tuple[str, ...] = ()
    tenant: str | None = None
    name: str | None = None
    since: float | None = None
    before: float | None = None
