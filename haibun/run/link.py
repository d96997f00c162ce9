"""The agent's line to the controller: opened anew for ever, with reports kept until they are acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from haibun.core.events import AnyEvent
from haibun.run.clock import Clock
from haibun.run.protocol import Ack, Beat, Hello, Message, Refused, Report, ToAgent, Welcome, pack, to_agent

# A controller that restarts is back within a second or two: first tries come quickly, later ones spare the
# network.
FIRST_RETRY = 0.1
LAST_RETRY = 5.0
ANSWER_WITHIN = 10.0  # seconds for Welcome; a controller that replays its journal accepts no connections yet


class RefusedError(Exception):
    """The controller does not want this agent."""


def backoff(tries: int, draw: Callable[[], float] = random.random) -> float:
    """Seconds before the next try, after so many failed ones: doubled each time, capped, half by chance."""
    whole: float = min(LAST_RETRY, FIRST_RETRY * 2 ** min(tries, 16))
    return whole * (0.5 + 0.5 * draw())


class Outbox:
    """Numbered reports, in order, until they are acknowledged."""

    def __init__(self) -> None:
        self.unacknowledged: dict[int, Report] = {}
        self._last = 0
        self._sent = 0

    def add(self, event: AnyEvent) -> None:
        """Keep a new report."""
        self._last += 1
        self.unacknowledged[self._last] = Report(self._last, event)

    def to_send(self) -> list[Report]:
        """Those that this connection has not carried yet; they count as sent."""
        reports = [r for seq, r in self.unacknowledged.items() if seq > self._sent]
        self._sent = self._last
        return reports

    def acknowledged(self, seq: int) -> None:
        """The controller has one safe."""
        self.unacknowledged.pop(seq, None)

    def reconnected(self) -> None:
        """All that is left is to be sent again."""
        self._sent = 0


class Link:
    """Connects, says hello, sends reports and beats, hands commands to ``obey``.

    Args:
        token_file: read at each connect; sent as a bearer token.
        hello, beat: make these messages, of the state at that time.
        obey: takes each message of the controller, Welcome included.
        say: tells the operator.
    """

    def __init__(
        self,
        url: str,
        token_file: Path | None,
        clock: Clock,
        hello: Callable[[], Hello],
        beat: Callable[[], Beat],
        obey: Callable[[ToAgent], None],
        say: Callable[[str], None],
    ) -> None:
        self._url, self._token_file, self._clock = url, token_file, clock
        self._hello, self._beat, self._obey, self._say = hello, beat, obey, say
        self._outbox = Outbox()
        self._wake = asyncio.Event()
        self._said: str | None = None
        self.connected = False
        self._socket: ClientConnection | None = None

    def report(self, event: AnyEvent) -> None:
        """Send an event, now or when there is a connection again, until it is acknowledged."""
        self._outbox.add(event)
        self._wake.set()

    @property
    def settled(self) -> bool:
        """Whether all reports are acknowledged."""
        return not self._outbox.unacknowledged

    async def close(self) -> None:
        """Say goodbye; ``run`` is to be cancelled next."""
        if self._socket is not None:
            await self._socket.close()

    async def run(self) -> None:
        """Keep connected for ever.

        Raises:
            RefusedError: the controller said that it does not want this agent.
        """
        tries = 0
        while True:
            try:
                async with connect(
                    self._url,
                    additional_headers=self._headers(),
                    compression=None,
                    max_size=None,
                    ping_interval=5.0,
                    ping_timeout=15.0,
                    proxy=None,
                ) as socket:
                    beat_every = await self._introduce(socket)
                    tries, self._said, self.connected = 0, None, True
                    self._socket = socket
                    await self._converse(socket, beat_every)
            except RefusedError:
                raise
            except (OSError, WebSocketException, msgspec.MsgspecError) as e:
                self._say_once(f"no connection to the controller at {self._url}: {e}; trying again")
            except Exception as e:  # a fault of ours: the workers must outlive it
                self._say_once(
                    f"the connection to the controller broke: {type(e).__name__}: {e}; trying again"
                )
            finally:
                self.connected = False
            await self._clock.sleep(backoff(tries))
            tries += 1

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        return {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}

    def _say_once(self, what: str) -> None:
        if what != self._said:
            self._said = what
            self._say(what)

    async def _introduce(self, socket: ClientConnection) -> float:
        """Hello and Welcome; returns the seconds between beats."""
        await socket.send(pack(self._hello()))
        async with asyncio.timeout(ANSWER_WITHIN):
            answer = to_agent(_bytes(await socket.recv()))
        if isinstance(answer, Refused):
            raise RefusedError(answer.why)
        if not isinstance(answer, Welcome):
            raise msgspec.ValidationError(f"the controller answered Hello with {type(answer).__name__}")
        self._obey(answer)
        self._outbox.reconnected()
        return answer.beat_every

    async def _converse(self, socket: ClientConnection, beat_every: float) -> None:
        """Read and write until either fails."""
        both = (
            asyncio.create_task(self._read(socket)),
            asyncio.create_task(self._write(socket, beat_every)),
        )
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _read(self, socket: ClientConnection) -> None:
        async for frame in socket:
            message = to_agent(_bytes(frame))
            if isinstance(message, Ack):
                self._outbox.acknowledged(message.seq)
            elif isinstance(message, Refused):
                raise RefusedError(message.why)
            else:
                self._obey(message)

    async def _write(self, socket: ClientConnection, beat_every: float) -> None:
        due = self._clock.now()
        while True:
            messages: list[Message] = list(self._outbox.to_send())
            now = self._clock.now()
            if now >= due:
                messages.append(self._beat())
                due = max(due + beat_every, now)
            for message in messages:
                await socket.send(pack(message))
            await self._clock.wait(self._wake, due - now)
            self._wake.clear()


def _bytes(frame: str | bytes) -> bytes:
    return frame.encode() if isinstance(frame, str) else frame
