"""From a StartAttempt to what each node is told to launch."""

from __future__ import annotations

import random
from pathlib import Path

from haibun.core.actions import StartAttempt
from haibun.core.state import State
from haibun.run.protocol import Launch
from haibun.spec.job import JobSpec

# A gang on several nodes needs a port that is free on its first node, which only that node could tell. One drawn from
# the range below the kernel's own (32768 on) is; where it is taken after all, the attempt fails at once and is retried
# with another.
PORTS = (20_000, 32_000)


class Folders:
    """Where jobs keep what they leave behind: ``HOME/jobs/ID/logs`` and ``HOME/jobs/ID/checkpoints``."""

    def __init__(self, home: Path) -> None:
        self._jobs = home / "jobs"

    def logs(self, job: str) -> Path:
        """Logs of all attempts."""
        return self._jobs / job / "logs"

    def highest(self) -> int:
        """The highest id of a job that has left a folder here; 0 where there is none."""
        if not self._jobs.is_dir():
            return 0
        return max((int(f.name) for f in self._jobs.iterdir() if f.name.isdecimal()), default=0)

    def checkpoints(self, job: str) -> Path:
        """Checkpoints, the same for all attempts."""
        return self._jobs / job / "checkpoints"


def launches(
    action: StartAttempt, spec: JobSpec, state: State, folders: Folders, addresses: dict[str, str]
) -> dict[str, Launch]:
    """What each node of the gang launches, by node name, in the order of ranks.

    Args:
        addresses: where a node can be reached by the others; nodes that are not in it: the loopback address.
    """
    fleet = state.fleet
    job = state.jobs.job(state.jobs.row_of[action.job])
    parts: dict[str, list[int]] = {}
    for device in action.devices:
        name = fleet.names.names[fleet.node_of(device)]
        parts.setdefault(name, []).append(fleet.local_number(device))
    processes = {name: spec.processes_on(len(local)) for name, local in parts.items()}
    nodes = list(parts)
    port = random.randrange(*PORTS) if len(nodes) > 1 else 0
    result: dict[str, Launch] = {}
    first_rank = 0
    for node_rank, name in enumerate(nodes):
        local = parts[name]
        result[name] = Launch(
            job=action.job,
            epoch=action.epoch,
            name=job.name,
            devices=tuple(local),
            processes=processes[name],
            cwd=spec.workdir or "/",
            checkpoints=str(folders.checkpoints(action.job)),
            logs=str(folders.logs(action.job)),
            run=spec.run if isinstance(spec.run, str) else None,
            argv=None if isinstance(spec.run, str) else tuple(spec.run),
            setup=spec.setup,
            env=dict(spec.env),
            first_rank=first_rank,
            world_size=sum(processes.values()),
            node_rank=node_rank,
            nodes=len(nodes),
            master_addr=addresses.get(nodes[0], "127.0.0.1") if len(nodes) > 1 else "127.0.0.1",
            master_port=port,
            cpus=job.cpus * len(local),
            memory=job.memory * len(local),
            durable=action.durable,
            hang_after=spec.hang_after,
            checkpoint_every=spec.checkpoint_every,
        )
        first_rank += processes[name]
    return result
