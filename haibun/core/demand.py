"""What jobs ask for, interned: jobs that ask alike share one demand, and the placer looks at demands, not at jobs.

A demand is (shapes, cpus, memory, model). Each shape becomes one or more *options*: a shape without a device type
gives one option for each type of the cluster, fastest first by the profile, else in the cluster's order.
Options of a demand lie side by side: ``first[demand]`` to ``first[demand + 1] - 1``, best first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct

from haibun.core.columns import Bools, Columns, Floats, Ints, bools, floats, ints
from haibun.core.fleet import UNBOUNDED, Fleet, Health, millicpus
from haibun.core.vocabulary import Job, Locality, Shape

LOCALITIES = (Locality.NODE, Locality.SITE, Locality.ANY)


class Rates(Protocol):
    """Steps/s by model, device type, number of devices and whether they are on one node; nan where not known.

    ``model`` None is a job whose steps are seconds of its own duration, or an unprofiled one: implementations say.
    """

    def rate(self, model: str | None, device_type: str, devices: int, consolidated: bool) -> float: ...

    def observe(
        self, model: str, device_type: str, devices: int, consolidated: bool, rate: float
    ) -> None: ...

    def to_rows(self) -> Sequence[tuple[Any, ...]]:
        """What was learnt, as plain values, for a snapshot."""
        ...

    def restore(self, rows: Sequence[Sequence[Any]]) -> None:
        """Take back what ``to_rows`` gave."""
        ...


class Demand(Struct, frozen=True):
    """What is interned."""

    shapes: tuple[Shape, ...]
    cpus: float
    memory: int
    model: str | None


class OptionColumns(Columns):
    """One row an option. ``nodes`` 0: any number. ``rate`` as profiled on one node where it may be on one, steps/s."""

    demand: Ints = ints()
    type: Ints = ints()
    devices: Ints = ints()
    locality: Ints = ints()
    nodes: Ints = ints()
    rate: Floats = floats(math.nan)
    shape: Ints = ints()


class DemandColumns(Columns):
    """One row a demand. ``cpu`` in thousandths and ``memory`` in bytes, for each device; ``possible``: healthy nodes
    could hold it if they were empty; ``least``: fewest devices over its options."""

    first: Ints = ints()
    last: Ints = ints()
    cpu: Ints = ints()
    memory: Ints = ints()
    least: Ints = ints()
    possible: Bools = bools()
    best_rate: Floats = floats(math.nan)


class Demands:
    """All demands met so far. ``stale`` asks for a rebuild: the cluster or the profile has changed."""

    def __init__(self) -> None:
        self.items: list[Demand] = []
        self._numbers: dict[Demand, int] = {}
        self.rows = DemandColumns()
        self.options = OptionColumns()
        self.per_device: list[tuple[int, int]] = []  # thousandths of a core, bytes, of each demand
        self.stale = False

    def number(self, job: Job, fleet: Fleet, rates: Rates) -> int:
        """The demand of a job, new if need be."""
        demand = Demand(job.shapes, job.cpus, job.memory, job.model)
        number = self._numbers.get(demand)
        if number is None:
            number = self._numbers[demand] = len(self.items)
            self.items.append(demand)
            self.per_device.append((millicpus(demand.cpus), demand.memory))
            self._add(demand, fleet, rates)
        return number

    def rebuild(self, fleet: Fleet, rates: Rates) -> None:
        """Options anew for every demand, after nodes came or went or the profile learnt something."""
        self.rows = DemandColumns()
        self.options = OptionColumns()
        for demand in self.items:
            self._add(demand, fleet, rates)
        self.stale = False

    def _add(self, demand: Demand, fleet: Fleet, rates: Rates) -> None:
        r, o = self.rows, self.options
        d = r.add_row()
        r.first[d] = o.n
        r.cpu[d], r.memory[d] = self.per_device[d]
        r.least[d] = min(s.devices for s in demand.shapes)
        for index, shape in enumerate(demand.shapes):
            for rate, type_code in _types(shape, demand.model, fleet, rates):
                row = o.add_row()
                o.demand[row], o.type[row], o.devices[row] = d, type_code, shape.devices
                o.locality[row] = LOCALITIES.index(shape.locality)
                o.nodes[row], o.rate[row], o.shape[row] = shape.nodes or 0, rate, index
        r.last[d] = o.n
        known = o.rate[r.first[d] : o.n]
        known = known[~np.isnan(known)]
        r.best_rate[d] = known.max() if len(known) else math.nan
        r.possible[d] = any(
            most(self, row, fleet) >= o.devices[row] for row in range(int(r.first[d]), int(r.last[d]))
        )


def _types(shape: Shape, model: str | None, fleet: Fleet, rates: Rates) -> list[tuple[float, int]]:
    """(rate, type code) of the types that a shape may take, fastest first; unknown rates last, in cluster order."""
    names = [shape.device_type] if shape.device_type is not None else fleet.types.names
    rated = []
    for name in names:
        code = fleet.types.get(name)
        if code is None:
            continue
        rate = rates.rate(model, name, shape.devices, True)
        if rate != 0.0:  # a rate of 0 says that the model does not run on that type
            rated.append((rate, code))
    rate_known: Callable[[tuple[float, int]], tuple[bool, float]] = lambda r: (  # noqa: E731
        math.isnan(r[0]),
        0.0 if math.isnan(r[0]) else -r[0],
    )
    return sorted(rated, key=rate_known)


def most(demands: Demands, option: int, fleet: Fleet, ever: bool = False) -> int:
    """The most devices an option could get, were the cluster empty: of nodes that take work, or with ``ever`` all."""
    o, p, nodes = demands.options, fleet.pools, fleet.nodes
    demand = o.demand[option]
    cpu, memory = int(demands.rows.cpu[demand]), int(demands.rows.memory[demand])
    rooms: list[tuple[int, int]] = []  # (site, devices on one node)
    for pool in range(p.n):
        node = p.node[pool]
        if p.type[pool] != o.type[option] or (not ever and nodes.health[node] != Health.UP):
            continue
        by_cpu = nodes.cpus[node] // cpu if cpu else UNBOUNDED
        by_memory = nodes.memory[node] // memory if memory else UNBOUNDED
        rooms.append((int(nodes.site[node]), int(min(p.count[pool], by_cpu, by_memory))))
    if not rooms:
        return 0
    locality = LOCALITIES[o.locality[option]]
    if locality is Locality.NODE:
        return max(k for _, k in rooms)
    wanted = int(o.nodes[option])
    if wanted:
        each = int(o.devices[option]) // wanted
        rooms = [(site, each) for site, k in rooms if k >= each]
    if locality is Locality.ANY:
        return _sum_of_nodes(rooms, wanted)
    return max(
        (_sum_of_nodes([r for r in rooms if r[0] == s], wanted) for s in {r[0] for r in rooms}), default=0
    )


def _sum_of_nodes(rooms: list[tuple[int, int]], wanted: int) -> int:
    return sum(k for _, k in rooms[: wanted or None])
