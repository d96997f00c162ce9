"""What controller and node agent say to each other, as msgpack frames over one WebSocket that the agent opens.

Agent to controller: ``Hello`` first, then ``Report`` (numbered, kept and sent again until acknowledged; the core
refuses stale epochs, so a repeat does no harm) and ``Beat`` (telemetry, never repeated).
Controller to agent: ``Welcome`` in answer to Hello, ``Ack``, and commands. A command for an attempt that the agent
has in a later epoch is dropped; one for an attempt that it does not have is answered with ``AttemptStopped``.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from haibun.core.events import AnyEvent
from haibun.core.vocabulary import JobId, Node, NodeName, StopMode

PROTOCOL_VERSION = 1


class Launch(Struct, frozen=True):
    """How the part of a job that lies on one node is started.

    Attributes:
        run: a shell script (``sh -c``) when ``argv`` is None.
        argv: a command to execute without a shell; ``python SCRIPT ...`` is taken from the warm pool where it fits.
        setup: a shell script to run once on the node before the workers, in the same environment and folder.
        devices: device numbers on this node (0-based), one worker each unless ``processes`` says otherwise.
        processes: workers on this node.
        first_rank, world_size, node_rank, nodes: as torchrun's RANK, WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE.
        master_port: 0: the agent picks a free one (gangs on one node).
        cpus, memory: cores and bytes for the job on this node; 0: the devices' part of the node.
        durable: the step that the last durable checkpoint holds.
        checkpoints: folder for the job's checkpoints, the same for all its attempts.
        logs: folder for the job's logs.
        hang_after: seconds without a step after which an attached job counts as hung; None: learnt from its steps.
    """

    job: JobId
    epoch: int
    name: str
    devices: tuple[int, ...]
    processes: int
    cwd: str
    checkpoints: str
    logs: str
    run: str | None = None
    argv: tuple[str, ...] | None = None
    setup: str | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    first_rank: int = 0
    world_size: int = 1
    node_rank: int = 0
    nodes: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    cpus: float = 0.0
    memory: int = 0
    durable: float = 0.0
    hang_after: float | None = None
    checkpoint_every: float | None = None


class Message(Struct, frozen=True, tag_field="msg"):
    pass


class Order(Message, frozen=True, tag="order"):
    """What rank 0 wrote on the board of its node for all ranks to obey (``train/agreement.py``).

    A gang on several nodes has several boards: the agent of node rank 0 sends this with its status when it changes,
    the controller passes it to the agents of the other nodes, and they write it onto their boards.
    """

    job: JobId
    epoch: int
    number: int
    command: int
    at: int
    seq: int


class AttemptStatus(Struct, frozen=True):
    """Where an attempt stands on one node. ``state``: starting, running, held, stopping."""

    job: JobId
    epoch: int
    state: str
    step: float = 0.0
    durable: float = 0.0
    total: float | None = None
    rate: float | None = None
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    devices: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    first_step_after: float | None = None  # seconds from the Start command to the end of the first step
    stragglers: tuple[int, ...] = ()  # ranks here whose steps take much longer than the others'
    order: Order | None = None  # gangs on several nodes: the last word of rank 0, where it is


class Hello(Message, frozen=True, tag="hello"):
    node: Node
    boot: str  # differs each time an agent starts: one that comes back under the same boot has kept its attempts
    attempts: tuple[AttemptStatus, ...]
    version: int = PROTOCOL_VERSION


class Report(Message, frozen=True, tag="report"):
    seq: int
    event: AnyEvent


class Beat(Message, frozen=True, tag="beat"):
    node: NodeName
    attempts: tuple[AttemptStatus, ...]
    cpu: float = 0.0  # busy cores
    memory: int = 0  # bytes used
    devices: tuple[float, ...] = ()  # utilisation of each device, 0 to 1


class Welcome(Message, frozen=True, tag="welcome"):
    """``keep``: attempts (job, epoch) that the controller wants; the agent ends all others it has."""

    keep: tuple[tuple[JobId, int], ...]
    beat_every: float = 0.5


class Refused(Message, frozen=True, tag="refused"):
    why: str


class Ack(Message, frozen=True, tag="ack"):
    seq: int


class Start(Message, frozen=True, tag="start"):
    launch: Launch


class Stop(Message, frozen=True, tag="stop"):
    job: JobId
    epoch: int
    mode: StopMode
    grace: float = 10.0  # seconds from notice to SIGKILL


class Hold(Message, frozen=True, tag="hold"):
    job: JobId
    epoch: int


class Continue(Message, frozen=True, tag="continue"):
    job: JobId
    epoch: int


class Shutdown(Message, frozen=True, tag="shutdown"):
    """End all attempts (with a checkpoint where attached), then the agent."""

    grace: float = 10.0


FromAgent = Hello | Report | Beat
ToAgent = Welcome | Refused | Ack | Start | Stop | Hold | Continue | Order | Shutdown

_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)


def pack(message: Message) -> bytes:
    """Encode a message as one frame."""
    return _encoder.encode(message)


def from_agent(frame: bytes) -> FromAgent:
    """Decode a frame that an agent sent.

    Raises:
        msgspec.MsgspecError: the frame is no such message.
    """
    return _from_agent.decode(frame)


def to_agent(frame: bytes) -> ToAgent:
    """Decode a frame that a controller sent.

    Raises:
        msgspec.MsgspecError: the frame is no such message.
    """
    return _to_agent.decode(frame)
