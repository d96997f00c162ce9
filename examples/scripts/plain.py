"""An ordinary training script, as torchrun starts it: it does not know Haibun, and keeps no checkpoint.

torchrun --nproc-per-node 2 plain.py --steps 300
haibun run --devices 2 -- python plain.py --steps 300
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Fit a random network with another one, on one worker or several.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=300, help="optimizer steps")
    parser.add_argument("--width", type=int, default=1024, help="of the hidden layers")
    parser.add_argument("--batch", type=int, default=128, help="samples in a step, on each worker")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data")
    parser.add_argument("--out", help="file for the final weights")
    args = parser.parse_args()

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    gpu = torch.cuda.is_available()
    device = torch.device("cpu")
    if gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        torch.cuda.set_device(device)

    torch.manual_seed(args.seed)
    width = args.width
    model = nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8)
    )
    teacher = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 8)).to(device)
    model = model.to(device)
    parallel = model
    if world > 1:
        dist.init_process_group("nccl" if gpu else "gloo")
        parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), lr=1e-3)

    torch.manual_seed(args.seed + 1 + rank)
    for step in range(args.steps):
        x = torch.randn(args.batch, 64, device=device)
        with torch.no_grad():
            y = teacher(x)
        loss = (parallel(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and ((step + 1) % 50 == 0 or step + 1 == args.steps):
            print(f"step {step + 1}/{args.steps}: loss {loss.item():.4f}", flush=True)
    if args.out and rank == 0:
        torch.save(model.state_dict(), args.out)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
