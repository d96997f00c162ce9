"""``haibun up`` and ``down``: what is in the way is said, and nothing is lost on the way down."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_harness import alive
from up_harness import Haibun, assert_ran_once, end, enough, haibun_up, steps, until

from haibun.client import ClientError
from haibun.server.local_agents import environment, is_held, tail

pytestmark = pytest.mark.live


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Haibun]:
    h = Haibun(tmp_path / "home")
    yield h
    end(h)
    h.assert_gone()


def refused(h: Haibun, **options: object) -> str:
    """What an ``up`` that cannot come up says."""
    start = h.said.stat().st_size if h.said.exists() else 0
    assert h.spawn(**options).wait(30) == 1
    said = h.said.read_text()[start:]
    assert "Traceback" not in said
    return said


def test_a_port_or_home_in_use_is_said_and_nothing_else_happens(fresh: Haibun) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(fresh, port=port)
        assert f"port {port} on 127.0.0.1 cannot be used: Address already in use" in said
        assert "--port" in said
    assert not (fresh.home / "port").exists()
    fresh.start()
    url, port_file = fresh.client.url, (fresh.home / "port").read_text()
    said = refused(fresh, port=0)
    assert f"Haibun is up already for this home at {url}" in said
    assert (fresh.home / "port").read_text() == port_file, "the next start finds its agents"
    assert fresh.all_connected()


def test_an_agent_that_cannot_start_backs_off_and_its_words_reach_the_operator(fresh: Haibun) -> None:
    fresh.start()
    fresh.stop()
    until(lambda: not alive(fresh.agent()), "its agent is gone")
    fresh.options["virtual_devices"] = 1
    fresh.start(nodes_up=False)
    until(lambda: fresh.said.read_text().count("the agent of node") >= 2, "it is said, twice", 15)
    said = [line for line in fresh.said.read_text().splitlines() if line.startswith("the agent of node")]
    assert "had other devices before (2 cpu; now 1 cpu)" in said[0]
    assert "tried again in 1 s" in said[0]
    assert "tried again in 2 s" in said[1]


def test_going_down_saves_jobs_and_the_next_start_goes_on_with_them(fresh: Haibun, tmp_path: Path) -> None:
    fresh.start()
    job = fresh.stepper(tmp_path / "out", 100)
    until(lambda: len(steps(tmp_path / "out")) > 20, "it makes steps")
    agent = fresh.agent()
    assert fresh.stop(signal.SIGINT) == 0
    assert not (fresh.home / "server.json").exists()
    assert not alive(agent)
    assert len(steps(tmp_path / "out")) < 100
    with pytest.raises(ClientError):
        fresh.client.nodes()
    fresh.start()
    assert fresh.client.wait(job, 20).state == "succeeded"
    assert [a.outcome for a in fresh.client.show(job).attempts] == ["stopped", "succeeded"]
    assert_ran_once(tmp_path / "out", 100, durable_every=1)


def test_jobs_may_be_kept_going_while_the_controller_is_down(fresh: Haibun, tmp_path: Path) -> None:
    fresh.start()
    job = fresh.stepper(tmp_path / "out")
    until(lambda: len(steps(tmp_path / "out")) > 20, "it makes steps")
    agent, pids = fresh.agent(), fresh.pids(job)
    fresh.client.shutdown(keep_jobs=True)
    assert fresh.process is not None
    assert fresh.process.wait(20) == 0
    assert alive(agent)
    fresh.start()
    assert (fresh.agent(), fresh.pids(job)) == (agent, pids)
    enough(tmp_path / "out")
    view = fresh.client.wait(job, 20)
    assert (view.state, view.attempts) == ("succeeded", 1)
    assert_ran_once(tmp_path / "out")


def test_a_second_signal_ends_at_once(fresh: Haibun) -> None:
    fresh.start()
    job = fresh.shell("trap '' TERM; echo up; while true; do sleep 0.05; done")
    until(lambda: fresh.log(job) == "up\n", "it runs, and will not end before it must")
    assert fresh.process is not None
    fresh.process.send_signal(signal.SIGTERM)
    until(lambda: "Saving jobs" in fresh.said.read_text(), "it goes down")
    fresh.process.send_signal(signal.SIGTERM)
    assert fresh.process.wait(8) == 0


def test_a_full_disk_refuses_submissions_and_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        with haibun_up(tmp_path, database=f"sqlite:///{disk}/haibun.db") as h:
            _fill_up_and_recover(h, disk, tmp_path)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)


def _submit_many(h: Haibun, accepted: list[str]) -> None:
    """Until one is refused: what the database has allocated already may take a few."""
    for _ in range(200):
        accepted += h.client.submit({"run": "true", "env": {"X": "x" * 20_000}})


def _fill_up_and_recover(h: Haibun, disk: Path, tmp_path: Path) -> None:
    running = h.stepper(tmp_path / "out", 150)
    until(lambda: len(steps(tmp_path / "out")) > 10, "it makes steps")
    _fill(disk / "filler")
    accepted: list[str] = []
    with pytest.raises(ClientError, match="disk is full"):
        _submit_many(h, accepted)
    assert "disk is full" in (h.client.top().degraded or "")
    until(lambda: len(steps(tmp_path / "out")) == 150, "the running job goes on, to its end")
    (disk / "filler").unlink()
    assert h.client.wait(running, 20).state == "succeeded"
    until(lambda: h.client.top().degraded is None, "it notices that there is space")
    last = h.client.submit({"run": "true"})[0]
    assert h.client.wait(last, 20).state == "succeeded"
    assert [view.id for view in h.client.ls()] == [running, *accepted, last], "what was accepted, and no more"
    h.kill()
    h.start()
    assert [view.id for view in h.client.ls()] == [running, *accepted, last]
    for job in accepted:
        assert h.client.wait(job, 20).state == "succeeded"


def test_agents_inherit_the_interpreters_folder_first_and_no_token() -> None:
    env = environment({"PATH": "/usr/bin", "HAIBUN_TOKEN": "secret", "LANG": "C"})
    first, rest = env["PATH"].split(os.pathsep, 1)
    assert (Path(first) / "python").exists()
    assert rest == "/usr/bin"
    assert "HAIBUN_TOKEN" not in env
    assert environment(env) == env


def test_a_lock_that_nobody_holds_and_a_log_that_is_not_there(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "agent.lock")
    assert "cannot be read" in tail(tmp_path / "agent.log")
