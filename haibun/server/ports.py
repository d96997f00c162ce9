"""What the server needs of a controller. ``haibun.run.controller`` has one; tests bring their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from haibun.run.views import ExplanationView, JobDetail, JobView, NodeView, Overview
from haibun.spec.job import JobSpec


class LogFile(Protocol):
    """The log of one rank of one attempt."""

    @property
    def epoch(self) -> int: ...

    @property
    def rank(self) -> int: ...

    @property
    def path(self) -> Path: ...


class Channel(Protocol):
    """One connection to an agent; ``recv`` raises when it has ended."""

    async def recv(self) -> bytes: ...

    async def send(self, frame: bytes) -> None: ...

    async def close(self) -> None: ...


class Control(Protocol):
    """The verbs. A job may be named by its id, or by a name that only one job bears.

    All raise the errors of ``haibun.run.errors``; ``submit`` raises AdmissionError too.
    """

    def resolve(self, name: str) -> str: ...

    async def submit(self, specs: Sequence[JobSpec], workdir: str) -> list[str]: ...

    async def cancel(self, job: str) -> None: ...

    async def pause(self, job: str, hold: bool = False) -> None: ...

    async def resume(self, job: str) -> None: ...

    async def set_priority(self, job: str, priority: int) -> None: ...

    async def drain(self, node: str, evict: bool = True) -> None: ...

    async def undrain(self, node: str) -> None: ...

    async def jobs(
        self,
        states: set[str] | None = None,
        tenant: str | None = None,
        name: str | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> list[JobView]: ...

    async def job(self, name: str) -> JobDetail: ...

    async def explain(self, job: str) -> ExplanationView: ...

    async def nodes(self) -> list[NodeView]: ...

    async def overview(self) -> Overview: ...

    def log_files(self, job: str, epoch: int | None = None, rank: int | None = None) -> Sequence[LogFile]: ...

    async def wait(self, job: str, timeout: float | None = None) -> JobView: ...

    def stream(self) -> AsyncIterator[dict[str, Any]]: ...

    async def connect_agent(self, channel: Channel, address: str | None = None) -> None: ...
