"""The cluster as columns: nodes, pools of equal devices, devices; and who holds what.

Two books are kept of every device, for a plan changes before the world does:
- ``claim``: the job to which the plan gives the device (-1: none);
- ``owner``: the job whose workers are on it (-1: none).
A running job is both. A stopping job is still the owner, and no longer the claimant: its devices may be planned anew,
and the next attempt starts once they are released. CPUs and memory of nodes are kept in the same two books.

CPUs are counted in thousandths of a core and memory in bytes, as integers: sums are exact.
"""

from __future__ import annotations

from enum import IntEnum

from haibun.core.columns import Bools, Codes, Columns, Ints, bools, ints
from haibun.core.vocabulary import Node

UNBOUNDED = 1 << 60
NO_JOB = -1


def millicpus(cpus: float) -> int:
    """Cores to thousandths of a core."""
    return round(cpus * 1000)


class Health(IntEnum):
    """Whether a node takes work."""

    UP = 0
    DRAINING = 1
    LOST = 2


class NodeColumns(Columns):
    """One row a node. ``cpu_free`` and ``memory_free`` are the plan's book, ``*_here`` the world's.

    ``drained``: its operator wants it empty, whether it is there or lost.
    """

    health: Ints = ints()
    drained: Bools = bools()
    site: Ints = ints()
    cpus: Ints = ints()
    memory: Ints = ints()
    cpu_free: Ints = ints()
    memory_free: Ints = ints()
    cpu_here: Ints = ints()
    memory_here: Ints = ints()


class PoolColumns(Columns):
    """One row for each group of equal devices on a node; devices ``first`` to ``first + count - 1`` are its own.

    ``free`` counts devices without a claim. ``open`` says that the node takes work.
    """

    node: Ints = ints()
    type: Ints = ints()
    first: Ints = ints()
    count: Ints = ints()
    memory: Ints = ints()
    free: Ints = ints()
    open: Bools = bools()


class DeviceColumns(Columns):
    """One row a device."""

    pool: Ints = ints()
    claim: Ints = ints(NO_JOB)
    owner: Ints = ints(NO_JOB)


class Fleet:
    """Nodes, pools and devices, numbered in the order in which they joined; numbers are never used again."""

    def __init__(self) -> None:
        self.nodes = NodeColumns()
        self.pools = PoolColumns()
        self.devices = DeviceColumns()
        self.types = Codes()
        self.sites = Codes()
        self.names = Codes()
        self.descriptions: list[Node] = []

    def join(self, node: Node) -> int:
        """A node is there, new or back; returns its number.

        Raises:
            ValueError: it is known, and now says that it has other devices.
        """
        known = self.names.get(node.name)
        if known is not None:
            if self.descriptions[known].devices != node.devices:
                raise ValueError(f"node {node.name} came back with other devices; give it a new name")
            self.set_health(known, Health.DRAINING if self.nodes.drained[known] else Health.UP)
            return known
        self.names.code(node.name)
        self.descriptions.append(node)
        number = self.nodes.add_row()
        cpus = millicpus(node.cpus) or UNBOUNDED
        memory = node.memory or UNBOUNDED
        self.nodes.site[number] = self.sites.code(node.site)
        for column, amount in (("cpus", cpus), ("cpu_free", cpus), ("cpu_here", cpus)):
            getattr(self.nodes, column)[number] = amount
        for column, amount in (("memory", memory), ("memory_free", memory), ("memory_here", memory)):
            getattr(self.nodes, column)[number] = amount
        for group in node.devices:
            pool = self.pools.add_row()
            p = self.pools
            p.node[pool], p.type[pool] = number, self.types.code(group.type)
            p.first[pool], p.count[pool] = self.devices.n, group.count
            p.memory[pool], p.free[pool], p.open[pool] = group.memory, group.count, True
            for _ in range(group.count):
                device = self.devices.add_row()
                self.devices.pool[device] = pool
        return number

    def set_health(self, node: int, health: Health) -> None:
        """Open or close a node's pools."""
        self.nodes.health[node] = health
        self.pools.open[: self.pools.n][self.pools.node[: self.pools.n] == node] = health == Health.UP

    def drain(self, node: int, drained: bool) -> None:
        """The operator wants a node empty, or in use again; a lost one is so once it is back."""
        self.nodes.drained[node] = drained
        if self.nodes.health[node] != Health.LOST:
            self.set_health(node, Health.DRAINING if drained else Health.UP)

    def claim(self, row: int, devices: tuple[int, ...], cpu: int, memory: int) -> None:
        """Write a gang into the plan's book; ``cpu`` (thousandths) and ``memory`` (bytes) for each device."""
        d, pools, nodes = self.devices, self.pools, self.nodes
        for device in devices:
            pool = d.pool[device]
            d.claim[device] = row
            pools.free[pool] -= 1
            if cpu or memory:
                node = pools.node[pool]
                nodes.cpu_free[node] -= cpu
                nodes.memory_free[node] -= memory

    def unclaim(self, row: int, devices: tuple[int, ...], cpu: int, memory: int) -> None:
        """Strike a gang from the plan's book, where it still stands in it."""
        d, pools, nodes = self.devices, self.pools, self.nodes
        for device in devices:
            if d.claim[device] != row:
                continue
            pool = d.pool[device]
            d.claim[device] = NO_JOB
            pools.free[pool] += 1
            if cpu or memory:
                node = pools.node[pool]
                nodes.cpu_free[node] += cpu
                nodes.memory_free[node] += memory

    def can_occupy(self, devices: tuple[int, ...], cpu: int, memory: int) -> bool:
        """Whether the world's book has room for a gang now."""
        d, pools, nodes = self.devices, self.pools, self.nodes
        for device in devices:
            if d.owner[device] != NO_JOB:
                return False
        if not (cpu or memory):
            return True
        asked: dict[int, int] = {}
        for device in devices:
            node = int(pools.node[d.pool[device]])
            asked[node] = asked.get(node, 0) + 1
        return all(
            cpu * k <= nodes.cpu_here[node] and memory * k <= nodes.memory_here[node]
            for node, k in asked.items()
        )

    def occupy(self, row: int, devices: tuple[int, ...], cpu: int, memory: int) -> None:
        """Workers of the job are on these devices from now on."""
        self._move(NO_JOB, row, devices, -cpu, -memory)

    def release(self, row: int, devices: tuple[int, ...], cpu: int, memory: int) -> None:
        """Nothing of the job is left on these devices (those that it no longer owns are passed over)."""
        self._move(row, NO_JOB, devices, cpu, memory)

    def _move(self, of: int, to: int, devices: tuple[int, ...], cpu: int, memory: int) -> None:
        d, pools, nodes = self.devices, self.pools, self.nodes
        for device in devices:
            if d.owner[device] != of:
                continue
            d.owner[device] = to
            if cpu or memory:
                node = pools.node[d.pool[device]]
                nodes.cpu_here[node] += cpu
                nodes.memory_here[node] += memory

    def node_of(self, device: int) -> int:
        """The number of the node that a device is on."""
        return int(self.pools.node[self.devices.pool[device]])

    def node_names(self, devices: tuple[int, ...]) -> tuple[str, ...]:
        """Names of the nodes that the devices are on, each once, in device order."""
        pools = self.devices.pool
        nodes = self.pools.node
        names = self.names.names
        if len(devices) == 1:
            return (names[nodes[pools[devices[0]]]],)
        return tuple(names[i] for i in dict.fromkeys(int(nodes[pools[d]]) for d in devices))

    def local_number(self, device: int) -> int:
        """A device's number on its node, counted from 0."""
        node = self.node_of(device)
        first = int(self.pools.first[: self.pools.n][self.pools.node[: self.pools.n] == node][0])
        return device - first

    def device_name(self, device: int) -> str:
        """``node/number``."""
        return f"{self.names.names[self.node_of(device)]}/{self.local_number(device)}"
