"""Agent and controller come and go: nothing runs twice, nothing is lost, nothing is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from agent_harness import alive, bench, cgroups_left, marked_left, until

from haibun.core.events import AttemptStarted, AttemptStopped, AttemptSucceeded
from haibun.run.protocol import Shutdown

pytestmark = [pytest.mark.live, pytest.mark.anyio]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_cut_off_agent_keeps_its_workers_and_reports_later(tmp_path: Path) -> None:
    async with bench(tmp_path, "--no-warm") as b:
        c = b.controller
        await b.start("stays", run="sleep 600")
        await b.start("ends", run="while [ ! -e go ]; do sleep 0.02; done")
        await c.event("stays", AttemptStarted)
        await c.event("ends", AttemptStarted)
        await c.stop()
        (tmp_path / "go").touch()
        c.acknowledge = False
        await c.start()
        await c.event("ends", AttemptSucceeded)
        assert len(c.hellos) == 2
        assert c.hellos[0].boot == c.hellos[1].boot
        assert "stays" in [a.job for a in c.hellos[1].attempts]
        first = [r.seq for _, r in c.reports if isinstance(r.event, AttemptSucceeded)]
        await c.stop()
        c.acknowledge = True
        await c.start()
        await until(lambda: len(c.hellos) == 3, "it comes back again")
        again = await until(
            lambda: [r.seq for _, r in c.reports if isinstance(r.event, AttemptSucceeded)][1:], "sent again"
        )
        assert first[:1] == again[:1]
        assert c.headers[-1]["Authorization"] == "Bearer secret"


async def test_what_the_controller_does_not_keep_is_ended(tmp_path: Path) -> None:
    async with bench(tmp_path, "--no-warm") as b:
        c = b.controller
        await b.start("unwanted", run="sleep 600")
        pids = (await until(lambda: (s := c.status("unwanted")) and s.pids and s, "it runs")).pids
        await c.stop()
        c.keep = ()
        await c.start()
        await c.event("unwanted", AttemptStopped)
        assert not any(alive(p) for p in pids)


async def test_a_refused_agent_says_why_and_exits_with_3(tmp_path: Path) -> None:
    async with bench(tmp_path, "--no-warm") as b:
        await b.end_agent()
        b.controller.refuse = "a node of that name is here already"
        await b.start_agent("--no-warm")
        assert b.agent is not None
        assert await b.agent.wait() == 3
        assert "a node of that name is here already" in b.said.read_text()


async def test_a_second_agent_for_a_state_folder_does_not_start(tmp_path: Path) -> None:
    async with bench(tmp_path, "--no-warm") as b:
        first = b.agent
        await b.start_agent("--no-warm")
        assert b.agent is not None
        assert first is not None
        assert await b.agent.wait() == 1
        assert f"another agent (process {first.pid}) uses the state folder" in b.said.read_text()
        b.agent = first


@pytest.mark.parametrize("cgroups", [True, False])
async def test_a_killed_agent_takes_its_workers_along_and_the_next_one_finds_nothing(
    tmp_path: Path, cgroups: bool
) -> None:
    extra = ["--no-warm"] if cgroups else ["--no-warm", "--no-cgroups"]
    async with bench(tmp_path, *extra) as b:
        c = b.controller
        assert b.agent is not None
        # the worker dies with its agent; the daemon that it started is for the next agent to find
        await b.start("job", run="setsid sleep 600 & echo $! > daemon; wait")
        await b.start("held", run="sleep 600", devices=(1,))
        pids = (await until(lambda: (s := c.status("job")) and s.pids and s, "it runs")).pids
        daemon = int(await until(lambda: (p := tmp_path / "daemon").exists() and p.read_text(), "the daemon"))
        b.agent.send_signal(signal.SIGKILL)
        await b.agent.wait()
        await until(lambda: not any(alive(p) for p in pids), "the worker dies", within=1.0)
        assert alive(daemon)
        await b.start_agent(*extra)
        await until(lambda: len(c.hellos) == 2, "the next agent")
        assert not alive(daemon)
        assert c.hellos[1].attempts == ()
        assert c.hellos[1].boot != c.hellos[0].boot
        assert cgroups_left(b.state) == []
        assert "processes that a former agent had left" in b.said.read_text()


async def test_a_shutdown_stops_all_jobs_and_then_the_agent(tmp_path: Path) -> None:
    async with bench(tmp_path, "--no-warm") as b:
        c = b.controller
        await b.start("one", run="trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done")
        await until(lambda: b.log("one"), "it runs")
        await c.send(Shutdown(grace=5.0))
        assert b.agent is not None
        assert await b.agent.wait() == 0
        await c.event("one", AttemptStopped)
        assert marked_left(b.state) == []
        assert cgroups_left(b.state) == []


async def test_without_cgroups_daemons_still_end_and_memory_is_watched(tmp_path: Path) -> None:
    from test_agent_life import DAEMON, python

    from haibun.core.events import AttemptFailed

    async with bench(tmp_path, "--no-warm", "--no-cgroups") as b:
        assert "cgroups are not usable" in b.said.read_text()
        script = b.script("daemon.py", DAEMON)
        await b.start("daemon", argv=python(script), env={"NOTE": str(tmp_path / "pid")})
        await b.controller.event("daemon", AttemptSucceeded)
        assert not alive(int((tmp_path / "pid").read_text()))
        code = "x = bytearray(300 << 20); import time; time.sleep(60)"
        await b.start("greedy", argv=(*python("-c"), code), memory=100 << 20)
        failed = await b.controller.event("greedy", AttemptFailed)
        assert failed.cause.startswith("out of memory: ")
        await b.start(
            "bound", argv=(*python("-c"), "import os; print(os.sched_getaffinity(0))"), devices=(1,)
        )
        await b.controller.event("bound", AttemptSucceeded)
        assert b.log("bound") == f"{{{sorted(os.sched_getaffinity(0))[1 % len(os.sched_getaffinity(0))]}}}\n"
