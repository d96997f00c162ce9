"""This process's random number generators: Python's, NumPy's global one, torch's on CPU and GPUs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np


def capture(devices: Sequence[Any]) -> dict[str, Any]:
    """The state of all generators. ``devices``: the GPUs in use, as torch devices."""
    import torch

    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(d) for d in devices],
    }


def restore(state: dict[str, Any], devices: Sequence[Any]) -> None:
    """Put all generators back to where ``capture`` found them. Consumes no random number.

    GPUs are matched in order, since a job that comes back may find its model on others.
    """
    import torch

    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    for device, cuda in zip(devices, state["cuda"], strict=False):
        torch.cuda.set_rng_state(cuda, device)


@contextmanager
def aside(seed: int) -> Iterator[None]:
    """Run a block on a torch CPU generator seeded for it, and leave no trace in the real one."""
    import torch

    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
