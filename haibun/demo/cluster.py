"""A real Haibun for the demo: controller and API in a thread of this process; agent and workers as processes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from haibun.client import Client
from haibun.core.events import AnyEvent
from haibun.demo.errors import DemoError
from haibun.run import tenure
from haibun.run.devices import NvmlProbe, visible
from haibun.run.isolation import processes_in
from haibun.run.processes import MARK, ZYGOTE_MARK, descendants, is_spare, marked
from haibun.server.up import UpOptions, serve
from haibun.store import Store
from haibun.train.board import Board

UP_WITHIN = 60.0  # seconds; the agent must import nothing heavy before it says hello
WARM_WITHIN = 90.0  # torch is imported once: seconds from memory, a minute from a slow disk
DOWN_WITHIN = 40.0  # the agent gives its attempts fifteen seconds to save
LOOK = 0.1


def virtual_devices(wanted: int) -> int | None:
    """None where this host has so many GPUs, which are then used; else ``wanted``."""
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if len(visible(NvmlProbe().gpus(), mask)) == wanted else wanted


class Live:
    """A cluster of one node; a context manager. Leaving it ends every process that it started, and proves it."""

    def __init__(self, home: Path, policy: str, virtual: int | None, say: Callable[[str], None]) -> None:
        self._options = UpOptions(home, port=0, policy=policy, virtual_devices=virtual)
        self._devices = virtual or 0
        self._say = say
        self.home = home
        self._thread = threading.Thread(target=self._serve, name="controller", daemon=True)
        self._up = threading.Event()
        self._error: BaseException | None = None
        self.left: set[int] = set()  # processes that had to be killed at the end
        self.client: Client

    # ---- up and down

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._wait(self._up.is_set, UP_WITHIN, "the controller did not come up")
            self.client = Client(home=self.home)
            self._wait(lambda: any(n.connected for n in self.client.nodes()), UP_WITHIN, "no agent reported")
            self._say("importing torch once, for workers to be forked from ...")
            self._wait(self._is_warm, WARM_WITHIN, "the pool of warm workers did not come up")
        except BaseException:
            self._down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._down()

    def _serve(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as e:
            self._error = e

    async def _main(self) -> None:
        ready = asyncio.Event()
        serving = asyncio.create_task(serve(self._options, ready, lambda words: None))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
        if ready.is_set():
            self._up.set()
        waiting.cancel()
        await serving

    def _wait(self, done: Callable[[], bool], within: float, what: str) -> None:
        end = time.monotonic() + within
        while not done():
            if self._error is not None:
                raise self._error
            if not self._thread.is_alive() or time.monotonic() > end:
                raise DemoError(
                    f"{what} within {within:.0f} s; {self.agent_folder / 'agent.log'} may tell why"
                )
            time.sleep(LOOK)

    def _down(self) -> None:
        """End all of it; a second Ctrl-C must not stop this half-way."""
        before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            if self._up.is_set():
                with Client(home=self.home) as client:
                    client.shutdown()
            self._thread.join(DOWN_WITHIN)
            end = time.monotonic() + 5.0
            while (left := self.processes()) and time.monotonic() < end:
                time.sleep(LOOK)
            self.left = left
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # ---- what is inside

    @property
    def agent_folder(self) -> Path:
        """The state folder of the one agent."""
        found = sorted((self.home / "agents").glob("*"))
        return found[0] if found else self.home

    @property
    def _agent(self) -> dict[str, object]:
        return tenure.former(self.agent_folder)

    def _is_warm(self) -> bool:
        pid = self._agent.get("pid")
        return isinstance(pid, int) and any(is_spare(p) for p in descendants([pid]))

    @property
    def isolated(self) -> bool:
        """Whether devices are held to their share by cgroups (else by CPU affinity alone)."""
        return bool(self._agent.get("cgroups"))

    @property
    def exact(self) -> bool:
        """Whether a job runs as fast beside others as alone: each device has CPUs of its own, or a quota."""
        return self.isolated or (os.cpu_count() or 1) >= self._devices

    def processes(self) -> set[int]:
        """All living processes of the agent and its workers."""
        about = self._agent
        name, pid = about.get("agent"), about.get("pid")
        if not isinstance(name, str) or not isinstance(pid, int):
            return set()
        roots = about.get("cgroups")
        inside = {p for root in roots for p in processes_in(Path(root))} if isinstance(roots, list) else set()
        return _living({pid} | inside | marked(name, MARK) | marked(name, ZYGOTE_MARK))

    def board(self, job: str, epoch: int) -> Board | None:
        """The board of a running attempt; None where there is none."""
        name = self._agent.get("agent")
        if not isinstance(name, str):
            return None
        boards = tenure.Tenure(self.agent_folder, name, -1).boards
        try:
            return Board.open(boards / f"{job}.{epoch}.board")
        except (OSError, ValueError):
            return None

    # ---- the journal

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.home / 'haibun.db'}"

    def events(self, after: int = 0) -> list[AnyEvent]:
        """What the journal holds, past event number ``after``."""
        with Store.open(self._url, read_only=True) as store:
            return [event for _, event in store.events(after)]

    def mark(self) -> int:
        """The number of the last event by now."""
        with Store.open(self._url, read_only=True) as store:
            return store.last_seq


def _living(pids: set[int]) -> set[int]:
    return {pid for pid in pids if (stat := _state(pid)) is not None and stat not in "ZX"}


def _state(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None
