"""Limits that bind an attempt whatever its processes do: by cgroups where they can be written.

A *cage* holds all processes of one attempt on this node. With cgroups (version 1 or 2) it limits CPUs and
memory, can freeze, and lists its members: a child cannot leave by clearing its environment, by setsid or by
forking twice. Without them workers are bound by CPU affinity, and the agent watches the memory of the process
tree.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# Quotas are given out anew so often: short, so that a worker on half a core is never still for longer than a
# step of a small model takes; the kernel allows down to 1 ms, at more overhead.
PERIOD_US = 10_000
CONTROLLERS = ("freezer", "cpuset", "cpu", "memory")


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """``cpus``: CPU numbers it may run on; ``quota``: cores it may use of them, None for all."""

    cpus: tuple[int, ...]
    quota: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one attempt on this node: bytes of ``memory`` (0: none), ``cores`` in all (None: no quota)."""

    workers: tuple[WorkerLimits, ...]
    memory: int = 0
    cores: float | None = None

    @property
    def cpus(self) -> tuple[int, ...]:
        """All CPUs of the attempt."""
        return tuple(sorted({c for w in self.workers for c in w.cpus}))


class Cage(Protocol):
    """What holds one attempt. ``freezes`` and ``binds_memory`` say what the host lets it do."""

    freezes: bool
    binds_memory: bool

    def joins(self, worker: int | None) -> tuple[str, ...]:
        """Files into which a new process writes ``0`` to be held; ``worker`` None: no rank (setup, shell)."""
        ...

    def members(self) -> set[int] | None:
        """Process ids inside; None where the host cannot tell."""
        ...

    def freeze(self) -> None:
        """Begin to stop every process inside; ``frozen`` tells when it is done."""
        ...

    def frozen(self) -> bool:
        """Whether every process inside stands still."""
        ...

    def thaw(self) -> None:
        """Let them run again."""
        ...

    def oom_kills(self) -> int:
        """Processes that the kernel has killed for memory."""
        ...

    def remove(self) -> bool:
        """Give the cage back; False while something is still inside."""
        ...


class Cages(Protocol):
    """Makes cages. ``notes`` tell the operator, once, what the host does not let it enforce."""

    notes: tuple[str, ...]

    def open(self, name: str, limits: Limits | None) -> Cage:
        """A cage for one attempt; ``limits`` None holds processes together and limits nothing."""
        ...

    def roots(self) -> tuple[str, ...]:
        """Folders to be swept by the next agent, should this one die."""
        ...

    def close(self) -> None:
        """Remove what is left when the agent ends."""
        ...


class OpenCage:
    """No cgroups: affinity is set at the spawn, and the agent watches memory. It holds nothing by itself."""

    freezes = False
    binds_memory = False

    def joins(self, worker: int | None) -> tuple[str, ...]:
        """Nothing to join."""
        return ()

    def members(self) -> set[int] | None:
        """Not known here."""
        return None

    def freeze(self) -> None:
        """Not possible here."""

    def frozen(self) -> bool:
        """Never."""
        return False

    def thaw(self) -> None:
        """Nothing to do."""

    def oom_kills(self) -> int:
        """Not known here."""
        return 0

    def remove(self) -> bool:
        """Nothing to do."""
        return True


class OpenCages:
    """Where cgroups cannot be written."""

    def __init__(self, why: str) -> None:
        self.notes: tuple[str, ...] = (
            f"cgroups are not usable ({why}): workers are bound by CPU affinity only, without quotas, "
            "and memory is checked twice a second",
        )

    def open(self, name: str, limits: Limits | None) -> Cage:
        """A cage that holds nothing."""
        return OpenCage()

    def roots(self) -> tuple[str, ...]:
        """None."""
        return ()

    def close(self) -> None:
        """Nothing to do."""


class CgroupCage:
    """One attempt in cgroups: a folder a controller (version 1) or one for all; a leaf for each worker."""

    def __init__(self, folders: dict[str, Path], version: int, limits: Limits | None) -> None:
        self._at, self._version = folders, version
        self.freezes = version == 2 or "freezer" in folders
        self.binds_memory = "memory" in folders and limits is not None and limits.memory > 0
        self._leaves = ["other", *(f"worker-{i}" for i in range(len(limits.workers) if limits else 0))]
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True)
        self._limit(limits)

    @property
    def _folders(self) -> list[Path]:
        return list(dict.fromkeys(self._at.values()))

    def _leafed(self, controller: str) -> bool:
        """Whether workers have folders of their own: only their CPUs differ, but version 2 is one tree."""
        return self._version == 2 or controller in ("cpu", "cpuset")

    def _limit(self, limits: Limits | None) -> None:
        if self._version == 2:
            enable(self._folders[0], [c for c in self._at if c != "freezer"])
        elif "cpuset" in self._at:
            inherit_cpuset(self._at["cpuset"])
        if limits is None:
            self._make_leaves()
            return
        if "cpuset" in self._at:
            write(self._at["cpuset"] / "cpuset.cpus", ",".join(map(str, limits.cpus)))
        self._quota("", limits.cores)
        weigh(self._at, self._version, len(limits.workers))
        if limits.memory and "memory" in self._at:
            name = "memory.max" if self._version == 2 else "memory.limit_in_bytes"
            write(self._at["memory"] / name, str(limits.memory))
            with contextlib.suppress(OSError):  # kernels without swap accounting have no such file
                swap = "memory.swap.max" if self._version == 2 else "memory.memsw.limit_in_bytes"
                write(self._at["memory"] / swap, "0" if self._version == 2 else str(limits.memory))
        self._make_leaves()
        for i, worker in enumerate(limits.workers):
            if "cpuset" in self._at:
                write(self._at["cpuset"] / f"worker-{i}" / "cpuset.cpus", ",".join(map(str, worker.cpus)))
            self._quota(f"worker-{i}", worker.quota)

    def _make_leaves(self) -> None:
        for controller, folder in self._at.items():
            if self._leafed(controller):
                for leaf in self._leaves:
                    (folder / leaf).mkdir(exist_ok=True)
                    if controller == "cpuset" and self._version == 1:
                        inherit_cpuset(folder / leaf)

    def _quota(self, leaf: str, cores: float | None) -> None:
        if cores is None or "cpu" not in self._at:
            return
        folder, quota = self._at["cpu"] / leaf, max(1000, round(cores * PERIOD_US))
        if self._version == 2:
            write(folder / "cpu.max", f"{quota} {PERIOD_US}")
        else:
            write(folder / "cpu.cfs_period_us", str(PERIOD_US))
            write(folder / "cpu.cfs_quota_us", str(quota))

    def joins(self, worker: int | None) -> tuple[str, ...]:
        """One ``cgroup.procs`` for each hierarchy."""
        leaf = "other" if worker is None else f"worker-{worker}"
        files = (f / leaf if self._leafed(c) else f for c, f in self._at.items())
        return tuple(dict.fromkeys(str(f / "cgroup.procs") for f in files))

    def members(self) -> set[int]:
        """Process ids in any of its hierarchies."""
        return {pid for folder in self._folders for pid in processes_in(folder)}

    def freeze(self) -> None:
        """Begin to stop every process inside."""
        self._freezer("1", "FROZEN")

    def thaw(self) -> None:
        """Let them run again."""
        self._freezer("0", "THAWED")

    def _freezer(self, two: str, one: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # the cage is gone, and nothing is inside
            if self._version == 2:
                write(self._folders[0] / "cgroup.freeze", two)
            elif "freezer" in self._at:
                write(self._at["freezer"] / "freezer.state", one)

    def frozen(self) -> bool:
        """Whether every process inside stands still."""
        with contextlib.suppress(FileNotFoundError):
            if self._version == 2:
                return "frozen 1" in (self._folders[0] / "cgroup.events").read_text()
            if "freezer" in self._at:
                return (self._at["freezer"] / "freezer.state").read_text() == "FROZEN\n"
        return False

    def oom_kills(self) -> int:
        """Processes that the kernel has killed for memory."""
        if "memory" not in self._at:
            return 0
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        with contextlib.suppress(OSError):
            found = re.search(r"^oom_kill (\d+)$", (self._at["memory"] / name).read_text(), re.M)
            return int(found[1]) if found else 0
        return 0

    def remove(self) -> bool:
        """Remove all its folders; False while something is still inside."""
        gone = [remove_tree(folder) for folder in self._folders]
        return all(gone)


class Cgroups:
    """Cages in cgroups, all under one folder ``haibun-AGENT`` of each hierarchy, below the agent's own."""

    def __init__(self, bases: dict[str, Path], version: int) -> None:
        self._bases, self._version = bases, version
        weigh(bases, version, len(os.sched_getaffinity(0)))
        missing = [c for c in CONTROLLERS if c not in bases and not (version == 2 and c == "freezer")]
        self.notes: tuple[str, ...] = (
            (f"cgroups: no {', '.join(missing)} here, so that is not enforced",) if missing else ()
        )

    def open(self, name: str, limits: Limits | None) -> Cage:
        """A cage for one attempt."""
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        return CgroupCage({c: base / safe for c, base in self._bases.items()}, self._version, limits)

    def roots(self) -> tuple[str, ...]:
        """The ``haibun-AGENT`` folders."""
        return tuple(dict.fromkeys(map(str, self._bases.values())))

    def close(self) -> None:
        """Remove them."""
        for root in self.roots():
            remove_tree(Path(root))


def write(path: Path, text: str) -> None:
    """Set one control file."""
    with open(path, "w") as f:
        f.write(text)


def weigh(folders: dict[str, Path], version: int, processes: int) -> None:
    """Let a group count as so many processes against what else wants its CPUs, where it would count as one."""
    if "cpu" in folders:
        name, value = (
            ("cpu.weight", min(10_000, 100 * processes)) if version == 2 else ("cpu.shares", 1024 * processes)
        )
        write(folders["cpu"] / name, str(value))


def processes_in(folder: Path) -> set[int]:
    """Ids of the processes in a cgroup and all below it; empty if it does not exist."""
    found: set[int] = set()
    for at, _, files in os.walk(folder):
        if "cgroup.procs" in files:
            with contextlib.suppress(OSError):
                found.update(map(int, (Path(at) / "cgroup.procs").read_text().split()))
    return found


def remove_tree(folder: Path) -> bool:
    """Remove a cgroup and those below it; False if something is still in one of them."""
    for at, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(at)
    return not folder.exists()


def inherit_cpuset(folder: Path) -> None:
    """Version 1: a new cpuset is empty, and takes no process, until it is filled from its parent."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        write(folder / name, (folder.parent / name).read_text().strip())


def enable(folder: Path, controllers: list[str]) -> None:
    """Version 2: hand controllers down to the groups below ``folder``."""
    if controllers:
        write(folder / "cgroup.subtree_control", " ".join(f"+{c}" for c in controllers))


def detect(agent: str, proc: Path = Path("/proc")) -> Cages:
    """The strongest cages that this host allows; ``agent`` is a name that no other agent here has."""
    try:
        mounts = list(_mounts((proc / "self/mountinfo").read_text()))
        own = _own((proc / "self/cgroup").read_text())
    except OSError as e:
        return OpenCages(str(e))
    why = "none is mounted"
    for version, bases in ((1, _version_1(mounts, own)), (2, _version_2(mounts, own))):
        try:
            if made := _prepare(bases, version, f"haibun-{agent}"):
                return Cgroups(made, version)
        except OSError as e:
            why = f"{e.strerror}: {e.filename}" if e.filename else str(e)
    return OpenCages(why)


def _prepare(bases: dict[str, Path], version: int, name: str) -> dict[str, Path]:
    made = {c: base / name for c, base in bases.items()}
    for controller, folder in made.items():
        folder.mkdir(exist_ok=True)
        if version == 1 and controller == "cpuset":
            inherit_cpuset(folder)
    if version == 2 and made:
        names = [c for c in made if c != "freezer"]
        _leave(next(iter(bases.values())), names)
        enable(next(iter(made.values())), names)
    return made


def _leave(base: Path, controllers: list[str]) -> None:
    """Version 2 hands nothing down from a group with processes in it: if they are ours, move to a leaf."""
    try:
        enable(base, controllers)
    except OSError:
        leaf = base / "haibun-agents"
        leaf.mkdir(exist_ok=True)
        write(leaf / "cgroup.procs", "0")
        enable(base, controllers)


def _version_1(mounts: list[tuple[str, Path, set[str]]], own: dict[str, str]) -> dict[str, Path]:
    bases = {}
    for controller in CONTROLLERS:
        for kind, point, options in mounts:
            if kind == "cgroup" and controller in options:
                inside = point / own.get(controller, "/").lstrip("/")
                bases[controller] = inside if inside.is_dir() else point
    return bases


def _version_2(mounts: list[tuple[str, Path, set[str]]], own: dict[str, str]) -> dict[str, Path]:
    for kind, point, _ in mounts:
        if kind == "cgroup2":
            inside = point / own.get("", "/").lstrip("/")
            base = inside if inside.is_dir() else point
            offered = (base / "cgroup.controllers").read_text().split()
            return {"freezer": base, **{c: base for c in ("cpuset", "cpu", "memory") if c in offered}}
    return {}


def _mounts(mountinfo: str) -> Iterator[tuple[str, Path, set[str]]]:
    """(file system, mount point, options) of each cgroup mount."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            yield kind, Path(before.split()[4]), set(options.split(","))


def _own(cgroup: str) -> dict[str, str]:
    """Controller to path, from /proc/self/cgroup; the controller of version 2 is ''."""
    paths = {}
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths
