"""A sampler that knows how far training is, rather than how far the data loader has read ahead."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sized
from typing import Any

import numpy as np


class Sampler:
    """Shuffled sample numbers for ``DataLoader(..., sampler=...)``, to be continued after a restart.

    The order depends on ``seed`` and the epoch alone. In each step the ranks take turns (rank ``r`` takes
    samples ``r``, ``r + world_size``, ... of what is left), so that after a restart on another number of
    workers still no sample is seen twice in an epoch. Samples that do not fill a whole step are left out at
    the end of an epoch; another order leaves out others.

    The position moves when a step ends (``haibun.train`` calls ``advance``), not when a sample number is
    drawn: what the workers of a DataLoader have fetched ahead is fetched again after a restart.

    Args:
        data: the data set, or its length.
        per_step: samples that one optimizer step takes on each rank: batch size × accumulated micro-batches.
        seed: of the shuffle.
        shuffle: False: in the order of the data set.
        rank, world_size: taken from torch.distributed, else from the environment, unless given.

    Raises:
        ValueError: the data set does not fill a single step, or an argument makes no sense.
    """

    def __init__(
        self,
        data: Sized | int,
        per_step: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        here = _place()
        self.length = data if isinstance(data, int) else len(data)
        self.rank = here[0] if rank is None else rank
        self.world_size = here[1] if world_size is None else world_size
        self.per_step, self.seed, self.shuffle = per_step, seed, shuffle
        self.epoch = 0
        self.consumed = 0  # samples of this epoch that finished steps have used, all ranks together
        self._ended = -1  # the last epoch that was drawn to its end, perhaps ahead of the steps
        if per_step < 1:
            raise ValueError(f"per_step must be at least 1, not {per_step}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, but is {seed}")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is not among {self.world_size} workers")
        if self.length < self._stride:
            raise ValueError(
                f"a step takes {per_step} samples on each of {self.world_size} workers; "
                f"the data set has {self.length}"
            )

    @property
    def _stride(self) -> int:
        return self.per_step * self.world_size

    def __len__(self) -> int:
        """Samples for this rank from the present position to the end of the epoch."""
        return (self.length - self.consumed) // self._stride * self.per_step

    def __iter__(self) -> Iterator[int]:
        """This rank's sample numbers up to the end of the epoch; then, called again, those of the next."""
        epoch, start = max((self.epoch, self.consumed), (self._ended + 1, 0))
        if self.length - start < self._stride:
            epoch, start = epoch + 1, 0
        steps = (self.length - start) // self._stride
        order = self._order(epoch)[start : start + steps * self._stride]
        yield from order[self.rank :: self.world_size].tolist()
        self._ended = epoch

    def advance(self) -> None:
        """A step has ended."""
        self.consumed += self._stride
        if self.length - self.consumed < self._stride:
            self.epoch, self.consumed = self.epoch + 1, 0

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of ``epoch``, unless the position is in it already."""
        if epoch != self.epoch:
            self.epoch, self.consumed = epoch, 0
            self._ended = epoch - 1

    def state_dict(self) -> dict[str, Any]:
        """Position and identity, the same on all ranks."""
        return {
            "epoch": self.epoch,
            "consumed": self.consumed,
            "length": self.length,
            "seed": self.seed,
            "shuffle": self.shuffle,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position.

        Raises:
            ValueError: it was saved for other data, or another order of them.
        """
        for name in ("length", "seed", "shuffle"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"the checkpoint's sampler had {name} {state[name]}, this one has {getattr(self, name)}: "
                    "its position has no meaning here"
                )
        self.epoch, self.consumed = state["epoch"], state["consumed"]
        self._ended = self.epoch - 1

    def _order(self, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        if not self.shuffle:
            return np.arange(self.length)
        return np.random.Generator(np.random.Philox(key=[self.seed, epoch])).permutation(self.length)


def _place() -> tuple[int, int]:
    """Rank and world size of this process."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
