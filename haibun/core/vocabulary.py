"""The nouns of the scheduler: what a cluster is made of, and what a user asks of it.

All values are frozen. Units: seconds, bytes, bytes/s, devices, CPUs (cores; fractions allowed).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from msgspec import Struct

JobId = str
NodeName = str


class Locality(StrEnum):
    """How far apart the devices of one gang may lie."""

    NODE = "node"  # all on one node
    SITE = "site"  # any nodes of one site
    ANY = "any"  # anywhere, across sites too


class DeviceGroup(Struct, frozen=True):
    """``count`` equal devices of a node; ``memory`` in bytes each (0: unknown, not a constraint)."""

    type: str
    count: int
    memory: int = 0


class Node(Struct, frozen=True):
    """A host. ``cpus`` in cores, ``memory`` in bytes; 0 means unknown: that resource then binds nothing."""

    name: NodeName
    devices: tuple[DeviceGroup, ...]
    site: str = "default"
    cpus: float = 0.0
    memory: int = 0


class Link(Struct, frozen=True):
    """A link between two named ends (nodes, switches or sites). ``capacity`` bytes/s, ``latency`` seconds."""

    a: str
    b: str
    capacity: float
    latency: float = 0.0


class Cluster(Struct, frozen=True):
    """Nodes in the order in which their devices are numbered, and the links between them."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...] = ()

    @property
    def devices(self) -> int:
        """Devices in all."""
        return sum(g.count for n in self.nodes for g in n.devices)

    @property
    def device_types(self) -> tuple[str, ...]:
        """Distinct device types, in order of first appearance."""
        return tuple(dict.fromkeys(g.type for n in self.nodes for g in n.devices))


class Shape(Struct, frozen=True):
    """One form that a gang may take: device type x count x locality.

    ``device_type`` None means any one type (a gang is never a mixture). ``nodes`` None means any number of nodes;
    a number asks for exactly so many, with the devices spread evenly (``devices`` is then a multiple of it).
    """

    devices: int
    device_type: str | None = None
    locality: Locality = Locality.SITE
    nodes: int | None = None


class Job(Struct, frozen=True):
    """What the scheduler knows of a job. How it is launched (command, environment) is no business of the core.

    Attributes:
        shapes: forms the gang may take, best first. One entry makes a rigid job.
        cpus, memory: cores and bytes reserved on a node for each device of the gang there.
        model: key into the throughput profile; None: unprofiled.
        total_steps: declared length in steps; None: not declared.
        walltime: seconds of running after which the job is ended; None: no limit.
        retries: failed attempts after which the job fails for good are ``retries + 1``.
        depends_on: jobs that must succeed before this one is queued; if one does not, this one is cancelled.
        after: jobs that must have ended, however, before this one is queued (how arrays run so many at a time).
        preemptible: False: once it runs, no policy takes its devices.
    """

    id: JobId
    shapes: tuple[Shape, ...]
    name: str = ""
    tenant: str = "default"
    priority: int = 0
    cpus: float = 0.0
    memory: int = 0
    model: str | None = None
    total_steps: float | None = None
    walltime: float | None = None
    retries: int = 0
    depends_on: tuple[JobId, ...] = ()
    after: tuple[JobId, ...] = ()
    preemptible: bool = True


class JobState(IntEnum):
    """The life of a job. See docs/internals/core.md for the diagram."""

    PENDING = 0  # waits for jobs it depends on
    QUEUED = 1  # waits for devices
    RECOVERING = 2  # its attempt failed; waits out the back-off, then queues
    STARTING = 3  # devices are claimed; workers are not up yet
    RUNNING = 4
    STOPPING = 5  # told to give its devices back; has not yet
    PAUSED = 6  # by its user; holds devices only if its process was kept
    SUCCEEDED = 7
    FAILED = 8
    CANCELLED = 9

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to the job."""
        return self >= JobState.SUCCEEDED


# The states as plain integers, for columns: comparing a NumPy scalar with an enum member takes a microsecond, because
# NumPy asks the member's class for array protocols first; with an int it takes thirty nanoseconds.
PENDING, QUEUED, RECOVERING, STARTING, RUNNING, STOPPING, PAUSED, SUCCEEDED, FAILED, CANCELLED = map(
    int, JobState
)


class StopMode(StrEnum):
    """How an attempt gives its devices back."""

    CHECKPOINT = (
        "checkpoint"  # notice, save at a step boundary, end; an unattached script is ended with what it has
    )
    KILL = "kill"  # at once
