"""Trains a perceptron with DistributedDataParallel on any number of workers: NCCL on GPUs, Gloo on CPUs.

torchrun --nproc-per-node 2 ddp_mlp.py --steps 500
haibun run --devices 2 -- python ddp_mlp.py --steps 500
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import haibun.train


def teacher_data(samples: int, features: int, seed: int) -> TensorDataset:
    """Random inputs, and what a fixed random network makes of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, generator=generator)
    hidden = torch.tanh(x @ torch.randn(features, 16, generator=generator) / features**0.5)
    return TensorDataset(x, hidden @ torch.randn(16, 1, generator=generator))


def train(args: argparse.Namespace, device: torch.device) -> None:
    model = nn.Sequential(
        nn.Linear(args.features, args.width),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(args.width, args.width),
        nn.GELU(),
        nn.Linear(args.width, 1),
    ).to(device)
    parallel = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-3)
    data = teacher_data(args.samples, args.features, args.seed)
    sampler = haibun.train.Sampler(data, per_step=args.batch, seed=args.seed)
    loader = DataLoader(data, args.batch, sampler=sampler)

    run = haibun.train.attach(model=parallel, optimizer=optimizer, sampler=sampler, total_steps=args.steps)
    for step, (x, y) in run.batches(loader):
        loss = functional.mse_loss(parallel(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.metrics(loss=loss)
        if sampler.rank == 0 and ((step + 1) % 50 == 0 or step + 1 == args.steps):
            print(f"step {step + 1}/{args.steps}: loss {loss.item():.4f}", flush=True)
    if args.out and sampler.rank == 0:
        torch.save(model.state_dict(), args.out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train a perceptron on any number of workers (RANK and WORLD_SIZE from the environment).",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=500, help="optimizer steps in all")
    parser.add_argument("--features", type=int, default=128, help="of a sample")
    parser.add_argument("--width", type=int, default=1024, help="of the hidden layers")
    parser.add_argument("--batch", type=int, default=128, help="samples in a step, on each worker")
    parser.add_argument("--samples", type=int, default=20_000, help="in the data set")
    parser.add_argument("--seed", type=int, default=0, help="of weights, dropout, data and their order")
    parser.add_argument("--out", type=Path, help="file for the final weights")
    args = parser.parse_args()

    gpu = torch.cuda.is_available()
    device = torch.device("cpu")
    if gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        dist.init_process_group("nccl" if gpu else "gloo")
    torch.manual_seed(args.seed + int(os.environ.get("RANK", 0)))  # each worker drops other units
    try:
        train(args, device)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
