"""What the controller tells about jobs, nodes and itself: plain values, for the API, the command line and scripts.

Times are Unix seconds, None where not yet.
"""

from __future__ import annotations

from msgspec import Struct


class AttemptView(Struct, frozen=True):
    """One life of a job's workers."""

    epoch: int
    nodes: tuple[str, ...]
    devices: tuple[str, ...]  # node/number
    started: float | None
    ended: float | None
    outcome: str  # running, succeeded, failed, preempted, paused, cancelled, lost, stopped
    cause: str = ""


class JobView(Struct, frozen=True):
    """A job as ``ls`` and ``show`` give it. ``why`` is a sentence."""

    id: str
    name: str
    tenant: str
    priority: int
    state: str
    devices: int  # of its gang
    device_type: str | None
    submitted: float
    started: float | None  # first start
    ended: float | None
    nodes: tuple[str, ...]  # where it is now
    on: tuple[str, ...]  # devices it has now, as node/number
    step: float | None
    durable: float | None
    total: float | None
    rate: float | None  # steps/s
    attempts: int
    preemptions: int
    failures: int
    retries: int
    lost: float  # seconds of running whose work was lost
    exit: str | None  # how it ended, in words
    why: str
    metrics: dict[str, float]
    labels: dict[str, str]


def reason(job: JobView) -> str:
    """Why a job is where it is; empty where its state says as much."""
    why = job.exit or job.why
    return "" if says_no_more(why, job.state) else why


def says_no_more(why: str, state: str) -> bool:
    """Whether a reason only repeats the state."""
    return why in (state, f"ended: {state}")


def has_become(state: str) -> str:
    """A state as a predicate: 'is queued', 'succeeded'."""
    return {"succeeded": "succeeded", "failed": "failed", "cancelled": "was cancelled"}.get(
        state, f"is {state}"
    )


class JobDetail(Struct, frozen=True):
    """All of a job: its view, its attempts, its spec as submitted (JSON), its folders."""

    job: JobView
    attempts: tuple[AttemptView, ...]
    spec: str
    logs: str
    checkpoints: str
    depends_on: tuple[str, ...]


class ExplanationView(Struct, frozen=True):
    """Why a job is where it is. ``since``: Unix seconds; ``rank`` counts from 0; ``ahead``: the first few before it."""

    job: str
    state: str
    since: float
    reasons: tuple[str, ...]
    codes: tuple[str, ...]
    rank: int | None
    ahead: tuple[str, ...]
    policy: str


class NodeView(Struct, frozen=True):
    """A node. ``holders``: for each device the id of the job on it, or None."""

    name: str
    site: str
    health: str  # up, draining, lost
    connected: bool
    type: str
    devices: int
    free: int
    holders: tuple[str | None, ...]
    cpus: float
    cpus_free: float
    memory: int
    memory_free: int
    cpu_busy: float
    memory_used: int
    utilisation: tuple[float, ...]


class Overview(Struct, frozen=True):
    """The whole at a glance, for ``top``."""

    now: float
    policy: str
    params: dict[str, object]
    nodes: tuple[NodeView, ...]
    jobs: tuple[JobView, ...]  # those with devices, the first that wait, the last that ended
    counts: dict[str, int]  # by state
    events: int
    decisions: int
    degraded: str | None  # why nothing can be accepted just now
