"""A clock that is moved by hand, and hosts that do not exist."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from haibun.run.devices import Gpu


@dataclass
class FakeClock:
    """Time passes when something sleeps, and at once."""

    time: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return 1.7e9 + self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)

    async def wait(self, wake: asyncio.Event, seconds: float) -> None:
        await asyncio.sleep(0)
        if not wake.is_set():
            await self.sleep(seconds)
        wake.set()


@dataclass
class FakeGpus:
    found: tuple[Gpu, ...] = ()

    def gpus(self) -> tuple[Gpu, ...]:
        return self.found

    def utilisation(self, index: int) -> float:
        return 0.5
