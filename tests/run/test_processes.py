"""Trees of real processes: listed by cage or by mark, and ended to the last."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from agent_fakes import FakeClock

from haibun.run.clock import RealClock
from haibun.run.isolation import CgroupCage, OpenCage
from haibun.run.processes import MARK, Tree, descendants, marked, nothing_left, parents, read_stat

pytestmark = [pytest.mark.live, pytest.mark.anyio]
UNIFIED = [
    line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2] == "cgroup2"
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def none() -> set[int]:
    return set()


async def test_a_tree_is_found_by_its_mark_and_by_descent() -> None:
    mark = f"test{os.getpid()}/j/1"
    script = "env -i sleep 600 & sleep 600 & echo ready; wait"
    shell = subprocess.Popen(["sh", "-c", script], env={**os.environ, MARK: mark}, stdout=subprocess.PIPE)
    assert shell.stdout is not None
    shell.stdout.readline()
    tree = Tree(mark, OpenCage(), none, RealClock())
    assert tree.members() >= {shell.pid}
    assert marked(mark) < descendants([shell.pid])  # one of them has no environment
    assert not nothing_left(tree)
    tree.tell(signal.SIGSTOP)
    stat = read_stat(shell.pid)
    assert stat is not None
    shell.stdout.close()
    assert await tree.end() == set() or shell.wait()
    assert nothing_left(tree)
    shell.wait()


async def test_what_does_not_die_is_named_when_time_is_up() -> None:
    class Immortal(OpenCage):
        def members(self) -> set[int] | None:
            return {1 << 30}

    clock = FakeClock()
    assert await Tree("x/y/1", Immortal(), none, clock).end(timeout=5.0) == {1 << 30}
    assert clock.now() == pytest.approx(1005.0, abs=0.1)


@pytest.mark.skipif(
    not UNIFIED or not os.access(UNIFIED[0], os.W_OK), reason="needs a writable cgroup2 mount"
)
async def test_a_cage_of_version_2_freezes_lists_and_ends_its_processes() -> None:
    folder = Path(UNIFIED[0]) / f"haibun-test-{os.getpid()}"
    cage = CgroupCage({"freezer": folder}, 2, None)
    inside = subprocess.Popen(
        ["sh", "-c", f"echo $$ > {cage.joins(None)[0]}; setsid sleep 600 & echo up; wait"],
        stdout=subprocess.PIPE,
    )
    assert inside.stdout is not None
    inside.stdout.readline()
    inside.stdout.close()
    members = cage.members()
    assert inside.pid in members
    assert len(members) == 2
    cage.freeze()
    clock = RealClock()
    while not cage.frozen():
        await clock.sleep(0.001)
    import asyncio

    ended = asyncio.create_task(Tree("none/j/1", cage, none, clock).end())
    await asyncio.to_thread(inside.wait)
    assert await ended == set()
    assert not folder.exists()
    assert not members & set(parents())
