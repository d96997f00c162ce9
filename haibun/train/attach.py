"""``attach``: the one call that makes a training script Haibun's."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from haibun.train import env, pace
from haibun.train.agreement import LOOSE_SECONDS, MIRROR_SECONDS, Agreement
from haibun.train.board import Board, Phase, Slot
from haibun.train.loop import AttachedRun, Run
from haibun.train.notes import say

if TYPE_CHECKING:
    import torch

    from haibun.train.state import Stateful, Training


def attach(
    *,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    sampler: Stateful | None = None,
    scheduler: Stateful | None = None,
    extra: Mapping[str, Stateful] | None = None,
    local: Mapping[str, Stateful] | None = None,
    total_steps: int | None = None,
    checkpoint_steps: int | None = None,
) -> Run:
    """Join the training to Haibun, and continue from the newest durable checkpoint if there is one.

    Call it once, after everything it is given has been built and moved to its device, and with several
    workers after ``init_process_group``. Outside Haibun nothing happens, and the run starts at step 0.

    Args:
        model: the model as it is trained: plain, compiled, in DistributedDataParallel or ``fully_shard``.
        optimizer: its optimizer.
        sampler: ``haibun.train.Sampler``, or any stateful; if it has ``advance()``, that is called as each
            step ends.
        scheduler: a learning-rate scheduler.
        extra: more to save, by name, that is alike on all ranks (gradient scaler, averaged weights).
        local: more to save, by name, that differs between ranks (the position of a sharded data loader).
        total_steps: steps of the whole run. Progress, remaining time and the end of the loop follow from it.
        checkpoint_steps: also save whenever this many steps are done.

    Returns:
        The run, whose ``steps()`` or ``batches()`` the script loops over.

    Raises:
        TypeError: something that cannot be saved was given.
        ValueError: a number of steps is negative.
        RuntimeError: the checkpoint does not fit, the environment is incomplete, or there is no process
            group.
        StaleAttemptError: a later attempt of this job has taken over.
    """
    if total_steps is not None and total_steps < 0:
        raise ValueError(f"total_steps must not be negative, but is {total_steps}")
    if checkpoint_steps is not None and checkpoint_steps < 1:
        raise ValueError(f"checkpoint_steps must be at least 1, but is {checkpoint_steps}")
    place = env.read(os.environ)
    if place is None:
        return Run(sampler, total_steps)
    board = Board.open(place.board)
    slot = _take_slot(board, place)
    if slot is None:
        return Run(sampler, total_steps)
    _announce(slot, total_steps)

    from haibun.train.checkpoint import Checkpoints
    from haibun.train.group import Group
    from haibun.train.saver import Saver
    from haibun.train.state import Training

    training = Training(
        model,
        optimizer,
        scheduler,
        sampler,
        extra=extra or {},
        local=local or {},
        world_size=place.world_size,
    )
    group = Group(place.rank, place.world_size)
    saver = Saver(training, Checkpoints(place.checkpoints, place.epoch, group))
    slot.restored = slot.step = slot.durable = saver.restore()
    return AttachedRun(
        sampler,
        total_steps,
        header=board.header,
        slot=slot,
        agreement=_agreement(board, place, training, total_steps),
        saver=saver,
        pace=_pace(training, place),
        save_every=place.checkpoint_every,
        save_steps=checkpoint_steps,
    )


def _take_slot(board: Board, place: env.Environment) -> Slot | None:
    """This worker's slot, or a private one under a nested launcher; None if another process works in it."""
    if board.header.epoch != place.epoch:
        raise RuntimeError(
            f"{place.board} belongs to attempt {board.header.epoch}, and this worker to attempt {place.epoch}"
        )
    if place.nested:
        return Slot(*_memory(), 0)
    if not 0 <= place.slot < len(board.slots):
        raise RuntimeError(f"HAIBUN_SLOT is {place.slot}, but {place.board} has {len(board.slots)} slots")
    slot = board.slots[place.slot]
    if not slot.attached or not _alive(slot.pid):
        return slot
    if slot.pid == os.getpid():
        raise RuntimeError("haibun.train.attach() was called twice: a job has one training loop")
    say(f"warning: process {slot.pid} of this job is attached already; this one runs as if outside Haibun")
    return None


def _memory() -> tuple[memoryview[int], memoryview[float]]:
    from haibun.train.board import SLOT_BYTES

    raw = memoryview(bytearray(SLOT_BYTES))
    return raw.cast("q"), raw.cast("d")


def _announce(slot: Slot, total_steps: int | None) -> None:
    slot.pid = os.getpid()
    slot.total = -1 if total_steps is None else total_steps
    slot.phase = Phase.STARTING
    slot.beat = time.monotonic()
    slot.attached = 1


def _agreement(
    board: Board, place: env.Environment, training: Training, total_steps: int | None
) -> Agreement:
    if place.world_size == 1:
        return Agreement(board.header, leader=True, margin=0, total=total_steps)
    loose = training.layout == "own"
    return Agreement(
        board.header,
        leader=place.leader,
        margin=1 + (pace.RUN_AHEAD if training.gpus or loose else 0),
        slack=MIRROR_SECONDS if not place.one_node else LOOSE_SECONDS if loose else 0.0,
        total=total_steps,
        furthest=(lambda: max(slot.step for slot in board.slots)) if loose else None,
    )


def _pace(training: Training, place: env.Environment) -> pace.Pace | None:
    return pace.Pace(training.gpus[0]) if place.world_size > 1 and training.gpus else None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
