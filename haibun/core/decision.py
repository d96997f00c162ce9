"""What a decision says: which bundles lose their gang, which get one, what the policy must remember, when to wake."""

from __future__ import annotations

from msgspec import Struct

from haibun.core.reasons import Reason
from haibun.core.vocabulary import JobId


class Evict(Struct, frozen=True, gc=False):
    """The job gives its devices back."""

    job: JobId
    reason: Reason


class Place(Struct, frozen=True, gc=False):
    """A bundle gets a gang: ``devices`` are device numbers of the State, ascending.

    ``jobs`` is the bundle; ``share`` is its part of each device's time. ``shape`` is the index of
    the shape that the placer chose, in the first job's list.
    """

    jobs: tuple[JobId, ...]
    devices: tuple[int, ...]
    shape: int
    reason: Reason
    share: float = 1.0


class MemoryChange(Struct, frozen=True, gc=False):
    """New values of one per-job column of the policy's memory."""

    column: str
    jobs: tuple[JobId, ...]
    values: tuple[float, ...]


class Decision(Struct, frozen=True, gc=False):
    """The outcome of ``decide``; journalled, then applied. Replay applies it and solves nothing again."""

    evict: tuple[Evict, ...] = ()
    place: tuple[Place, ...] = ()
    memory: tuple[MemoryChange, ...] = ()
    wake_at: float | None = None
    blocked: JobId | None = None

    @property
    def changes_plan(self) -> bool:
        """Whether any job gains or loses devices."""
        return bool(self.evict or self.place)
