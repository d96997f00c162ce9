"""A trace in memory: one row a job, in columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from haibun.core.vocabulary import Job, Locality, Shape
from haibun.trace.problems import Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of submission (those of one instant in the order of the file).

    Attributes:
        name: short name for tables and plots.
        path: where it was read from; empty if generated.
        format: ``philly``, ``gavel``, ``csv:...`` or ``generated``.
        ids: job ids, unique.
        submit: seconds from the first submission.
        duration: seconds on the devices asked for; nan where unknown.
        total_steps: length in optimizer steps; nan where unknown.
        devices: gang size.
        model: index into ``models``; -1 where unknown.
        tenant: index into ``tenants``.
        priority: larger goes first; 0 is ordinary.
        weight: share of a fair policy (Gavel's ``priority_weight``); 1 is ordinary.
        origin: the first submission on the clock of the file (Unix seconds where it has dates).
        problems: rows that were skipped.
    """

    name: str
    ids: list[str]
    submit: Floats
    duration: Floats
    total_steps: Floats
    devices: Ints
    model: Ints
    models: tuple[str, ...]
    tenant: Ints
    tenants: tuple[str, ...]
    priority: Ints
    weight: Floats
    path: str = ""
    format: str = ""
    origin: float = 0.0
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def job(self, row: int, *, locality: Locality = Locality.SITE, device_type: str | None = None) -> Job:
        """The job of one row, rigid, in the words of the core.

        Its length is in steps if both steps and model are known: a throughput table then says how fast it
        runs. Otherwise one step is one second: ``total_steps`` is the duration, ``model`` is None, and it
        runs at rate 1. (Steps of no known model and no duration are taken at one step a second as well.)
        """
        return self._job(row, Shape(int(self.devices[row]), device_type, locality))

    def jobs(self, *, locality: Locality = Locality.SITE, device_type: str | None = None) -> Iterator[Job]:
        """All jobs in order of submission; see `job`."""
        shapes = {n: Shape(n, device_type, locality) for n in np.unique(self.devices).tolist()}
        for row, devices in enumerate(self.devices.tolist()):
            yield self._job(row, shapes[devices])

    def _job(self, row: int, shape: Shape) -> Job:
        steps, duration, model = float(self.total_steps[row]), float(self.duration[row]), int(self.model[row])
        by_steps = model >= 0 and steps == steps
        length = steps if by_steps or duration != duration else duration
        return Job(
            id=self.ids[row],
            shapes=(shape,),
            name=self.ids[row],
            tenant=self.tenants[int(self.tenant[row])],
            priority=int(self.priority[row]),
            model=self.models[model] if by_steps else None,
            total_steps=length,
        )

    def select(
        self,
        *,
        limit: int | None = None,
        start: float | None = None,
        end: float | None = None,
        tenant: str | None = None,
        max_devices: int | None = None,
    ) -> Trace:
        """The jobs submitted in ``[start, end)`` seconds, of one tenant, with gangs of at most
        ``max_devices``.

        ``limit`` keeps the first so many of those. The clock starts anew at the first job kept; ids stay.

        Raises:
            ValueError: ``limit`` is negative, or the tenant is not in the trace.
        """
        keep = np.ones(len(self), dtype=np.bool_)
        if start is not None:
            keep &= self.submit >= start
        if end is not None:
            keep &= self.submit < end
        if tenant is not None:
            if tenant not in self.tenants:
                raise ValueError(f"no tenant {tenant!r} in {self.name}; it has {', '.join(self.tenants)}")
            keep &= self.tenant == self.tenants.index(tenant)
        if max_devices is not None:
            keep &= self.devices <= max_devices
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}; it must be 0 or more")
        return self.take(np.flatnonzero(keep)[:limit])

    def take(self, rows: Ints) -> Trace:
        """The jobs of some rows, in that order (which must be one of time). The clock starts anew at the first."""
        submit = self.submit[rows]
        shift = float(submit[0]) if len(rows) else 0.0
        return replace(
            self,
            ids=[self.ids[i] for i in rows.tolist()],
            submit=submit - shift,
            duration=self.duration[rows],
            total_steps=self.total_steps[rows],
            devices=self.devices[rows],
            model=self.model[rows],
            tenant=self.tenant[rows],
            priority=self.priority[rows],
            weight=self.weight[rows],
            origin=self.origin + shift,
        )
