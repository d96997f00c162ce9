"""Trains a small residual network to tell synthetic images apart: stripes of ten directions, under noise.

python cnn_synthetic.py --steps 300
haibun run -- python cnn_synthetic.py --steps 300
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import haibun.train

CLASSES = 10


class Stripes(Dataset[tuple[Tensor, int]]):
    """Image ``i`` is made from ``i`` alone: the same in every process and after every restart."""

    def __init__(self, images: int, size: int) -> None:
        self.images, self.size = images, size
        self.y, self.x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")

    def __len__(self) -> int:
        return self.images

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        label = i % CLASSES
        noise = torch.Generator().manual_seed(i)
        angle = math.pi * label / CLASSES
        phase = torch.rand(3, 1, 1, generator=noise) * math.tau
        wave = torch.sin((self.x * math.cos(angle) + self.y * math.sin(angle)) * 0.8 + phase)
        return wave + torch.randn(3, self.size, self.size, generator=noise), label


class Residual(nn.Module):
    """Two 3 × 3 convolutions with batch norm, beside a skip."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.skip = nn.Conv2d(inside, outside, 1, stride, bias=False) if inside != outside else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.skip(x))


def network(width: int, blocks: int) -> nn.Module:
    """Images (batch, 3, size, size) to logits (batch, 10); each stage is half as large, twice as wide."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    inside = width
    for stage in range(3):
        outside = width << stage
        for block in range(blocks):
            layers.append(Residual(inside, outside, 2 if stage and not block else 1))
            inside = outside
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(inside, CLASSES)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train a small residual network on synthetic images.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=300, help="optimizer steps in all")
    parser.add_argument("--width", type=int, default=12, help="channels of the first stage")
    parser.add_argument("--blocks", type=int, default=1, help="residual blocks in each of three stages")
    parser.add_argument("--batch", type=int, default=32, help="images in a step")
    parser.add_argument("--size", type=int, default=24, help="of an image, in pixels")
    parser.add_argument("--images", type=int, default=10_000, help="in the data set")
    parser.add_argument("--workers", type=int, default=0, help="processes that make images ahead")
    parser.add_argument("--seed", type=int, default=0, help="of weights, dropout and the order of images")
    parser.add_argument("--out", type=Path, help="file for the final weights")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = network(args.width, args.blocks).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    data = Stripes(args.images, args.size)
    sampler = haibun.train.Sampler(data, per_step=args.batch, seed=args.seed)
    loader = DataLoader(data, args.batch, sampler=sampler, num_workers=args.workers)

    run = haibun.train.attach(model=model, optimizer=optimizer, sampler=sampler, total_steps=args.steps)
    for step, (images, labels) in run.batches(loader):
        logits = model(images.to(device))
        loss = functional.cross_entropy(logits, labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.metrics(loss=loss)
        if (step + 1) % 50 == 0 or step + 1 == args.steps:
            right = (logits.argmax(1).cpu() == labels).float().mean().item()
            print(f"step {step + 1}/{args.steps}: loss {loss.item():.3f}, {right:.0%} right", flush=True)
    if args.out:
        torch.save(model.state_dict(), args.out)


if __name__ == "__main__":
    main()
