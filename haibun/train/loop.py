"""The step loop of a training script: ``Run`` outside Haibun, ``AttachedRun`` within."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from haibun.train.agreement import Agreement, Order
from haibun.train.board import Command, Header, Phase, Slot
from haibun.train.notes import say

if TYPE_CHECKING:
    from haibun.train.pace import Pace
    from haibun.train.saver import Saver

HOLD_POLL = 0.002  # seconds between looks at the board while held; costs 0.2 % of a core
METRICS_EVERY = 0.5  # seconds, the agent's beat; to read a tensor makes the host wait for the GPU

Batch = TypeVar("Batch")


class Preempted(SystemExit):
    """The run was asked to yield, and all is saved: let it pass, and the process ends with exit code 0."""

    def __init__(self) -> None:
        super().__init__(0)


class Run:
    """A run outside Haibun: steps are counted, everything else does nothing.

    Attributes:
        step: steps done so far, in all attempts together.
        total_steps: steps to do in all; None: until the script breaks off.
        restored: the step that this attempt began from.
    """

    attached = False

    def __init__(self, sampler: Any, total_steps: int | None) -> None:
        self.step = 0
        self.restored = 0
        self.total_steps = total_steps
        self._advance = getattr(sampler, "advance", None)

    def steps(self) -> Iterator[int]:
        """The numbers of the steps still to do, from 0 or where the last attempt was.

        Between two steps: beats, checkpoints, holds.

        Raises:
            Preempted: asked to yield, and everything is saved.
            StaleAttemptError: another attempt has taken over.
        """
        self._begin()
        try:
            while self.total_steps is None or self.step < self.total_steps:
                yield self.step
                self.step += 1
                if self._advance is not None:
                    self._advance()
                self._boundary()
        except GeneratorExit:
            self._left()
            raise
        self._end()

    def batches(self, loader: Iterable[Batch]) -> Iterator[tuple[int, Batch]]:
        """Step numbers with a batch each, over as many epochs of ``loader`` as it takes.

        Starting an epoch leaves the random number generators alone, so that a restart in the middle of one
        changes nothing. Raises what ``steps`` raises, and ValueError if an epoch has no batches.
        """
        batches: Iterator[Batch] | None = None
        end = object()
        for step in self.steps():
            batch: Any = end if batches is None else next(batches, end)
            if batch is end:
                batches = self._epoch(loader, step)
                batch = next(batches, end)
                if batch is end:
                    raise ValueError("the loader has no batches")
            yield step, batch

    def metrics(self, **values: Any) -> None:
        """Show numbers (floats or tensors of one element) to who watches; two sets a second are looked at."""

    def save(self) -> None:
        """Ask for a checkpoint at the end of this step; with several workers, of one of the next.

        What rank 0 asks counts: it does not matter whether the other ranks call this too.
        """

    def busy(self) -> AbstractContextManager[None]:
        """A block, such as an evaluation, in which no steps are made, and none are missed."""
        return nullcontext()

    @property
    def notice(self) -> float | None:
        """Seconds until this job loses its devices; infinity: at no set time; None: it keeps them."""
        return None

    def _epoch(self, loader: Iterable[Batch], step: int) -> Iterator[Batch]:
        import torch

        from haibun.train import rng

        with rng.aside((torch.initial_seed() + step) % 2**63):
            return iter(loader)

    def _begin(self) -> None: ...

    def _boundary(self) -> None: ...

    def _left(self) -> None: ...

    def _end(self) -> None: ...


class AttachedRun(Run):
    """A run under a node agent. Everything that a step costs is in ``_boundary``."""

    attached = True

    def __init__(
        self,
        sampler: Any,
        total_steps: int | None,
        *,
        header: Header,
        slot: Slot,
        agreement: Agreement,
        saver: Saver,
        pace: Pace | None = None,
        save_every: float = math.inf,
        save_steps: int | None = None,
    ) -> None:
        super().__init__(sampler, total_steps)
        self._header, self._slot, self._agreement, self._saver, self._pace = (
            header,
            slot,
            agreement,
            saver,
            pace,
        )
        self._save_every, self._save_steps = save_every, save_steps
        self._latest: Mapping[str, Any] | None = None
        self._metrics_due = 0.0
        self.step = self.restored = slot.restored

    def metrics(self, **values: Any) -> None:
        now = time.monotonic()
        if now < self._metrics_due:
            self._latest = {k: v.detach() if hasattr(v, "detach") else v for k, v in values.items()}
            return
        self._metrics_due = now + METRICS_EVERY
        self._write_metrics(values)

    def save(self) -> None:
        self._agreement.save_due = 0.0

    @contextmanager
    def _away(self) -> Iterator[None]:
        before = self._slot.phase
        self._slot.phase = Phase.BUSY
        try:
            yield
        finally:
            self._slot.beat = time.monotonic()
            self._slot.phase = before

    def busy(self) -> AbstractContextManager[None]:
        return self._away()

    @property
    def notice(self) -> float | None:
        h = self._header
        if h.command_seq == self._slot.done_seq or h.command != Command.YIELD:
            return None
        return h.deadline - time.monotonic() if h.deadline else math.inf

    def _begin(self) -> None:
        self._saver.restore_rng()
        self._rearm()
        self._slot.phase = Phase.STEPPING
        self._slot.beat = time.monotonic()
        order = self._agreement.poll(self.step, self._slot.beat)
        if order is not None:
            self._obey(order)

    def _boundary(self) -> None:
        if self._pace is not None:
            self._pace.boundary()
        now = time.monotonic()
        slot, step = self._slot, self.step
        slot.step = step
        slot.beat = now
        if step == self.restored + 1:
            slot.first_step = now
        order = self._agreement.poll(step, now)
        if order is not None:
            self._obey(order)
        if self._save_steps is not None and step % self._save_steps == 0:
            self._save()

    def _obey(self, order: Order) -> None:
        while order.command is Command.HOLD:
            order = self._hold(order)
        if order.command is Command.RUN:
            self._slot.done_seq = order.seq
            return
        saved = self._save()
        if order.command is Command.YIELD:
            if (
                not saved
            ):  # what was not saved would be lost by leaving; until the deadline there may be room again
                self._agreement.reopen(time.monotonic())
                return
            self._flush_metrics()
            self._slot.phase = Phase.YIELDED
            self._slot.done_seq = order.seq
            raise Preempted
        self._slot.done_seq = order.seq

    def _hold(self, order: Order) -> Order:
        """Stand still, with the device at rest, until another order comes."""
        self._saver.synchronize()
        self._flush_metrics()
        self._slot.phase = Phase.HELD
        self._slot.done_seq = order.seq
        while (following := self._agreement.poll_held(self.step)) is None:
            time.sleep(HOLD_POLL)
        self._slot.beat = time.monotonic()
        self._slot.phase = Phase.STEPPING
        return following

    def _save(self) -> bool:
        """Whether the present step is durable: it was already, or is now."""
        slot = self._slot
        if self.step == slot.durable:
            self._rearm()
            return True
        phase, slot.phase = slot.phase, Phase.SAVING
        saved = self._saver.save(self.step)
        if saved:
            slot.durable = self.step
        slot.beat = time.monotonic()
        slot.phase = phase
        self._rearm()
        return saved

    def _rearm(self) -> None:
        self._agreement.save_due = time.monotonic() + self._save_every

    def _left(self) -> None:
        self._flush_metrics()
        self._slot.phase = Phase.BUSY

    def _end(self) -> None:
        self._save()
        self._flush_metrics()
        self._slot.phase = Phase.FINISHED

    def _flush_metrics(self) -> None:
        if self._latest is not None:
            self._write_metrics(self._latest)

    def _write_metrics(self, values: Mapping[str, Any]) -> None:
        self._latest = None
        numbers = {k: float(v.detach() if hasattr(v, "detach") else v) for k, v in values.items()}
        try:
            self._slot.write_metrics(numbers)
        except ValueError as error:
            say(f"warning: {error}; they are not shown")
