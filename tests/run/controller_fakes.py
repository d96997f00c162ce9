"""A controller without processes: a clock moved by hand, a store that fails on demand, agents made of a queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from agent_fakes import FakeClock

from haibun.app import make_stages
from haibun.core import snapshot
from haibun.core.events import AnyEvent, Configured
from haibun.core.state import LearntRates, State
from haibun.core.vocabulary import DeviceGroup, Node
from haibun.run.controller import Controller
from haibun.run.ledger import restore
from haibun.run.protocol import (
    Ack,
    AttemptStatus,
    Beat,
    Hello,
    Message,
    Report,
    Start,
    Stop,
    Welcome,
    pack,
    to_agent,
)
from haibun.spec.job import JobSpec
from haibun.store import AttemptRow, JobFilter, JobRow, StoreError
from haibun.store.store import Loaded

M = TypeVar("M", bound=Message)


class Clock(FakeClock):
    """Moved by ``move`` alone; whoever sleeps wakes when its time has come."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        await self.wait(asyncio.Event(), seconds)

    async def wait(self, wake: asyncio.Event, seconds: float) -> None:
        entry = (self.time + seconds, wake)
        self._sleepers.append(entry)
        try:
            await wake.wait()
        finally:
            self._sleepers.remove(entry)

    async def move(self, seconds: float) -> None:
        """Let time pass, second by second at most, and everyone act on it."""
        until = self.time + seconds
        while True:
            await settle()
            due = [at for at, wake in self._sleepers if not wake.is_set()]
            self.time = max(self.time, min([*due, until, self.time + 1.0]))
            for at, wake in self._sleepers:
                if at <= self.time:
                    wake.set()
            await settle()
            if self.time >= until:
                return


async def settle(rounds: int = 80) -> None:
    """Let everyone do what can be done now."""
    for _ in range(rounds):
        await asyncio.sleep(0)


class Inline(ThreadPoolExecutor):
    """Does at once, in the loop's thread, what threads would do: so that no test depends on their pace."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as e:
            future.set_exception(e)
        return future


class MemoryStore:
    """What the ledger needs of a store; ``fail`` makes appends raise; ``log`` tells what was made durable, in order."""

    def __init__(self) -> None:
        self.events_kept: list[AnyEvent] = []
        self.specs: dict[str, str] = {}
        self.job_rows: dict[str, JobRow] = {}
        self.attempt_rows: dict[tuple[str, int], AttemptRow] = {}
        self.snapshots: list[tuple[int, bytes]] = []
        self.appends: list[list[AnyEvent]] = []
        self.fail: StoreError | None = None
        self.gate: Callable[[Sequence[AnyEvent]], None] = lambda events: None
        self.closed = False

    @property
    def last_seq(self) -> int:
        return len(self.events_kept)

    def append(
        self,
        events: Sequence[AnyEvent],
        specs: dict[str, str] | None = None,
        *,
        jobs: Iterable[JobRow] = (),
        attempts: Iterable[AttemptRow] = (),
    ) -> int:
        self.gate(events)
        if self.fail is not None:
            raise self.fail
        if events:
            self.appends.append(list(events))
        self.events_kept += events
        self.specs |= specs or {}
        self.job_rows |= {row.id: row for row in jobs}
        self.attempt_rows |= {(row.job, row.epoch): row for row in attempts}
        return self.last_seq

    def snapshot(self, seq: int, blob: bytes) -> None:
        assert 0 <= seq <= self.last_seq
        self.snapshots.append((seq, blob))

    def load(self) -> Loaded:
        seq, blob = self.snapshots[-1] if self.snapshots else (0, None)
        return Loaded(seq, blob, iter(self.events_kept[seq:]))

    def spec(self, job: str) -> str | None:
        return self.specs.get(job)

    def jobs(
        self, filters: JobFilter | None = None, limit: int | None = None, after: str | None = None
    ) -> list[JobRow]:
        f = filters or JobFilter()
        key = lambda row: (row.submitted, len(row.id), row.id)  # noqa: E731
        rows = sorted(self.job_rows.values(), key=key, reverse=True)
        if after is not None:
            rows = [r for r in rows if after in self.job_rows and key(r) < key(self.job_rows[after])]
        rows = [
            r
            for r in rows
            if (not f.ids or r.id in f.ids)
            and (not f.states or r.state in f.states)
            and (f.tenant is None or r.tenant == f.tenant)
            and (f.name is None or r.name == f.name)
        ]
        return rows[:limit]

    def attempts(self, job: str) -> list[AttemptRow]:
        return [row for (j, _), row in sorted(self.attempt_rows.items()) if j == job]

    def close(self) -> None:
        self.closed = True


class AgentGoneError(Exception):
    """What a channel raises when the connection has ended."""


class FakeAgent:
    """One agent's end of a channel. What it is told waits in ``told``; nothing happens by itself."""

    def __init__(self, name: str, devices: int = 2, boot: str = "boot-1") -> None:
        self.node = Node(name, (DeviceGroup("cpu", devices),), cpus=4.0, memory=1 << 30)
        self.boot = boot
        self.told: list[Message] = []
        self.closed = False
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._seq = 0
        self.serving: asyncio.Task[None] | None = None

    # the controller's side: Channel
    async def recv(self) -> bytes:
        frame = await self._out.get()
        if frame is None:
            raise AgentGoneError
        return frame

    async def send(self, frame: bytes) -> None:
        if self.closed:
            raise AgentGoneError
        self.told.append(to_agent(frame))

    async def close(self) -> None:
        self.closed = True
        self._out.put_nowait(None)

    # the agent's side
    async def connect(self, c: Controller, *attempts: AttemptStatus) -> FakeAgent:
        self.say(Hello(self.node, self.boot, attempts))

        async def serve() -> None:
            with contextlib.suppress(AgentGoneError):
                await c.connect_agent(self, "127.0.0.1")

        self.serving = asyncio.create_task(serve())
        await settle()
        return self

    async def disconnect(self) -> None:
        await self.close()
        await settle()

    def say(self, message: Message) -> None:
        self._out.put_nowait(pack(message))

    async def report(self, event: AnyEvent, seq: int | None = None) -> int:
        self._seq += 1
        seq = self._seq if seq is None else seq
        self.say(Report(seq, event))
        await settle()
        return seq

    async def beat(self, *attempts: AttemptStatus) -> None:
        self.say(Beat(self.node.name, attempts))
        await settle()

    def got(self, kind: type[M]) -> list[M]:
        return [m for m in self.told if isinstance(m, kind)]

    @property
    def acked(self) -> list[int]:
        return [m.seq for m in self.got(Ack)]

    @property
    def starts(self) -> list[tuple[str, int]]:
        return [(m.launch.job, m.launch.epoch) for m in self.got(Start)]

    @property
    def stops(self) -> list[tuple[str, int, str]]:
        return [(m.job, m.epoch, m.mode.value) for m in self.got(Stop)]

    @property
    def keep(self) -> tuple[tuple[str, int], ...]:
        return self.got(Welcome)[-1].keep


@dataclass
class Bench:
    """One controller over a store that outlives it."""

    home: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    policy: str = "fifo"

    async def start(self) -> Controller:
        stages = make_stages(self.policy)
        config = Configured(0.0, self.policy)
        store: Any = self.store
        self.c = Controller(store, stages, config, self.home, LearntRates(), self.clock)
        self.c.ledger._thread = self.c.catalogue._threads = Inline()
        await self.c.start()
        await settle()
        return self.c

    async def crash(self) -> None:
        """The controller is gone, without a word."""
        for task in self.c._tasks:
            task.cancel()
        await asyncio.gather(*self.c._tasks, return_exceptions=True)

    async def submit(self, devices: int = 1, **fields: Any) -> str:
        return (await self.c.submit([spec(devices, **fields)], "/w"))[0]

    def state(self, job: str) -> str:
        return self.c.state.jobs.state(self.c.state.jobs.row_of[job]).name.lower()

    def restored(self) -> State:
        """What a controller that starts now would begin from."""
        store: Any = self.store
        return restore(store, LearntRates())[0]

    def assert_restores(self) -> None:
        """The journal tells of the State, byte for byte."""
        restored, live = (snapshot.dump(state) for state in (self.restored(), self.c.state))
        if restored != live:
            one, other = msgspec.msgpack.decode(restored), msgspec.msgpack.decode(live)
            differ = [k for k in other if repr(one[k]) != repr(other[k])]
            raise AssertionError({k: (one[k], other[k]) for k in differ})


def spec(devices: int = 1, **fields: Any) -> JobSpec:
    return JobSpec.model_validate({"run": "true", "resources": {"devices": devices}, **fields})


def status(job: str, epoch: int = 1, state: str = "running", step: float = 0.0) -> AttemptStatus:
    return AttemptStatus(job, epoch, state, step)
