"""Answers that do not end at once: logs as they are written, events as they are applied."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from haibun.run.errors import NotFoundError
from haibun.run.logs import follow
from haibun.run.views import JobView
from haibun.server.ports import Control, LogFile
from haibun.server.wire import Controller

router = APIRouter(tags=["streams"])

ENDED = frozenset({"succeeded", "failed", "cancelled"})
STILL_THERE = (
    15.0  # seconds between signs of life on a quiet stream: proxies drop silent ones after thirty or more
)
AT_ONCE = 1000  # lines that go into one piece of an answer, and wait for a slow reader at most
_line = msgspec.json.Encoder()


@router.get("/v1/jobs/{job:path}/logs")
async def logs(
    job: str,
    control: Controller,
    epoch: Annotated[int | None, Query(ge=1)] = None,
    rank: Annotated[int | None, Query(ge=0)] = None,
    tail: Annotated[int | None, Query(ge=0, le=1_000_000)] = None,
    follow: bool = False,
    states: bool = False,
) -> StreamingResponse:
    """Lines of a job's logs, each a line of JSON: ``{"epoch", "rank", "text"}``.

    Without ``epoch`` those of the latest attempt, and while ``follow``ing of those that come after it.
    ``tail``: only so many last lines of each file. ``follow``: until the job ends. ``states`` adds a line
    ``{"job": JobView}`` whenever its state changes: the first at once, the last at the end.
    """
    detail = await control.job(job)
    source = _Source(control, detail.job.id, epoch, rank)
    until_end = follow and detail.job.state not in ENDED
    feed = _Feed(_follow(source, detail.job, tail, until_end, states))
    return StreamingResponse(feed.pieces(), media_type="application/x-ndjson")


@router.get("/v1/events")
async def events(control: Controller, kind: Annotated[list[str] | None, Query()] = None) -> StreamingResponse:
    """Events from now on, as server-sent events: ``id`` is the number in the journal, ``event`` the kind."""
    feed = _Feed(_events(control, frozenset(kind or ())), quiet=b": still here\n\n")
    return StreamingResponse(
        feed.pieces(first=b": connected\n\n"),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(control: Control, kinds: frozenset[str]) -> AsyncIterator[bytes]:
    async for event in control.stream():
        if not kinds or event.get("kind") in kinds:
            head = f"id: {event.get('seq', '')}\nevent: {event.get('kind', '')}\ndata: ".encode()
            yield head + _line.encode(event) + b"\n\n"


class _Source:
    """The log files of a job that are asked for."""

    def __init__(self, control: Control, job: str, epoch: int | None, rank: int | None) -> None:
        self.control, self.job, self.epoch, self.rank = control, job, epoch, rank
        self._known: dict[Path, LogFile] = {}

    def paths(self) -> list[Path]:
        """Those there are by now."""
        with contextlib.suppress(NotFoundError):  # retired while we follow: what is known stays
            for file in self.control.log_files(self.job, self.epoch, self.rank):
                self._known[file.path] = file
        return list(self._known)

    def superseded(self) -> bool:
        """Whether the one attempt that is asked for has been followed by another."""
        if self.epoch is None:
            return False
        with contextlib.suppress(NotFoundError):
            return any(file.epoch > self.epoch for file in self.control.log_files(self.job))
        return True

    def encode(self, path: Path, text: str) -> bytes:
        """One line of the answer."""
        file = self._known[path]
        return _line.encode({"epoch": file.epoch, "rank": file.rank, "text": text}) + b"\n"


async def _follow(
    source: _Source, view: JobView, tail: int | None, until_end: bool, states: bool
) -> AsyncIterator[bytes]:
    control, job = source.control, source.job
    if not until_end:
        async for line in follow(source.paths, lambda: True, last=tail):
            yield source.encode(line.path, line.text)
        if states:
            yield _line.encode({"job": view}) + b"\n"
        return
    merged: asyncio.Queue[bytes | None] = asyncio.Queue(AT_ONCE)
    ending = asyncio.create_task(control.wait(job))

    async def read() -> None:
        ended = lambda: ending.done() or source.superseded()  # noqa: E731
        async for line in follow(source.paths, ended, last=tail):
            await merged.put(source.encode(line.path, line.text))
        await merged.put(None)

    tasks = [asyncio.create_task(read())]
    if states:
        tasks.append(asyncio.create_task(_states(control, job, merged)))
    try:
        while (piece := await merged.get()) is not None:
            yield piece
        if states:
            yield _line.encode({"job": (await control.job(job)).job}) + b"\n"
    finally:
        for task in (ending, *tasks):
            task.cancel()
        await asyncio.gather(ending, *tasks, return_exceptions=True)


async def _states(control: Control, job: str, merged: asyncio.Queue[bytes | None]) -> None:
    """Put the job's view whenever its state or place has changed; not its end: that follows the last line."""
    told: tuple[Any, ...] = ()
    stream = control.stream()
    upcoming = asyncio.ensure_future(anext(stream, None))
    await asyncio.sleep(0)  # from here on we are among the listeners: nothing falls between look and wait
    try:
        while True:
            view = (await control.job(job)).job
            now = (view.state, view.attempts, view.on)
            if now != told and view.state not in ENDED:
                told = now
                await merged.put(_line.encode({"job": view}) + b"\n")
            while True:
                event = await upcoming
                if event is None:
                    return
                upcoming = asyncio.ensure_future(anext(stream, None))
                if _concerns(event, job):
                    break
    finally:
        upcoming.cancel()


def _concerns(event: dict[str, Any], job: str) -> bool:
    if event.get("kind") == "attempt-progressed":
        return False
    if event.get("job") == job:
        return True
    decision = event.get("decision")
    if not decision:
        return False
    return any(e["job"] == job for e in decision["evict"]) or any(job in p["jobs"] for p in decision["place"])


class _Feed:
    """Turns a stream of small pieces into few large ones, and gives signs of life while there are none."""

    def __init__(self, source: AsyncIterator[bytes], quiet: bytes | None = None) -> None:
        self._source = source
        self._quiet = quiet
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(AT_ONCE)

    async def pieces(self, first: bytes | None = None) -> AsyncIterator[bytes]:
        """What goes out. An error of the source ends it early."""
        pump = asyncio.create_task(self._pump())
        try:
            await asyncio.sleep(0)  # the source has begun to listen
            if first is not None:
                yield first
            while (piece := await self._next()) is not None:
                batch = [piece]
                over = False
                while not self._queue.empty() and len(batch) < AT_ONCE:
                    following = self._queue.get_nowait()
                    if following is None:
                        over = True
                        break
                    batch.append(following)
                yield b"".join(batch)
                if over:
                    break
            await pump
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _next(self) -> bytes | None:
        if self._quiet is None:
            return await self._queue.get()
        try:
            return await asyncio.wait_for(self._queue.get(), STILL_THERE)
        except TimeoutError:
            return self._quiet

    async def _pump(self) -> None:
        try:
            async for piece in self._source:
                await self._queue.put(piece)
        finally:
            await self._queue.put(None)
