"""What this host has to give: real GPUs where NVML finds them, else virtual devices cut from its CPUs.

A virtual device is a set of CPUs that no other device has. Where there are fewer CPUs than devices, each
device is a share of one core, held to it by a CPU quota: devices stay isolated from one another, only
smaller.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from typing import Any, Protocol

from haibun.core.vocabulary import DeviceGroup, Node

_MARKETING = re.compile(r"^(nvidia|tesla|quadro|geforce|rtx|gtx|graphics|gpu|device)$")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML tells it; ``memory`` in bytes."""

    index: int
    uuid: str
    type: str
    memory: int


class GpuProbe(Protocol):
    """Reads the GPUs of the host. ``NvmlProbe`` outside tests."""

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs, in PCI order; empty where there is no driver."""
        ...

    def utilisation(self, index: int) -> float:
        """How busy a GPU is, 0 to 1."""
        ...


@dataclass(frozen=True, slots=True)
class LocalDevice:
    """One device of this node.

    Attributes:
        number: device number on this node, from 0.
        cpus: the CPUs that its worker is bound to.
        cores: how much of them is its own; less than ``len(cpus)`` only for a share of a core.
        memory: bytes of host memory that are its part of the node.
        gpu: the GPU, or None for a virtual device.
    """

    number: int
    cpus: tuple[int, ...]
    cores: float
    memory: int
    gpu: Gpu | None = None

    @property
    def quota(self) -> float | None:
        """Cores to which a CPU quota must hold its worker; None where the CPU set alone does."""
        return self.cores if self.cores < len(self.cpus) else None


@dataclass(frozen=True, slots=True)
class Inventory:
    """The node as the scheduler sees it, and its devices as the agent does."""

    node: Node
    devices: tuple[LocalDevice, ...]


class NvmlProbe:
    """GPUs by NVML (nvidia-ml-py). Any failure to load it means: no GPUs."""

    def __init__(self) -> None:
        self._nvml: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
        except Exception:  # no library, no driver, no permission: all mean that there is no GPU to use
            self._nvml = None

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs, in PCI order; empty where there is no driver."""
        if self._nvml is None:
            return ()
        return tuple(self._gpu(i) for i in range(self._nvml.nvmlDeviceGetCount()))

    def _gpu(self, index: int) -> Gpu:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        name, uuid = self._nvml.nvmlDeviceGetName(handle), self._nvml.nvmlDeviceGetUUID(handle)
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle).total
        return Gpu(index, _text(uuid), type_name(_text(name)), int(memory))

    def utilisation(self, index: int) -> float:
        """How busy a GPU is, 0 to 1; 0 where the driver cannot tell."""
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            return float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100.0
        except Exception:  # MIG and some virtual GPUs refuse; utilisation is telemetry
            return 0.0


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def type_name(marketing: str) -> str:
    """The short name of a GPU model: ``a100`` for ``NVIDIA A100-SXM4-80GB``."""
    words = marketing.lower().replace("-", " ").split()
    model = [w for w in words if not _MARKETING.match(w)]
    if not model:
        return "gpu"
    series = [w for w in words if w in ("rtx", "gtx")]
    prefix = series[0] if series and model[0].isdigit() else ""
    suffix = model[1] if len(model) > 1 and model[1] in ("ti", "super") else ""
    return prefix + model[0] + suffix


def visible(gpus: tuple[Gpu, ...], mask: str | None) -> tuple[Gpu, ...]:
    """The GPUs that a CUDA_VISIBLE_DEVICES value leaves to the agent (indices or UUID prefixes); None: all.

    Raises:
        ValueError: the value names a GPU that the host does not have.
    """
    if mask is None:
        return gpus
    chosen = []
    for word in (w.strip() for w in mask.split(",") if w.strip()):
        if word == "-1":
            break
        found = [g for g in gpus if (word.isdigit() and g.index == int(word)) or g.uuid.startswith(word)]
        if not found:
            raise ValueError(f"CUDA_VISIBLE_DEVICES={mask}: this host has no GPU {word} (it has {len(gpus)})")
        chosen.append(found[0])
    return tuple(chosen)


def discover(
    name: str,
    *,
    virtual: int | None = None,
    site: str = "default",
    probe: GpuProbe | None = None,
    cpus: tuple[int, ...] | None = None,
    memory: int | None = None,
    mask: str | None = None,
) -> Inventory:
    """Look at the host. ``virtual``: so many virtual devices; None: the GPUs, else one device per CPU.

    Raises:
        ValueError: a number of devices below 1, or a GPU mask that does not fit the host.
    """
    if virtual is not None and virtual < 1:
        raise ValueError(f"a node needs at least 1 device, not {virtual}")
    cpus = tuple(sorted(os.sched_getaffinity(0))) if cpus is None else cpus
    memory = _host_memory() if memory is None else memory
    gpus = visible((probe or NvmlProbe()).gpus(), mask) if virtual is None else ()
    count = len(gpus) or virtual or len(cpus)
    part = memory // count
    devices = tuple(
        LocalDevice(i, own, cores, part, gpus[i] if gpus else None)
        for i, (own, cores) in enumerate(share_cpus(cpus, count))
    )
    node = Node(name, _groups(devices), site=site, cpus=float(len(cpus)), memory=memory)
    return Inventory(node, devices)


def share_cpus(cpus: tuple[int, ...], devices: int) -> list[tuple[tuple[int, ...], float]]:
    """Divide CPUs between devices: (CPUs, cores) of each. Disjoint sets, or equal shares of single cores."""
    if devices <= len(cpus):
        cuts = [i * len(cpus) // devices for i in range(devices + 1)]
        return [(cpus[a:b], float(b - a)) for a, b in itertools.pairwise(cuts)]
    on_one_core = -(-devices // len(cpus))
    return [((cpus[i % len(cpus)],), 1.0 / on_one_core) for i in range(devices)]


def _groups(devices: tuple[LocalDevice, ...]) -> tuple[DeviceGroup, ...]:
    """Equal neighbours form one group, so that device numbers stay those of the list."""
    groups: list[DeviceGroup] = []
    for d in devices:
        kind, memory = (d.gpu.type, d.gpu.memory) if d.gpu else ("cpu", 0)
        if groups and (groups[-1].type, groups[-1].memory) == (kind, memory):
            groups[-1] = DeviceGroup(kind, groups[-1].count + 1, memory)
        else:
            groups.append(DeviceGroup(kind, 1, memory))
    return tuple(groups)


def _host_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
