"""The API over a fake controller, on a real port of the loopback interface, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from fake_controller import TOKEN, FakeController

from haibun.server.api import create_app


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Live:
    """``do`` calls something on the server's loop and waits for it; ``asked`` lists shutdowns."""

    url: str
    controller: FakeController
    loop: asyncio.AbstractEventLoop
    asked: list[bool]

    def do(self, what: Callable[..., Any], *args: Any, **more: Any) -> Any:
        async def go() -> Any:
            return what(*args, **more)

        return asyncio.run_coroutine_threadsafe(go(), self.loop).result(10)

    def when_followed(self, what: Callable[[], Any], listeners: int = 1) -> None:
        """Call something on the loop once somebody listens to events."""

        async def go() -> None:
            while len(self.controller._listeners) < listeners:
                await asyncio.sleep(0.001)
            what()

        asyncio.run_coroutine_threadsafe(go(), self.loop)


@contextmanager
def serving(controller: FakeController) -> Iterator[Live]:
    """A server for as long as the block lasts."""
    asked: list[bool] = []
    app = create_app(controller, TOKEN, on_shutdown=asked.append)
    server = _Server(
        uvicorn.Config(app, port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    )
    started, loops = threading.Event(), list[asyncio.AbstractEventLoop]()

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.001)
        started.set()
        await task

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert started.wait(10)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Live(f"http://127.0.0.1:{port}", controller, loops[0], asked)
    finally:
        server.should_exit = True
        thread.join(10)
