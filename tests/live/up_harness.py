"""A whole Haibun for tests: ``haibun up`` as a process of its own, real agents, real scripts."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from agent_harness import alive, cgroups_left, marked_left

from haibun.client import Client
from haibun.run.tenure import former
from haibun.run.views import JobView

T = TypeVar("T")

UP = """
import sys
from pathlib import Path
from haibun.server.up import UpOptions, up
import json
options = json.loads(sys.argv[1])
try:
    up(UpOptions(**{**options, "home": Path(options["home"])}))
except Exception as e:
    print(f"{type(e).__name__}: {e}", flush=True)
    sys.exit(1)
"""

# An attached worker without torch: each step is told to a file by rank 0, every fifth is durable. It obeys the board as
# haibun.train does. Arguments: the file, steps in all (0: until FILE.enough is there), seconds a step.
STEPPER = """
import os, sys, time
from pathlib import Path
from haibun.train.board import Board, Command, Phase
out, total, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
enough = Path(out + ".enough") if not total else None
board = Board.open(Path(os.environ["HAIBUN_BOARD"]))
slot, h = board.slots[int(os.environ["HAIBUN_SLOT"])], board.header
rank = os.environ["RANK"]
saved = Path(os.environ["HAIBUN_CHECKPOINTS"]) / f"saved-{rank}"
def save():
    saved.with_suffix(".new").write_text(str(slot.step))
    os.replace(saved.with_suffix(".new"), saved)
    slot.durable = slot.step
slot.step = slot.durable = int(saved.read_text()) if saved.exists() else 0
slot.pid, slot.total, slot.attached, slot.phase = os.getpid(), total or -1, 1, Phase.STEPPING
log = os.open(out if rank == "0" else "/dev/null", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while slot.step < total or (enough and not enough.exists()):
    time.sleep(pause)
    os.write(log, f"{os.getpid()} {os.environ['HAIBUN_EPOCH']} {slot.step}\\n".encode())
    slot.step += 1
    slot.beat = time.monotonic()
    slot.first_step = slot.first_step or slot.beat
    if slot.step % 5 == 0:
        save()
    if h.command_seq != slot.done_seq:
        command, slot.done_seq = h.command, h.command_seq
        if command == Command.YIELD:
            save()
            slot.phase = Phase.YIELDED
            sys.exit(0)
        if command == Command.HOLD:
            slot.phase = Phase.HELD
            while h.command_seq == slot.done_seq:
                time.sleep(0.005)
            slot.phase = Phase.STEPPING
save()
slot.phase = Phase.FINISHED
"""


def until(look: Callable[[], T | None], what: str | Callable[[], str], within: float = 20.0) -> T:
    """Poll until ``look`` returns something true."""
    deadline = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
    return found


class Haibun:
    """One home; the controller may die and come back."""

    def __init__(self, home: Path, **options: Any) -> None:
        self.home = home
        self.options = {"home": str(home), "port": 0, "virtual_devices": 2, "warm": False, **options}
        self.said = home.parent / "up.txt"
        self.process: subprocess.Popen[bytes] | None = None
        self.scripts = home.parent / "scripts"
        self.scripts.mkdir(exist_ok=True)
        (self.scripts / "stepper.py").write_text(STEPPER)

    # --- the controller

    def spawn(self, **options: Any) -> subprocess.Popen[bytes]:
        with open(self.said, "ab") as said:
            return subprocess.Popen(
                [sys.executable, "-c", UP, json.dumps({**self.options, **options})],
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def start(self, nodes_up: bool = True) -> None:
        self.process = self.spawn()
        until(self._answers, lambda: f"it answers: {self.said.read_text()}", 40)
        self.options["port"] = None  # the one it had
        self.client = Client(home=self.home)
        if nodes_up:
            until(self.all_connected, lambda: f"agents connect: {self.client.nodes()}", 20)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said.read_text()
        try:
            written = json.loads((self.home / "server.json").read_text())
        except (OSError, ValueError):
            return False
        if written["pid"] != self.process.pid:
            return False
        try:
            return httpx.get(f"{written['url']}/healthz", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def all_connected(self) -> bool:
        nodes = self.client.nodes()
        return sum(n.connected and n.health == "up" for n in nodes) == self.options.get("nodes", 1)

    def kill(self) -> None:
        """As a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)

    # --- agents

    def states(self) -> list[Path]:
        return sorted((self.home / "agents").glob("*"))

    def agent(self, i: int = 0) -> int:
        return int(str(former(self.states()[i])["pid"]))

    # --- jobs

    def stepper(self, out: Path, total: int = 0, pause: float = 0.01, **fields: Any) -> str:
        argv = ["python", str(self.scripts / "stepper.py"), str(out), str(total), str(pause)]
        return self.client.run(argv, workdir=str(self.home.parent), **fields)

    def shell(self, script: str, devices: int = 1, **fields: Any) -> str:
        body = {"run": script, "resources": {"devices": devices}, **fields}
        return self.client.submit(body, workdir=str(self.home.parent))[0]

    def view(self, job: str) -> JobView:
        return self.client.show(job).job

    def until(self, job: str, state: str, within: float = 20.0) -> JobView:
        def look() -> JobView | None:
            view = self.view(job)
            return view if view.state == state else None

        return until(look, lambda: f"job {job} is {state}; it is {self.client.show(job)}", within)

    def log(self, job: str, epoch: int = 1, rank: int = 0) -> str:
        path = self.home / "jobs" / job / "logs" / f"epoch-{epoch}" / f"rank-{rank}.log"
        return path.read_text() if path.exists() else ""

    def pids(self, job: str) -> list[int]:
        """Processes of a job that live, by its mark."""
        from haibun.run.processes import MARK, marked

        epoch = self.view(job).attempts
        agents = (str(former(state).get("agent")) for state in self.states())
        return sorted(p for a in agents for p in marked(f"{a}/{job}/{epoch}", MARK))

    # --- nothing is left

    def assert_idle(self) -> None:
        """No device is held and no process of a job lives."""
        until(lambda: all(n.free == n.devices for n in self.client.nodes()), "all devices are free")
        from haibun.run.processes import MARK, marked

        agents = [str(former(state).get("agent")) for state in self.states()]
        left = [p for a in agents for p in marked(a, MARK)]
        assert left == [], [Path(f"/proc/{p}/cmdline").read_bytes() for p in left]
        assert [c for state in self.states() for c in cgroups_left(state)] == []

    def assert_gone(self) -> None:
        for state in self.states():
            assert marked_left(state) == []
            assert cgroups_left(state) == []
            assert not alive(int(str(former(state)["pid"])))


@contextmanager
def haibun_up(folder: Path, **options: Any) -> Iterator[Haibun]:
    """Up, and down again with nothing left."""
    h = Haibun(folder / "home", **options)
    try:
        h.start()
        yield h
    finally:
        end(h)
    h.assert_gone()


def end(h: Haibun) -> None:
    """Whatever happened: no process outlives a test."""
    if h.process is not None and h.process.poll() is None:
        try:
            h.stop()
        except subprocess.TimeoutExpired:
            h.kill()
    for i, _ in enumerate(h.states()):
        pid = h.agent(i)
        if alive(pid):
            os.kill(pid, signal.SIGTERM)
            until(lambda pid=pid: not alive(pid), f"agent {pid} ends", 15)  # type: ignore[misc]


def steps(out: Path) -> list[tuple[int, int, int]]:
    """(pid, epoch, step) of each step told so far."""
    if not out.exists():
        return []
    return [tuple(map(int, line.split())) for line in out.read_text().splitlines()]  # type: ignore[misc]


def enough(out: Path) -> None:
    """Let a stepper without an end come to it."""
    Path(f"{out}.enough").touch()


def assert_ran_once(out: Path, total: int = 0, durable_every: int = 5) -> None:
    """No two processes ran at a time, none before the last durable step was repeated, and all steps were made."""
    told = steps(out)
    epochs = [epoch for _, epoch, _ in told]
    assert epochs == sorted(epochs), "an older attempt ran beside a newer one"
    for epoch in set(epochs):
        assert len({pid for pid, e, _ in told if e == epoch}) == 1, f"attempt {epoch} ran twice"
    for (_, e0, s0), (_, e1, s1) in itertools.pairwise(told):
        if e0 == e1:
            assert s1 == s0 + 1
        else:
            assert s0 - durable_every < s1 <= s0 + 1, "steps that were durable were repeated, or some skipped"
    assert not total or told[-1][2] == total - 1
