"""What the demo runs: kinds of jobs, when each job comes, and whose worker is killed.

Lengths are in seconds of running, turned into steps by the rates that were measured on this machine: so the demo takes
as long on a laptop as on a GPU server.
"""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec import Struct

import haibun
from haibun.demo.errors import DemoError
from haibun.spec.job import JobSpec, Resources

CHECKPOINT_EVERY = 2.0  # seconds: what the killed worker may cost at most
DEVICES = 4
# Its decisions follow from priorities and the order of events alone, not from speeds measured meanwhile: live and twin
# can be held against each other strictly.
POLICY = "fifo"


class Kind(Struct, frozen=True):
    """A sort of job: a script of ``examples/scripts`` and what it is told. ``name`` keys the profile."""

    name: str
    script: str
    arguments: tuple[str, ...]
    devices: int = 1


GPT = Kind("gpt", "gpt_bytes.py", ("--width", "64", "--batch", "8", "--seq", "64"))
CNN = Kind("cnn", "cnn_synthetic.py", ("--width", "8", "--batch", "8", "--size", "16"))
DDP = Kind("ddp", "ddp_mlp.py", ("--width", "256", "--batch", "64"), devices=2)
KINDS = (GPT, CNN, DDP)


class Plan(Struct, frozen=True):
    """One job: it comes ``at`` seconds after the first and runs for ``seconds`` if nothing disturbs it.

    With ``after`` it comes ``at`` seconds after that job was seen to go on from a checkpoint: what it is to disturb is
    then there, however fast this machine is just now.
    """

    name: str
    kind: Kind
    at: float
    seconds: float
    priority: int = 0
    after: str = ""


class Kill(Struct, frozen=True):
    """SIGKILL for one worker: ``at`` seconds after the first job came, or as soon as a checkpoint is there."""

    job: str
    rank: int
    at: float


class Scenario(Struct, frozen=True):
    """All of it."""

    plans: tuple[Plan, ...]
    kill: Kill
    urgent: str  # the job that comes with priority


# Times lie seconds apart wherever their order decides something, so that noise does not change what happens.
FULL = Scenario(
    plans=(
        Plan("gpt", GPT, 0.0, 27.0),
        Plan("cnn", CNN, 0.0, 32.0),
        Plan("ddp", DDP, 0.0, 34.0),
        Plan("short-cnn", CNN, 11.0, 5.0, priority=1),
        Plan("short-gpt", GPT, 11.0, 8.0, priority=1),
        Plan("urgent", DDP, 2.5, 6.0, priority=10, after="ddp"),
    ),
    kill=Kill("gpt", rank=0, at=6.0),
    urgent="urgent",
)

# For tests: as much as there must be for every claim.
SHORT = Scenario(
    plans=(
        Plan("gpt", GPT, 0.0, 8.0),
        Plan("cnn", CNN, 0.0, 12.0),
        Plan("ddp", DDP, 0.0, 14.0),
        Plan("urgent", DDP, 6.0, 2.5, priority=10),
        Plan("short-cnn", CNN, 7.0, 2.0),
    ),
    kill=Kill("gpt", rank=0, at=2.5),
    urgent="urgent",
)


def scripts() -> Path:
    """The folder of the training scripts: the repository's, which an editable install finds too.

    Raises:
        DemoError: Haibun was installed without its repository.
    """
    folder = Path(haibun.__file__).resolve().parents[1] / "examples" / "scripts"
    if (folder / GPT.script).is_file():
        return folder
    raise DemoError("the training scripts are not here; run the demo from a checkout of Haibun ('make demo')")


def spec(name: str, kind: Kind, steps: int, workdir: Path, priority: int = 0) -> JobSpec:
    """The job as a user would write it."""
    command = [sys.executable, str(scripts() / kind.script), "--steps", str(steps), *kind.arguments]
    return JobSpec(
        name=name,
        run=command,
        resources=Resources(devices=kind.devices),
        priority=priority,
        model=kind.name,
        total_steps=steps,
        checkpoint_every=CHECKPOINT_EVERY,
        retries=2,
        workdir=str(workdir),
    )
