"""One attempt without processes: what it tells of itself, and orders from other nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agent_fakes import FakeClock

from haibun.core.events import AnyEvent, AttemptFailed, AttemptStarted
from haibun.core.vocabulary import StopMode
from haibun.run.attempt import Attempt, Host
from haibun.run.devices import LocalDevice
from haibun.run.isolation import OpenCages
from haibun.run.processes import SpawnError
from haibun.run.protocol import Launch, Order, Stop
from haibun.train.board import Command

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class NoLauncher:
    async def launch(self, *request: Any) -> None:
        raise SpawnError("the process that starts workers has gone")


def attempt(folder: Path, told: list[AnyEvent], **more: Any) -> Attempt:
    devices = tuple(LocalDevice(i, (i,), 1.0, 1 << 30) for i in range(2))
    host = Host(
        "a",
        "n1",
        devices,
        folder,
        NoLauncher(),
        None,
        OpenCages("test"),
        FakeClock(),
        told.append,
        set,  # type: ignore[arg-type]
    )
    given = {"devices": (0, 1), "processes": 2, "world_size": 4, "nodes": 2, **more}
    where = {"cwd": str(folder), "checkpoints": str(folder / "c"), "logs": str(folder / "l")}
    return Attempt(Launch("j", 3, "job", run="true", **where, **given), host, told.append)


def test_an_order_of_rank_0_goes_from_board_to_board(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "1").mkdir()
    first, second = attempt(tmp_path / "0", []), attempt(tmp_path / "1", [], node_rank=1, first_rank=2)
    assert first.status().order is None
    h = first.progress.board.header
    h.stop_at, h.stop_seq, h.stop_command, h.stop_no = 57, 2, int(Command.YIELD), 1
    order = first.status().order
    assert order == Order("j", 3, 1, int(Command.YIELD), 57, 2)
    second.mirror(order)
    other = second.progress.board.header
    assert (other.stop_at, other.stop_seq, other.stop_command, other.stop_no) == (57, 2, Command.YIELD, 1)
    assert second.status().order is None


async def test_a_gang_that_cannot_start_whole_is_reported_with_its_cause(tmp_path: Path) -> None:
    told: list[AnyEvent] = []
    await attempt(tmp_path, told, nodes=1, world_size=2).run()
    (failed,) = told
    assert isinstance(failed, AttemptFailed)
    assert (failed.cause, failed.fatal) == ("the process that starts workers has gone", False)
    assert not list(tmp_path.glob("*.board"))


async def test_an_attempt_behind_the_fence_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c/fence").write_text("4\n")
    told: list[AnyEvent] = []
    await attempt(tmp_path, told).run()
    assert [type(e) for e in told] == [AttemptFailed]
    assert "attempt 4 has taken over" in told[0].cause  # type: ignore[union-attr]
    assert AttemptStarted not in map(type, told)


def test_a_second_stop_only_brings_the_deadline_forward(tmp_path: Path) -> None:
    a = attempt(tmp_path, [])
    now = a._clock.now()
    for stop, due in (
        (Stop("j", 3, StopMode.CHECKPOINT, 10.0), now + 10),
        (Stop("j", 3, StopMode.CHECKPOINT, 60.0), now + 10),
        (Stop("j", 3, StopMode.CHECKPOINT, 4.0), now + 4),
        (Stop("j", 3, StopMode.KILL, 60.0), now),
    ):
        a._obey(stop)
        assert a._kill_at == due
