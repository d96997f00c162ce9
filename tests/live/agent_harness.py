"""A controller of a few lines, and a real agent under it, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from haibun.core.events import AnyEvent, AttemptFailed, AttemptStopped, AttemptSucceeded
from haibun.core.vocabulary import StopMode
from haibun.run.protocol import (
    Ack,
    AttemptStatus,
    Beat,
    Hello,
    Launch,
    Message,
    Refused,
    Report,
    Start,
    Stop,
    Welcome,
    from_agent,
    pack,
)

T = TypeVar("T")


async def until(look: Callable[[], T | None], what: str, within: float = 20.0) -> T:
    """Poll until ``look`` returns something true."""
    deadline = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        await asyncio.sleep(0.01)
    return found


class Controller:
    """Welcomes agents, keeps what they say, sends what a test wants."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, Report]] = []
        self.hellos: list[Hello] = []
        self.beats: list[Beat] = []
        self.headers: list[Any] = []
        self.acknowledge = True
        self.refuse: str | None = None
        self.keep: tuple[tuple[str, int], ...] | None = None
        self.socket: ServerConnection | None = None
        self._server: Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await serve(self._talk, "127.0.0.1", self.port, compression=None)
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        """Vanish, as a controller that is killed does; ``start`` comes back on the same port."""
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        self.socket = None

    async def _talk(self, socket: ServerConnection) -> None:
        self.headers.append(socket.request.headers if socket.request else {})
        hello = from_agent(msgspec.convert(await socket.recv(), bytes))
        assert isinstance(hello, Hello)
        self.hellos.append(hello)
        if self.refuse is not None:
            await socket.send(pack(Refused(self.refuse)))
            return
        have = tuple((a.job, a.epoch) for a in hello.attempts)
        await socket.send(pack(Welcome(have if self.keep is None else self.keep, beat_every=0.2)))
        self.socket = socket
        with contextlib.suppress(ConnectionClosed):
            await self._listen(socket)

    async def _listen(self, socket: ServerConnection) -> None:
        async for frame in socket:
            message = from_agent(msgspec.convert(frame, bytes))
            if isinstance(message, Report):
                self.reports.append((time.monotonic(), message))
                if self.acknowledge:
                    await socket.send(pack(Ack(message.seq)))
            elif isinstance(message, Beat):
                self.beats.append(message)

    async def send(self, message: Message) -> None:
        socket = await until(lambda: self.socket, "an agent is connected")
        await socket.send(pack(message))

    def events(self, job: str) -> list[AnyEvent]:
        return [r.event for _, r in self.reports if getattr(r.event, "job", None) == job]

    async def event(self, job: str, kind: type[T], within: float = 20.0) -> T:
        """The first event of a kind about a job."""

        def look() -> T | None:
            return next((e for e in self.events(job) if isinstance(e, kind)), None)

        try:
            return await until(look, f"{kind.__name__} of {job}", within)
        except AssertionError as e:
            raise AssertionError(f"{e}; so far: {self.events(job)}") from None

    async def end(self, job: str, within: float = 20.0) -> AttemptStopped | AttemptSucceeded | AttemptFailed:
        """How a job ended."""
        kinds = AttemptStopped | AttemptSucceeded | AttemptFailed
        return await until(
            lambda: next((e for e in self.events(job) if isinstance(e, kinds)), None), f"{job} ends", within
        )

    async def next_beat(self) -> None:
        """Wait for the agent's next beat."""
        beats = len(self.beats)
        await until(lambda: len(self.beats) > beats, "a beat")

    def status(self, job: str) -> AttemptStatus | None:
        """The latest status of a job."""
        return next((a for b in self.beats[-1:] for a in b.attempts if a.job == job), None)


class Bench:
    """A controller, one agent process, and a folder for jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.controller = folder, Controller()
        self.state = folder / "state"
        self.agent: asyncio.subprocess.Process | None = None
        self.said = folder / "agent.txt"
        self.token = folder / "token"
        self.token.write_text("secret\n")

    async def start_agent(self, *extra: str, devices: int = 4) -> None:
        argv = ["-m", "haibun.run.agent", "--controller", f"ws://127.0.0.1:{self.controller.port}"]
        argv += ["--token-file", str(self.token), "--node", "here", "--state", str(self.state)]
        with open(self.said, "a") as said:
            self.agent = await asyncio.create_subprocess_exec(
                sys.executable, *argv, "--virtual-devices", str(devices), *extra, stderr=said
            )

    async def end_agent(self) -> None:
        if self.agent is not None and self.agent.returncode is None:
            self.agent.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(15):
                    await self.agent.wait()
            except TimeoutError:
                self.agent.kill()
                await self.agent.wait()
                raise

    def launch(self, job: str, epoch: int = 1, **more: Any) -> Launch:
        more = {"devices": (0,), "cwd": str(self.folder), **more}
        more.setdefault("processes", len(more["devices"]))
        more.setdefault("world_size", more["processes"])
        more.setdefault("checkpoints", str(self.folder / job / "checkpoints"))
        more.setdefault("logs", str(self.folder / job / "logs"))
        return Launch(job=job, epoch=epoch, name=job, **more)

    async def start(self, job: str, epoch: int = 1, **more: Any) -> Launch:
        launch = self.launch(job, epoch, **more)
        await self.controller.send(Start(launch))
        return launch

    async def stop(
        self, job: str, epoch: int = 1, grace: float = 5.0, mode: StopMode = StopMode.CHECKPOINT
    ) -> None:
        await self.controller.send(Stop(job, epoch, mode, grace))

    def script(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def log(self, job: str, rank: int = 0, epoch: int = 1) -> str:
        path = self.folder / job / "logs" / f"epoch-{epoch}" / f"rank-{rank}.log"
        return path.read_text() if path.exists() else ""


@asynccontextmanager
async def bench(folder: Path, *extra: str, devices: int = 4) -> AsyncIterator[Bench]:
    """A controller and an agent, connected; both are gone afterwards."""
    b = Bench(folder)
    await b.controller.start()
    try:
        await b.start_agent(*extra, devices=devices)
        await until(lambda: b.controller.socket, "the agent connects", 30.0)
        yield b
    finally:
        await b.end_agent()
        await b.controller.stop()


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def marked_left(state: Path) -> list[int]:
    """Processes with a mark of the agent of a state folder, whatever became of it."""
    from haibun.run.processes import MARK, ZYGOTE_MARK, marked
    from haibun.run.tenure import former

    agent = str(former(state).get("agent"))
    return sorted(marked(agent, MARK) | marked(agent, ZYGOTE_MARK))


def cgroups_left(state: Path) -> list[str]:
    """Cgroups of attempts that are still there."""
    from haibun.run.tenure import former

    roots = former(state).get("cgroups", ())
    assert isinstance(roots, list)
    return [str(p) for r in roots for p in Path(r).glob("*") if os.path.isdir(p)]
