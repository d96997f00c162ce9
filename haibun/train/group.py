"""What the ranks of a gang tell each other round a checkpoint: small objects, on the CPU."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

PATIENCE = timedelta(
    minutes=30
)  # a slow rank may be writing hundreds of gigabytes; who is hung is the agent's to find


class Group:
    """All ranks of the job. With one worker there is no process group, and nothing is sent."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.process_group: Any = None
        if world_size > 1:
            self.process_group = _own_group(world_size)

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in the order of ranks, on each rank."""
        if self.process_group is None:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.process_group)
        return values

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on each rank."""
        if self.process_group is None:
            return value
        import torch.distributed as dist

        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.process_group)
        return values[0]


def _own_group(world_size: int) -> Any:
    """A Gloo group of our own: objects stay off the GPU, and no collective of the script's can cross ours."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            f"this job has {world_size} workers: call torch.distributed.init_process_group() "
            "before haibun.train.attach()"
        )
    if dist.get_world_size() != world_size:
        raise RuntimeError(
            f"the process group has {dist.get_world_size()} ranks, but WORLD_SIZE says {world_size}; "
            "haibun.train needs all of a job's workers in the default group"
        )
    return dist.new_group(backend="gloo", timeout=PATIENCE)
