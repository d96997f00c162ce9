"""Between the loop and the checkpoints: gathers a rank's state, and gives it back."""

from __future__ import annotations

from typing import Any

from haibun.train import rng
from haibun.train.checkpoint import Checkpoints
from haibun.train.notes import say
from haibun.train.state import Training
from haibun.train.tree import Flat, flatten, unflatten

SHARED = "shared"


class Saver:
    """Saves and restores one rank of a training."""

    def __init__(self, training: Training, checkpoints: Checkpoints) -> None:
        self._training, self._checkpoints = training, checkpoints
        self._rank = checkpoints.group.rank
        self._rng: dict[str, Any] | None = None

    def save(self, step: int) -> bool:
        """Make the state after ``step`` durable; collective. See ``Checkpoints.save``."""
        return self._checkpoints.save(step, self._collect)

    def restore(self) -> int:
        """Put the newest durable state back, all but the RNG; collective.

        Returns:
            The step it was saved after; 0: there was none.

        Raises:
            StaleAttemptError: a later attempt has begun.
            RuntimeError: the checkpoint does not fit what the script built.
        """
        found = self._checkpoints.newest()
        buckets = self._training.buckets
        if found is None:
            if buckets is not None:
                buckets.record()
            return 0
        path = self._checkpoints.path(found.step)
        try:
            self._put_back(found.step, found.world_size)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise RuntimeError(
                f"checkpoint {path} does not fit what this script built: {str(error).rstrip('. ')}. "
                f"If the change was meant, start the job with another folder of checkpoints"
            ) from error
        if self._rank == 0:
            size = sum(n for n, _ in found.files.values())
            say(f"resumed after step {found.step} from {path} ({size / 1e6:.1f} MB)")
        return found.step

    def restore_rng(self) -> None:
        """Put the RNG back, once: when the loop begins, so that what was drawn on the way does not count."""
        if self._rng is not None:
            rng.restore(self._rng, self._training.gpus)
            self._rng = None

    def synchronize(self) -> None:
        """Wait until the GPUs are at rest."""
        for device in self._training.gpus:
            import torch

            torch.cuda.synchronize(device)

    def _collect(self) -> Flat:
        training, leader = self._training, self._rank == 0
        flat = flatten(training.own(), f"rank{self._rank}")
        if leader or training.layout == "sharded":
            flat |= flatten(training.shared(), SHARED, sharded_only=not leader)
        return flat

    def _put_back(self, step: int, world_size: int) -> None:
        training, mine = self._training, f"rank{self._rank}"
        sharded = training.layout == "sharded"
        current = flatten(training.shared(), SHARED, sharded_only=True) if sharded else {}
        flat = self._checkpoints.read(step, lambda key: key.split("/", 1)[0] in (SHARED, mine), current)
        own = unflatten(flat, mine) if f"{mine}/skeleton" in flat else None
        same = world_size == self._checkpoints.group.world_size
        training.restore(unflatten(flat, SHARED), own if same else None)
        if own is not None:
            self._rng = own["rng"]
        if not same and self._rank == 0:
            say(
                f"the checkpoint is of {world_size} workers, "
                f"this attempt has {self._checkpoints.group.world_size}"
            )
