"""The four stages of a decision, as protocols: order, pack, place, wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from haibun.core.decision import Evict, MemoryChange, Place
from haibun.core.state import Delta
from haibun.core.view import View
from haibun.core.vocabulary import JobState

KEYS = 4  # columns of a ranking key; unused ones are 0
Rows = NDArray[np.int64]
Keys = NDArray[np.float64]


@dataclass(slots=True)
class Ranking:
    """Jobs in the order in which they should get devices.

    ``waiting`` and ``running`` are each in order; the whole order is their merge by ``keys`` (a row of KEYS numbers a
    job, compared left to right, smaller first; ties by row). Placers merge as they go and stop when nothing more can
    fit, so a ranking of 12,000 jobs costs no more than the part of it that is looked at.

    A running job that is ranked keeps its gang as long as those ranked before it leave it room; one that is not ranked
    keeps it in any case. ``strict``: no waiting job is passed over, a blocked one blocks all waiting jobs behind it.
    """

    waiting: Rows
    running: Rows
    keys: Keys
    strict: bool = False

    @classmethod
    def of(cls, rows: Rows, view: View, strict: bool = False) -> Ranking:
        """The ranking that lists ``rows`` (waiting and running jobs, mixed) in just this order."""
        keys = np.zeros((len(view.jobs.state), KEYS))
        keys[rows, 0] = np.arange(len(rows))
        waiting = view.jobs.state[rows] == JobState.QUEUED
        return cls(rows[waiting], rows[~waiting], keys, strict)


@dataclass(slots=True)
class Ranked:
    """What ``rank`` returns: the order, what the policy wants remembered, and when it wants to be asked again."""

    ranking: Ranking
    memory: tuple[MemoryChange, ...] = ()
    wake_at: float | None = None


class Policy(Protocol):
    """The order stage. Pure: the same State gives the same ranking; what it keeps between calls is a cache of the
    State that ``delta`` keeps up, never a memory of its own."""

    name: ClassVar[str]

    def rank(self, view: View, delta: Delta, now: float) -> Ranked: ...


class Waking(Policy, Protocol):
    """A policy for which time counts differently once a job runs, as where service is limited."""

    def wake(self, view: View, placed: list[Placed], now: float) -> float:
        """When to ask again, at the latest, on account of jobs that now get a gang; inf: no need."""
        ...


class Cost(Protocol):
    """What a placement would cost, in seconds an iteration: pure, from the network model."""

    def __call__(self, job: int, devices: tuple[int, ...]) -> float: ...


def no_cost(job: int, devices: tuple[int, ...]) -> float:
    """Every placement is as good as another."""
    return 0.0


class Packer(Protocol):
    """The pack stage: forms bundles of jobs that share a gang. A bundle bears the row of its first job."""

    def pack(self, ranking: Ranking, view: View) -> Ranking: ...


class PackAlone:
    """Every job has its gang to itself."""

    def pack(self, ranking: Ranking, view: View) -> Ranking:
        """The ranking as it is: each bundle is one job."""
        return ranking


@dataclass(slots=True)
class Placement:
    """What ``place`` returns. Rows are job rows; ``rank`` is the place in the ranking, from 0."""

    place: list[Placed] = field(default_factory=list)
    evict: list[Evicted] = field(default_factory=list)
    blocked: int = -1  # the first waiting job that was refused, -1 if none was


@dataclass(slots=True)
class Placed:
    """A waiting job gets these devices, ascending; ``taken`` of them are taken from lower-ranked jobs."""

    row: int
    rank: int
    option: int
    devices: tuple[int, ...]
    taken: int


@dataclass(slots=True)
class Evicted:
    """A running job loses its gang; ``by`` is the row of the highest-ranked job placed where it was."""

    row: int
    rank: int
    by: int


class Placer(Protocol):
    """The place stage."""

    name: ClassVar[str]

    def place(self, ranking: Ranking, view: View, cost: Cost) -> Placement: ...


class Wirer(Protocol):
    """The wire stage: rates, priorities and time shifts for what was placed."""

    def wire(self, place: list[Place], evict: list[Evict], view: View) -> None: ...


class WireNothing:
    """Links are shared as they come."""

    def wire(self, place: list[Place], evict: list[Evict], view: View) -> None:
        """Decide nothing."""
