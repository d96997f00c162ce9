"""What a training script imports: three lines make it one that Haibun can watch, hold, move and resume.

    run = haibun.train.attach(model=model, optimizer=optimizer, sampler=sampler, total_steps=1000)
    for step, batch in run.batches(loader):
        ...
        run.metrics(loss=loss)

Outside Haibun the same lines do nothing. ``docs/train.md`` is the guide.
"""

from haibun.train.attach import attach
from haibun.train.fence import StaleAttemptError
from haibun.train.loop import Preempted, Run
from haibun.train.sampler import Sampler

__all__ = ["Preempted", "Run", "Sampler", "StaleAttemptError", "attach", "preload"]


def preload() -> None:
    """Import what ``attach`` would, torch.distributed.checkpoint included: for a pool of warm workers."""
    import haibun.train.saver  # noqa: F401
