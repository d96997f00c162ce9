"""A controller made of lists, for tests of the server, the client and the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from haibun.core.admission import AdmissionError
from haibun.run.errors import ConflictError, NotFoundError, UnavailableError
from haibun.run.views import AttemptView, ExplanationView, JobDetail, JobView, NodeView, Overview
from haibun.server.ports import Channel
from haibun.spec.job import JobSpec, expand

TOKEN = "a-token-for-tests"
NOW = 1_800_000_000.0
ENDED = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class LogFile:
    epoch: int
    rank: int
    path: Path


def job_view(job: str, name: str = "", state: str = "queued", **more: Any) -> JobView:
    """A job with plausible values."""
    values: dict[str, Any] = {
        "id": job, "name": name, "tenant": "default", "priority": 0, "state": state, "devices": 1,
        "device_type": None, "submitted": NOW, "started": None, "ended": None, "nodes": (), "on": (),
        "step": None, "durable": None, "total": None, "rate": None, "attempts": 0, "preemptions": 0,
        "failures": 0, "retries": 0, "lost": 0.0, "exit": None, "why": "", "metrics": {}, "labels": {},
    }  # fmt: skip
    return JobView(**{**values, **more})


def node_view(name: str, holders: Sequence[str | None] = (None, None), health: str = "up") -> NodeView:
    """A node with as many devices as holders."""
    free = sum(h is None for h in holders)
    used = tuple(0.5 for _ in holders)
    return NodeView(
        name, "default", health, True, "virtual", len(holders), free, tuple(holders), 8.0, 6.0,
        1 << 34, 1 << 33, 1.5, 1 << 30, used,
    )  # fmt: skip


@dataclass
class FakeController:
    """Keeps what it is told; ``calls`` lists it. ``broken`` is raised by what needs the journal."""

    logs: Path
    table: dict[str, JobView] = field(default_factory=dict)
    specs: dict[str, JobSpec] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    broken: Exception | None = None
    most: int = 8

    def __post_init__(self) -> None:
        self._listeners: list[asyncio.Queue[dict[str, Any]]] = []
        self._seq = 0

    def say(self, kind: str, **more: Any) -> None:
        """Tell listeners of an event."""
        self._seq += 1
        for queue in self._listeners:
            queue.put_nowait({"seq": self._seq, "kind": kind, "at": NOW, **more})

    def change(self, job: str, **changes: Any) -> None:
        """Change a job, as an event would."""
        self.table[job] = msgspec.structs.replace(self.table[job], **changes)
        self.say("attempt-started", job=job, epoch=self.table[job].attempts)

    def write(self, job: str, epoch: int, rank: int, text: str) -> None:
        """Append to a log."""
        path = self.logs / job / f"epoch-{epoch}" / f"rank-{rank}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a") as f:
            f.write(text)

    def resolve(self, name: str) -> str:
        if self.broken is not None:
            raise self.broken
        if name in self.table:
            return name
        for view in self.table.values():
            if view.name == name:
                return view.id
        raise NotFoundError("job", name, [*self.table, *(v.name for v in self.table.values())])

    async def submit(self, specs: Sequence[JobSpec], workdir: str) -> list[str]:
        if self.broken is not None:
            raise self.broken
        tasks = [task for spec in specs for task in expand(spec)]
        for task in tasks:
            if task.resources.devices > self.most:
                raise AdmissionError(
                    f"job {task.name!r}: a gang of {task.resources.devices} devices can never be placed; "
                    f"the whole cluster, empty, offers {self.most} virtual"
                )
        ids = [str(len(self.table) + i + 1) for i in range(len(tasks))]
        for job, task in zip(ids, tasks, strict=True):
            self.specs[job] = task
            self.table[job] = job_view(
                job, task.name, devices=task.resources.devices, tenant=task.tenant, priority=task.priority,
                retries=task.retries, labels=dict(task.labels),
            )  # fmt: skip
        self.calls.append(("submit", ids, workdir))
        return ids

    async def cancel(self, job: str) -> None:
        found = self.resolve(job)
        self.calls.append(("cancel", found))
        self.change(found, state="cancelled", ended=NOW + 5, exit="cancelled by its user")

    async def pause(self, job: str, hold: bool = False) -> None:
        found = self.resolve(job)
        if self.table[found].state in ENDED:
            raise ConflictError(f"job {found} has {self.table[found].state}: it cannot be paused")
        self.calls.append(("pause", found, hold))

    async def resume(self, job: str) -> None:
        self.calls.append(("resume", self.resolve(job)))

    async def set_priority(self, job: str, priority: int) -> None:
        self.calls.append(("priority", self.resolve(job), priority))

    async def drain(self, node: str, evict: bool = True) -> None:
        if node != "n1":
            raise NotFoundError("node", node, ["n1"])
        self.calls.append(("drain", node, evict))

    async def undrain(self, node: str) -> None:
        self.calls.append(("undrain", node))

    async def jobs(
        self,
        states: set[str] | None = None,
        tenant: str | None = None,
        name: str | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> list[JobView]:
        if self.broken is not None:
            raise self.broken
        views = [
            v
            for v in self.table.values()
            if (not states or v.state in states) and tenant in (None, v.tenant) and name in (None, v.name)
        ]
        if after is not None:
            views = views[: next(i for i, v in enumerate(views) if v.id == after)]
        return views[-limit:]

    async def job(self, name: str) -> JobDetail:
        view = self.table[self.resolve(name)]
        attempts = tuple(
            AttemptView(i + 1, ("n1",), ("n1/0",), NOW, None, "running") for i in range(view.attempts)
        )
        spec = self.specs[view.id].to_json() if view.id in self.specs else "{}"
        return JobDetail(view, attempts, spec, str(self.logs / view.id), "/checkpoints", ())

    async def explain(self, job: str) -> ExplanationView:
        found = self.resolve(job)
        return ExplanationView(
            found,
            self.table[found].state,
            NOW,
            ("not enough devices are free",),
            ("x",),
            2,
            ("7", "8"),
            "fifo",
        )

    async def nodes(self) -> list[NodeView]:
        return [node_view("n1", ("1", None)), node_view("n2", health="lost")]

    async def overview(self) -> Overview:
        if self.broken is not None:
            raise self.broken
        counts: dict[str, int] = {}
        for view in self.table.values():
            counts[view.state] = counts.get(view.state, 0) + 1
        jobs = tuple(self.table.values())
        return Overview(NOW + 60, "fifo", {}, tuple(await self.nodes()), jobs, counts, 12, 5, None)

    def log_files(self, job: str, epoch: int | None = None, rank: int | None = None) -> list[LogFile]:
        folder = self.logs / self.resolve(job)
        epochs = sorted(int(p.name.split("-")[1]) for p in folder.glob("epoch-*"))
        chosen = epoch if epoch is not None else (epochs[-1] if epochs else 0)
        files = sorted((folder / f"epoch-{chosen}").glob("rank-*.log"))
        found = [LogFile(chosen, int(p.stem.split("-")[1]), p) for p in files]
        return [f for f in found if rank in (None, f.rank)]

    async def wait(self, job: str, timeout: float | None = None) -> JobView:
        found = self.resolve(job)
        async with asyncio.timeout(timeout):
            stream = self.stream()
            while self.table[found].state not in ENDED:
                await anext(stream)
        return self.table[found]

    async def stream(self) -> AsyncIterator[dict[str, Any]]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._listeners.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.remove(queue)

    async def connect_agent(self, channel: Channel, address: str | None = None) -> None:
        hello = await channel.recv()
        await channel.send(b"welcome " + hello)
        await channel.recv()


FULL_DISK = UnavailableError("the journal cannot be written: no space left on device")
