"""A training script that makes a number of steps whenever it is told to, and tells how long they took.

``_paced.py GO DONE [--plain]``: named pipes. A line with a number on GO asks for so many steps; their seconds go to
DONE. ``--plain`` leaves ``haibun.train`` out.
"""

import os
import sys
import time
from collections.abc import Iterator

import torch
from torch import nn

go, done = open(sys.argv[1]), open(sys.argv[2], "w")  # noqa: SIM115 - open as long as the process is
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
x, y = torch.randn(64, 512), torch.randint(10, (64,))


def steps() -> Iterator[int]:
    """Step numbers without end: Haibun's, or plain ones."""
    if "--plain" not in sys.argv:
        import haibun.train

        yield from haibun.train.attach(model=model, optimizer=optimizer).steps()
    step = 0
    while True:
        yield step
        step += 1


def tell(text: str) -> None:
    """One line to the benchmark."""
    done.write(text + "\n")
    done.flush()


tell(" ".join(map(str, sorted(os.sched_getaffinity(0)))))
left, started = 0, 0.0
for _ in steps():
    if left == 0:
        if started:
            tell(str(time.perf_counter() - started))
        word = go.readline()
        if not word.strip():
            break
        left, started = int(word), time.perf_counter()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    left -= 1
