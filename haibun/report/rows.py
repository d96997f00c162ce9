"""What reports are made of: plain columns and rows.

Times in seconds, on one clock a page; nan: has not happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Jobs(Struct, frozen=True):
    """Columns of equal length, one entry a job. ``states`` as in ``JobState``, lower case."""

    ids: Sequence[str]
    names: Sequence[str]
    tenants: Sequence[str]
    devices: Ints
    submitted: Floats
    started: Floats
    finished: Floats
    states: Sequence[str]
    preemptions: Ints
    failures: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def jct(self) -> Floats:
        """Seconds from submission to finish of those that succeeded; nan for the others."""
        succeeded = np.fromiter((s == "succeeded" for s in self.states), np.bool_, len(self))
        return np.where(succeeded, self.finished - self.submitted, np.nan)


class Span(Struct, frozen=True, gc=False):
    """One attempt on its devices (numbers of the State); ``end`` nan while it lasts.

    ``outcome``: succeeded, failed, preempted, cancelled, lost or running.
    """

    job: str
    devices: tuple[int, ...]
    start: float
    end: float
    outcome: str


class Series(Struct, frozen=True):
    """Step functions: from ``times[i]`` on, ``busy[i]`` devices are held and ``queued[i]`` jobs wait."""

    times: Floats
    busy: Ints
    queued: Ints


class NodeDevices(Struct, frozen=True):
    """A node and its devices' numbers."""

    name: str
    type: str
    devices: Sequence[int]


class Run(Struct, frozen=True):
    """One replay, or the live run. ``figures``: an entry of ``results`` of ``haibun simulate --json``."""

    label: str
    figures: Mapping[str, Any]
    jobs: Jobs
    spans: Sequence[Span]
    series: Series
    nodes: Sequence[NodeDevices]

    @property
    def devices(self) -> int:
        """Devices in all."""
        return sum(len(n.devices) for n in self.nodes)


class Moment(Struct, frozen=True):
    """Something that happened, and why, in a sentence. ``at`` in seconds since the page's start of time."""

    at: float
    text: str
    kind: str = ""  # 'bad' for failures, 'good' for recoveries


class Pair(Struct, frozen=True):
    """One quantity seen twice, in seconds: live and in the twin, say."""

    label: str
    left: float | None
    right: float | None
