"""Logs and events: what comes, in which order, and when it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fake_controller import TOKEN, FakeController, job_view

from haibun.server.api import create_app


class Stream:
    """One request whose answer is read piece by piece, as ASGI sees it."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.gone = asyncio.Event()
        self._text = ""

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            self.pieces.put_nowait(message.get("body", b""))
            if not message.get("more_body"):
                self.pieces.put_nowait(None)

    async def line(self) -> str | None:
        """The next line, None at the end."""
        while "\n" not in self._text:
            piece = await self.pieces.get()
            if piece is None:
                return None
            self._text += piece.decode()
        line, self._text = self._text.split("\n", 1)
        return line

    async def value(self) -> Any:
        """The next line of JSON, None at the end."""
        line = await self.line()
        return None if line is None else json.loads(line)


@asynccontextmanager
async def opened(controller: FakeController, path: str, query: str = "") -> AsyncIterator[Stream]:
    """A stream; its client goes at the end, and the server must then have no task left."""
    stream = Stream()
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "root_path": "", "scheme": "http", "client": ("c", 1), "server": ("s", 2),
        "headers": [(b"authorization", f"Bearer {TOKEN}".encode())],
    }  # fmt: skip
    app = create_app(controller, TOKEN)
    task = asyncio.create_task(app(scope, stream.receive, stream.send))
    try:
        yield stream
    finally:
        stream.gone.set()
        async with asyncio.timeout(5):
            await asyncio.gather(task, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}


def run(go: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await go()

    asyncio.run(limited())


def test_logs_of_all_ranks_of_the_last_attempt_are_read_and_the_answer_ends(
    controller: FakeController,
) -> None:
    controller.table["1"] = job_view("1", state="running", attempts=2)
    controller.write("1", 1, 0, "old\n")
    controller.write("1", 2, 0, "a\nb")
    controller.write("1", 2, 1, "c\n")

    async def go() -> None:
        async with opened(controller, "/v1/jobs/1/logs") as stream:
            got = [await stream.value() for _ in range(4)]
        assert got == [
            {"epoch": 2, "rank": 0, "text": "a"},
            {"epoch": 2, "rank": 1, "text": "c"},
            {"epoch": 2, "rank": 0, "text": "b"},
            None,
        ]

    run(go)


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("tail=1", ["3"]),
        ("tail=2", ["2", "3"]),
        ("tail=0", []),
        ("tail=9", ["1", "2", "3"]),
        ("epoch=1", ["old"]),
        ("rank=5", []),
    ],
)
def test_a_part_of_the_logs_may_be_asked_for(
    controller: FakeController, query: str, texts: list[str]
) -> None:
    controller.table["1"] = job_view("1", state="failed")
    controller.write("1", 1, 0, "old\n")
    controller.write("1", 2, 0, "1\n2\n3\n")

    async def go() -> None:
        async with opened(controller, "/v1/jobs/1/logs", query) as stream:
            for text in texts:
                assert (await stream.value())["text"] == text
            assert await stream.value() is None

    run(go)


def test_following_tells_states_and_lines_in_order_and_ends_with_the_job(controller: FakeController) -> None:
    controller.table["1"] = job_view("1")

    async def go() -> None:
        async with opened(controller, "/v1/jobs/1/logs", "follow=true&states=true") as stream:
            assert (await stream.value())["job"]["state"] == "queued"
            controller.change("1", state="running", attempts=1, on=("n1/0",))
            assert (await stream.value())["job"]["state"] == "running"
            controller.write("1", 1, 0, "step 1\n")
            assert (await stream.value())["text"] == "step 1"
            controller.change("1", state="running", attempts=2, on=("n1/1",))
            assert (await stream.value())["job"]["on"] == ["n1/1"]
            controller.write("1", 2, 0, "step 2\nlast words")
            controller.change("1", state="succeeded")
            rest = [await stream.value() for _ in range(4)]
        assert [r["text"] for r in rest[:2]] == ["step 2", "last words"]
        assert (rest[2]["job"]["state"], rest[3]) == ("succeeded", None)

    run(go)


def test_a_reader_that_goes_leaves_nothing_behind(controller: FakeController) -> None:
    controller.table["1"] = job_view("1", state="running")

    async def go() -> None:
        async with opened(controller, "/v1/jobs/1/logs", "follow=true&states=true") as stream:
            assert (await stream.value())["job"]["state"] == "running"

    run(go)
    assert controller._listeners == []


def test_events_come_as_server_sent_events(controller: FakeController) -> None:
    async def go() -> None:
        async with opened(controller, "/v1/events", "kind=job-submitted") as stream:
            assert await stream.line() == ": connected"
            assert await stream.line() == ""
            controller.say("tick")
            controller.say("job-submitted", job={"id": "1"})
            lines = [await stream.line() for _ in range(3)]
        assert lines[:2] == ["id: 2", "event: job-submitted"]
        assert json.loads(str(lines[2]).removeprefix("data: "))["job"] == {"id": "1"}

    run(go)


async def speak(controller: FakeController, frames: list[dict[str, Any]], token: str) -> list[dict[str, Any]]:
    """What the server sends to an agent that sends these frames, and then goes."""
    said: list[dict[str, Any]] = []
    coming = [{"type": "websocket.connect"}, *frames, {"type": "websocket.disconnect", "code": 1000}]

    async def receive() -> dict[str, Any]:
        return coming.pop(0)

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    scope = {
        "type": "websocket", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "path": "/v1/agent", "raw_path": b"/v1/agent", "query_string": b"", "root_path": "", "scheme": "ws",
        "client": ("c", 1), "server": ("s", 2), "subprotocols": [],
        "headers": [(b"authorization", f"Bearer {token}".encode())],
    }  # fmt: skip
    await create_app(controller, TOKEN)(scope, receive, send)
    return said


def test_an_agent_is_connected_by_its_token_alone(controller: FakeController) -> None:
    hello = {"type": "websocket.receive", "bytes": b"hello"}
    (refused,) = asyncio.run(speak(controller, [hello], "wrong"))
    assert (refused["type"], refused["code"]) == ("websocket.close", 1008)
    accepted, welcome = asyncio.run(speak(controller, [hello], TOKEN))
    assert accepted["type"] == "websocket.accept"
    assert welcome["bytes"] == b"welcome hello"


def test_an_agent_that_sends_text_is_sent_away(controller: FakeController) -> None:
    said = asyncio.run(speak(controller, [{"type": "websocket.receive", "text": "hello"}], TOKEN))
    assert (said[-1]["type"], said[-1]["code"]) == ("websocket.close", 1007)
