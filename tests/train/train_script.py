"""A training with everything that could come back wrong: dropout, batch norm, schedule, shuffling, prefetch.

Usage: train_script.py OUT STEPS [sharded|plain|workers]...
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import haibun.train

BATCH = 8


def build(kinds: list[str]) -> nn.Module:
    model: nn.Module = nn.Sequential(
        nn.Linear(16, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.Linear(64, 1)
    )
    if "sharded" in kinds:
        from torch.distributed.fsdp import fully_shard

        model[1] = nn.LayerNorm(64)
        return fully_shard(model)
    if dist.is_initialized() and "plain" not in kinds:
        return nn.parallel.DistributedDataParallel(model)
    return model


def fill_the_disk() -> None:
    """From now on, no file of this rank's checkpoints can be written."""
    import haibun.train.checkpoint

    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    haibun.train.checkpoint._Watched.write = write


def main() -> None:
    out, steps, kinds = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(7 + rank)
    model = build(kinds)
    data = TensorDataset(torch.randn(100, 16, generator=torch.Generator().manual_seed(1)))
    sampler = haibun.train.Sampler(data, per_step=BATCH, seed=3)
    loader = DataLoader(data, BATCH, sampler=sampler, num_workers=2 if "workers" in kinds else 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    run = haibun.train.attach(
        model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler, total_steps=steps,
        checkpoint_steps=int(os.environ.get("SAVE_STEPS", 0)) or None,
    )  # fmt: skip
    if os.environ.get("FULL_DISK_ON") == str(rank):
        fill_the_disk()
    for step, (x,) in run.batches(loader):
        noise = random.random() + float(np.random.random())
        loss = (model(x + noise) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        run.metrics(loss=loss, step=step)

    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if hasattr(value, "full_tensor"):
            value = value.full_tensor()
        digest.update(name.encode() + value.numpy().tobytes())
    out.with_suffix(f".{rank}").write_text(
        f"{digest.hexdigest()} {torch.rand(1).item()} {sampler.state_dict()}"
    )


if __name__ == "__main__":
    main()
