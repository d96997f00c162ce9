"""One face for every executor: give it actions, ask for the event that must follow."""

from __future__ import annotations

import sys
from typing import Protocol, TypeVar

from agent_harness import Bench, until

from haibun.core.actions import ContinueAttempt, HoldAttempt, StartAttempt, StopAttempt
from haibun.core.events import AnyEvent
from haibun.core.vocabulary import StopMode
from haibun.run.protocol import Continue, Hold
from haibun.twin.costs import Costs
from haibun.twin.executor import TwinExecutor

E = TypeVar("E", bound=AnyEvent)

STEPS_PER_SECOND = 50

# Attached without torch: it keeps its slot of the board as haibun.train does.
WORKER = """
import os, sys, time
from pathlib import Path
from haibun.train.board import Board, Command, Phase
board = Board.open(Path(os.environ["HAIBUN_BOARD"]))
slot, h = board.slots[int(os.environ["HAIBUN_SLOT"])], board.header
durable = Path(os.environ["HAIBUN_CHECKPOINTS"]) / "steps"
steps = int(durable.read_text()) if durable.exists() else 0
slot.pid, slot.total, slot.step, slot.durable = os.getpid(), int(sys.argv[1]), steps, steps
slot.attached, slot.phase = 1, Phase.STEPPING
while slot.step < slot.total:
    time.sleep(0.02)
    slot.step += 1
    slot.beat = time.monotonic()
    if h.command_seq != slot.done_seq:
        slot.done_seq = h.command_seq
        if h.command == Command.YIELD:
            durable.write_text(str(slot.step))
            slot.durable, slot.phase = slot.step, Phase.YIELDED
            sys.exit(0)
        slot.phase = Phase.HELD if h.command == Command.HOLD else Phase.STEPPING
        while slot.phase == Phase.HELD and h.command_seq == slot.done_seq:
            time.sleep(0.005)
        slot.phase = Phase.STEPPING
slot.phase = Phase.FINISHED
"""


class Stand(Protocol):
    """An executor as the contract sees it."""

    async def start(self, job: str, epoch: int, steps: int, durable: float = 0.0) -> None: ...

    async def stop(self, job: str, epoch: int, mode: StopMode) -> None: ...

    async def hold(self, job: str, epoch: int) -> None: ...

    async def resume(self, job: str, epoch: int) -> None: ...

    async def event(self, job: str, kind: type[E]) -> E: ...

    async def nothing_more(self, job: str) -> list[AnyEvent]: ...

    async def some_steps(self, job: str) -> None: ...


class TwinStand:
    """The simulated executor; asking for an event moves its clock to it."""

    def __init__(self) -> None:
        self._executor = TwinExecutor(Costs(start=0.5, resume=0.5, checkpoint=0.2))
        self._now = 0.0
        self._seen: list[AnyEvent] = []
        self._taken: set[int] = set()

    def _perform(self, action: StartAttempt | StopAttempt | HoldAttempt | ContinueAttempt) -> None:
        self._seen += self._executor.perform([action], self._now)

    async def start(self, job: str, epoch: int, steps: int, durable: float = 0.0) -> None:
        self._executor.expect(job, steps)
        self._perform(StartAttempt(job, epoch, (0,), durable, float(STEPS_PER_SECOND), epoch > 1))

    async def stop(self, job: str, epoch: int, mode: StopMode) -> None:
        self._perform(StopAttempt(job, epoch, mode))

    async def hold(self, job: str, epoch: int) -> None:
        self._perform(HoldAttempt(job, epoch))

    async def resume(self, job: str, epoch: int) -> None:
        self._perform(ContinueAttempt(job, epoch))

    async def event(self, job: str, kind: type[E]) -> E:
        while True:
            for i, event in enumerate(self._seen):
                if i not in self._taken and isinstance(event, kind) and getattr(event, "job", None) == job:
                    self._taken.add(i)
                    return event
            due = self._executor.next_due()
            assert due < float("inf"), f"no {kind.__name__} of {job} will ever come; so far: {self._seen}"
            self._now = due
            self._seen += self._executor.take_due(due)

    async def nothing_more(self, job: str) -> list[AnyEvent]:
        self._now += 10.0
        self._seen += self._executor.take_due(self._now)
        return [
            e for i, e in enumerate(self._seen) if i not in self._taken and getattr(e, "job", None) == job
        ]

    async def some_steps(self, job: str) -> None:
        self._now += 0.3
        self._seen += self._executor.take_due(self._now)


class AgentStand:
    """A real agent with real workers; the test is its controller."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._taken: set[int] = set()
        bench.script("worker.py", WORKER)

    async def start(self, job: str, epoch: int, steps: int, durable: float = 0.0) -> None:
        argv = (sys.executable, "worker.py", str(steps))
        await self._bench.start(job, epoch, argv=argv, durable=durable)

    async def stop(self, job: str, epoch: int, mode: StopMode) -> None:
        await self._bench.stop(job, epoch, mode=mode)

    async def hold(self, job: str, epoch: int) -> None:
        await self._bench.controller.send(Hold(job, epoch))

    async def resume(self, job: str, epoch: int) -> None:
        await self._bench.controller.send(Continue(job, epoch))

    async def event(self, job: str, kind: type[E]) -> E:
        def look() -> E | None:
            for _, report in self._bench.controller.reports:
                event = report.event
                if (
                    report.seq not in self._taken
                    and isinstance(event, kind)
                    and getattr(event, "job", None) == job
                ):
                    self._taken.add(report.seq)
                    return event
            return None

        try:
            return await until(look, f"{kind.__name__} of {job}")
        except AssertionError as e:
            raise AssertionError(f"{e}; so far: {self._bench.controller.events(job)}") from None

    async def nothing_more(self, job: str) -> list[AnyEvent]:
        await self._bench.controller.next_beat()
        await self._bench.controller.next_beat()
        reports = [r for _, r in self._bench.controller.reports if r.seq not in self._taken]
        return [r.event for r in reports if getattr(r.event, "job", None) == job]

    async def some_steps(self, job: str) -> None:
        def steps() -> float:
            status = self._bench.controller.status(job)
            return status.step if status is not None else 0.0

        before = steps()
        await until(lambda: steps() > before + 4, f"{job} makes steps")
