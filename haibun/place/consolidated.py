"""Consolidated best-fit placement on the fewest nodes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from haibun.core.stages import Cost, Evicted, Placed, Placement, Ranking
from haibun.core.view import View
from haibun.place import kernel


class Consolidated:
    """A gang goes to the node where it leaves the fewest devices over; if no node holds it, to the fewest nodes.

    It is never refused while enough healthy devices of its type are free and its locality allows it. Where devices
    must be taken from lower-ranked jobs, it goes where the fewest must be.
    """

    name: ClassVar[str] = "consolidated"

    def __init__(self) -> None:
        self._mark = np.zeros(64, np.int64)
        self._out: tuple[NDArray[np.int64], ...] = ()

    def place(self, ranking: Ranking, view: View, cost: Cost) -> Placement:
        """One pass over the ranking; ``cost`` is not looked at (contention-blind)."""
        j, d, o = view.jobs, view.demands, view.options
        p, n, dev = view.pools, view.nodes, view.devices
        self._reserve(len(j.state), dev.n)
        placed, evicted, blocked = kernel.plan(
            ranking.waiting,
            ranking.running,
            ranking.keys,
            ranking.strict,
            (j.demand, j.avoid, j.type, j.width),
            (d.first, d.last, d.cpu, d.memory, d.possible),
            (o.type, o.devices, o.locality, o.nodes),
            (p.node, p.type, p.open, p.n),
            p.free,
            (n.site, n.cpu_free, n.memory_free, n.n),
            (dev.pool, dev.claim, dev.owner, dev.n),
            view.device_types,
            self._mark,
            self._out,
        )
        if not placed and not evicted:
            return Placement(blocked=blocked)
        return self._read(placed, evicted, blocked)

    def _read(self, placed: int, evicted: int, blocked: int) -> Placement:
        rows, ranks, options, firsts, takens, numbers, ev_rows, ev_ranks, ev_by = self._out
        bounds = firsts[: placed + 1].tolist()
        devices = numbers[: bounds[placed]].tolist()
        return Placement(
            [
                Placed(row, rank, option, tuple(devices[bounds[i] : bounds[i + 1]]), taken)
                for i, (row, rank, option, taken) in enumerate(
                    zip(
                        rows[:placed].tolist(),
                        ranks[:placed].tolist(),
                        options[:placed].tolist(),
                        takens[:placed].tolist(),
                        strict=True,
                    )
                )
            ],
            [Evicted(int(ev_rows[i]), int(ev_ranks[i]), int(ev_by[i])) for i in range(evicted)],
            blocked,
        )

    def _reserve(self, rows: int, devices: int) -> None:
        if rows > len(self._mark):
            self._mark = np.zeros(rows, np.int64)
        if not self._out or devices > len(self._out[0]) - 1:
            self._out = tuple(np.zeros(devices + 1, np.int64) for _ in range(9))
