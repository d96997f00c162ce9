"""What a worker finds in its environment: torchrun's variables, and Haibun's."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from haibun.run.devices import LocalDevice
from haibun.run.isolation import Limits, WorkerLimits
from haibun.run.processes import MARK, ZYGOTE_MARK
from haibun.run.protocol import Launch

# The agent's own, which say nothing about its jobs.
_NOT_INHERITED = frozenset((ZYGOTE_MARK, MARK, "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"))
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def free_port() -> int:
    """A TCP port that nobody uses just now: a fresh one for each attempt, never the last one's."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def split_devices(devices: tuple[LocalDevice, ...], workers: int) -> list[tuple[LocalDevice, ...]]:
    """The devices of each worker: neighbours when there are more devices than workers, shared when fewer."""
    n = len(devices)
    if n >= workers:
        return [devices[i * n // workers : (i + 1) * n // workers] for i in range(workers)]
    return [(devices[i * n // workers],) for i in range(workers)]


def limits(launch: Launch, devices: tuple[LocalDevice, ...]) -> Limits:
    """What the attempt may use on this node. With GPUs, ``cpus`` of the launch is what binds, if given."""
    memory = launch.memory or sum(d.memory for d in devices)
    shares = split_devices(devices, launch.processes)
    own_cpus = bool(launch.cpus) and any(d.gpu for d in devices)
    workers = []
    for share in shares:
        cpus = tuple(sorted({c for d in (devices if own_cpus else share) for c in d.cpus}))
        # Workers on one device share its quota; each of them may still use all of it while the others rest.
        cores = min(float(len(cpus)), sum(d.cores for d in share))
        workers.append(WorkerLimits(cpus, None if own_cpus or cores >= len(cpus) else cores))
    return Limits(tuple(workers), memory, launch.cpus if own_cpus else None)


def threads(launch: Launch, worker: WorkerLimits) -> int:
    """Threads for one worker: its cores, 1 at least."""
    cores = float(len(worker.cpus))
    if launch.cpus:
        cores = min(cores, launch.cpus / launch.processes)
    if worker.quota is not None:
        cores = min(cores, worker.quota)
    return max(1, int(cores))


def mark(agent: str, launch: Launch) -> str:
    """The value of HAIBUN_ATTEMPT."""
    return f"{agent}/{launch.job}/{launch.epoch}"


def common(launch: Launch, agent: str, devices: tuple[LocalDevice, ...], port: int) -> dict[str, str]:
    """What all processes of the attempt on this node share, the setup script too."""
    inherited = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
    env = {"PYTHONUNBUFFERED": "1", **inherited, **launch.env}
    gpus = [str(d.gpu.index) for d in devices if d.gpu]
    env |= {
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "WORLD_SIZE": str(launch.world_size),
        "LOCAL_WORLD_SIZE": str(launch.processes),
        "GROUP_RANK": str(launch.node_rank),
        "GROUP_WORLD_SIZE": str(launch.nodes),
        "MASTER_ADDR": launch.master_addr,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": f"{launch.job}-{launch.epoch}",
        MARK: mark(agent, launch),
        "HAIBUN_JOB": launch.job,
        "HAIBUN_EPOCH": str(launch.epoch),
        "HAIBUN_NAME": launch.name,
        "HAIBUN_CHECKPOINTS": launch.checkpoints,
    }
    if launch.checkpoint_every is not None:
        env["HAIBUN_CHECKPOINT_EVERY"] = str(launch.checkpoint_every)
    if gpus:
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the order in which NVML numbers them
    if launch.nodes == 1 and launch.master_addr in LOOPBACK:
        env.setdefault("GLOO_SOCKET_IFNAME", "lo")
        env.setdefault("NCCL_SOCKET_IFNAME", "lo")
    return env


def of_worker(base: dict[str, str], launch: Launch, local: int, cores: int, board: Path) -> dict[str, str]:
    """The environment of one worker, ``local`` counted on this node."""
    rank = str(launch.first_rank + local)
    own = {
        "RANK": rank,
        "LOCAL_RANK": str(local),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": base["WORLD_SIZE"],
        "HAIBUN_BOARD": str(board),
        "HAIBUN_SLOT": str(local),
    }
    return {"OMP_NUM_THREADS": str(cores), **base, **own}
