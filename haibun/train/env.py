"""What the node agent tells a worker through its environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CHECKPOINT_EVERY = (
    60.0  # seconds; what a kill -9 may cost at most, against some 0.1 % of the time spent saving
)


@dataclass(frozen=True, slots=True)
class Environment:
    """Where this worker is. ``checkpoint_every`` is in seconds; infinity: only when asked, and at the end."""

    board: Path
    slot: int
    job: str
    epoch: int
    checkpoints: Path
    checkpoint_every: float = CHECKPOINT_EVERY
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @property
    def leader(self) -> bool:
        """Whether this is the rank that decides after which step all ranks obey."""
        return self.rank == 0

    @property
    def one_node(self) -> bool:
        """Whether all ranks see the same board."""
        return self.world_size == self.local_world_size

    @property
    def nested(self) -> bool:
        """Whether a launcher inside the job (torchrun, say) started this worker, which then has no slot."""
        return self.local_rank != self.slot


def read(environ: Mapping[str, str]) -> Environment | None:
    """The worker's place as its agent set it; None outside Haibun.

    Raises:
        RuntimeError: the environment was set only in part, or a value is no number.
    """
    if not environ.get("HAIBUN_BOARD"):
        return None
    world_size = _whole(environ, "WORLD_SIZE", 1)
    slot = _whole(environ, "HAIBUN_SLOT")
    return Environment(
        board=Path(environ["HAIBUN_BOARD"]),
        slot=slot,
        job=environ.get("HAIBUN_JOB", ""),
        epoch=_whole(environ, "HAIBUN_EPOCH"),
        checkpoints=Path(_text(environ, "HAIBUN_CHECKPOINTS")),
        checkpoint_every=_seconds(environ, "HAIBUN_CHECKPOINT_EVERY", CHECKPOINT_EVERY),
        rank=_whole(environ, "RANK", 0),
        world_size=world_size,
        local_rank=_whole(environ, "LOCAL_RANK", slot),
        local_world_size=_whole(environ, "LOCAL_WORLD_SIZE", world_size),
    )


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise RuntimeError(
            f"HAIBUN_BOARD is set but {name} is not: the two come together from Haibun's agent"
        )
    return value


def _whole(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    if default is not None and not environ.get(name):
        return default
    text = _text(environ, name)
    try:
        return int(text)
    except ValueError:
        raise RuntimeError(f"{name} must be a whole number, not {text!r}") from None


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise RuntimeError(f"{name} must be a number of seconds, 0 for never, not {text!r}")
    return value or math.inf
