"""Trains a small GPT on bytes: the sources of Python's standard library, which every machine here has.

    python gpt_bytes.py --steps 500
    haibun run -- python gpt_bytes.py --steps 500

Three lines make it Haibun's: they are marked.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import haibun.train  # 1

CORPUS_BYTES = 2_000_000
VOCABULARY = 256


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Consecutive windows of ``length`` bytes, each with the same window one byte later as its target."""

    def __init__(self, corpus: Tensor, length: int) -> None:
        self.corpus, self.length = corpus, length

    def __len__(self) -> int:
        return (len(self.corpus) - 1) // self.length

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        at = i * self.length
        return self.corpus[at : at + self.length], self.corpus[at + 1 : at + self.length + 1]


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each after a norm and beside a skip."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    """Bytes (batch, length) to logits (batch, length, 256)."""

    def __init__(self, width: int, layers: int, length: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, max(1, width // 32), dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.bytes.weight
        nn.init.normal_(self.bytes.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.bytes(x) + self.places(places))))


def corpus() -> Tensor:
    """The first CORPUS_BYTES of the standard library's modules in the order of their names."""
    text = b""
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        text += path.read_bytes()
        if len(text) >= CORPUS_BYTES:
            break
    return torch.frombuffer(bytearray(text[:CORPUS_BYTES]), dtype=torch.uint8).long()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train a small GPT on the bytes of Python's standard library.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=300, help="optimizer steps in all")
    parser.add_argument("--width", type=int, default=96, help="of the residual stream; a multiple of 32")
    parser.add_argument("--layers", type=int, default=2, help="transformer blocks")
    parser.add_argument("--batch", type=int, default=8, help="windows in a step")
    parser.add_argument("--seq", type=int, default=64, help="bytes in a window")
    parser.add_argument("--seed", type=int, default=0, help="of weights, dropout and the order of windows")
    parser.add_argument("--out", type=Path, help="file for the final weights")
    args = parser.parse_args()
    if args.width % 32:
        parser.error(f"--width must be a multiple of 32, not {args.width}")

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT(args.width, args.layers, args.seq).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, args.steps))
    data = Windows(corpus(), args.seq)
    sampler = haibun.train.Sampler(data, per_step=args.batch, seed=args.seed)
    loader = DataLoader(data, args.batch, sampler=sampler)

    run = haibun.train.attach(  # 2
        model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler, total_steps=args.steps
    )
    for step, (x, y) in run.batches(loader):  # 3
        logits = model(x.to(device))
        loss = functional.cross_entropy(logits.flatten(0, 1), y.to(device).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        run.metrics(loss=loss)  # as many more as you like
        if (step + 1) % 50 == 0 or step + 1 == args.steps:
            print(f"step {step + 1}/{args.steps}: {loss.item() / 0.6931:.3f} bits a byte", flush=True)
    if args.out:
        torch.save(model.state_dict(), args.out)


if __name__ == "__main__":
    main()
