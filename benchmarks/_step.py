"""A small training script: tells on its standard output when its first step has ended (Unix time).

``python -m benchmarks._step STEPS``; attached to Haibun where that is there.
"""

import sys
import time

import torch
from torch import nn

import haibun.train

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters())
run = haibun.train.attach(model=model, optimizer=optimizer, total_steps=steps)
x, y = torch.randn(64, 256), torch.randint(10, (64,))
for step in run.steps():
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 1 or step == 0:
        loss.item()
        print("first-step", time.time(), flush=True)
