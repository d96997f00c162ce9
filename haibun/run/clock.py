"""The one clock of the live side: real outside tests, driven by hand inside them."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What the agent knows of time. ``now`` is CLOCK_MONOTONIC, as on the board; ``wall`` is Unix time."""

    def now(self) -> float:
        """Seconds that never jump."""
        ...

    def wall(self) -> float:
        """Unix time in seconds, for what leaves the host."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        ...

    async def wait(self, wake: asyncio.Event, seconds: float) -> None:
        """Sleep until somebody sets ``wake``, ``seconds`` at most. It is set afterwards in any case."""
        ...


class RealClock:
    """The clock of the machine."""

    def now(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    def wall(self) -> float:
        """Unix time in seconds."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        await asyncio.sleep(max(0.0, seconds))

    async def wait(self, wake: asyncio.Event, seconds: float) -> None:
        """Sleep until somebody sets ``wake``, ``seconds`` at most. It is set afterwards in any case."""
        timer = asyncio.get_running_loop().call_later(seconds, wake.set)  # a tenth of asyncio.timeout's cost
        try:
            await wake.wait()
        finally:
            timer.cancel()
