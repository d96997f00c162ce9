"""A server of one's own for a benchmark: ``haibun up`` in a folder of its own, and nothing left of it afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from benchmarks.harness import REPOSITORY, MeasureError

if TYPE_CHECKING:
    from haibun.client import Client

T = TypeVar("T")
UP_WITHIN, DOWN_WITHIN, LOOK_EVERY = 120.0, 60.0, 0.05


@dataclass(slots=True)
class Server:
    """A running server: its process, its home and a client of it."""

    process: subprocess.Popen[bytes]
    home: Path
    client: Client

    def log(self) -> str:
        """The last it said."""
        return (self.home / "up.log").read_text(errors="replace")[-2000:]

    def agent(self) -> int:
        """The process id of its agent."""
        import json

        found = json.loads(next(self.home.glob("agents/*/agent.json")).read_text())
        return int(found["pid"])

    def await_(self, what: str, look: Callable[[], T | None], within: float = UP_WITHIN) -> T:
        """What ``look`` returns once it is not None.

        Raises:
            MeasureError: it did not come in time.
        """
        end = time.monotonic() + within
        while time.monotonic() < end:
            if (found := look()) is not None:
                return found
            if self.process.poll() is not None:
                raise MeasureError(f"the server ended with code {self.process.returncode}: {self.log()}")
            time.sleep(LOOK_EVERY)
        raise MeasureError(f"{what} did not come within {within:g} s: {self.log()}")


@contextmanager
def server(devices: int, *options: str) -> Iterator[Server]:
    """``haibun up`` with so many virtual devices, its node joined; ended with all its jobs at the end."""
    from haibun.client import Client, ClientError

    home = Path(tempfile.mkdtemp(prefix="haibun-bench-"))
    command = [sys.executable, "-m", "haibun.cli.main", "up", "--home", str(home), "--port", "0"]
    command += ["--virtual-devices", str(devices), *options]
    with open(home / "up.log", "wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=REPOSITORY, env=environment()
        )
    up = Server(process, home, None)  # type: ignore[arg-type]

    def joined() -> Client | None:
        try:
            client = Client(home=home)
            return client if client.nodes() else None
        except ClientError:
            return None

    try:
        up.client = up.await_("the node", joined)
        yield up
    finally:
        _end(up)
        shutil.rmtree(home, ignore_errors=True)


def environment() -> dict[str, str]:
    """That of this process, with this interpreter first on the path and ours importable."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)}


def _end(up: Server) -> None:
    up.process.terminate()
    try:
        up.process.wait(DOWN_WITHIN)
    except subprocess.TimeoutExpired:
        up.process.kill()
        up.process.wait()


def end_agent(up: Server) -> None:
    """End the agent, with what it runs, of a server that was killed: agents outlive controllers."""
    pid = up.agent()
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + DOWN_WITHIN
    while time.monotonic() < end and _alive(pid):
        time.sleep(LOOK_EVERY)


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def words(up: Server, job: str, word: str) -> list[list[str]]:
    """Lines of the job's log that begin with ``word``, split, without it."""
    lines = (line.text.split() for line in up.client.logs(job))
    return [line[1:] for line in lines if line[:1] == [word]]
