"""The controller's end of the connections to agents."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import Protocol

from haibun.core.vocabulary import JobId, NodeName
from haibun.run.protocol import AttemptStatus, Beat, Message, pack

log = logging.getLogger("haibun.agents")


class Channel(Protocol):
    """One connection to an agent; ``recv`` and ``send`` raise when it has ended."""

    async def recv(self) -> bytes: ...

    async def send(self, frame: bytes) -> None: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Line:
    """What is known of one agent, connected or not.

    Attributes:
        heard: when it last said something, on the monotonic clock.
        missed: commands that it could not be given and that no reconciliation would make good.
        missing_since: since when it has not listed attempts that it should have, on the monotonic clock.
        returning: that it takes work again is on its way into the journal.
    """

    node: NodeName
    heard: float
    boot: str = ""
    channel: Channel | None = None
    address: str | None = None
    statuses: dict[JobId, AttemptStatus] = field(default_factory=dict)
    beat: Beat | None = None
    missed: list[Message] = field(default_factory=list)
    missing_since: dict[tuple[JobId, int], float] = field(default_factory=dict)
    queue: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    returning: bool = False

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self.channel is not None

    def has(self, job: JobId, epoch: int) -> bool:
        """Whether the agent lists that attempt."""
        status = self.statuses.get(job)
        return status is not None and status.epoch == epoch

    def returned(self, _: object) -> None:
        """It takes work again, or could not be made to."""
        self.returning = False

    def send(self, message: Message) -> bool:
        """Queue a message; says whether there is a connection for it to go out on."""
        if self.channel is None:
            return False
        self.queue.put_nowait(message)
        return True

    async def write(self, channel: Channel) -> None:
        """Send what is queued over one connection, for ever."""
        queue = self.queue
        with contextlib.suppress(Exception):  # the connection has ended: its reader says so
            while True:
                await channel.send(pack(await queue.get()))


async def close_quietly(channel: Channel) -> None:
    """Close a connection that may have ended already."""
    with contextlib.suppress(Exception):
        await channel.close()
