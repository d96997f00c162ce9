"""The one clock of the live side: real outside tests, driven by hand inside them."""

from __future__ import annotations

import asyncio
import contextlib
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

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Sleep until ``event`` is set, ``seconds`` at most; returns whether it is set."""
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

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Sleep until ``event`` is set, ``seconds`` at most; returns whether it is set."""
        if not event.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, seconds)):
                    await event.wait()
        return event.is_set()
