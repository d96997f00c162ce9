"""The node agents of this host: started with the controller, outliving it, found again by the next one."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

LOOK_EVERY = 0.5  # seconds between looks at the agents; one that died is started again
BACKOFF_FIRST, BACKOFF_MOST = (
    1.0,
    60.0,
)  # seconds before the next start of one that ended with an error; doubles
SETTLED_AFTER = 20.0  # seconds after which an agent counts as one that can start
TAIL_LINES = 5  # of an agent's log that the operator is shown
TAIL_BYTES = 4096


@dataclass(slots=True)
class _Place:
    """One agent's state folder, and the process that this controller started for it, if it did."""

    name: str
    folder: Path
    child: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    not_before: float = 0.0

    @property
    def log(self) -> Path:
        return self.folder / "agent.log"


class LocalAgents:
    """Keeps ``nodes`` agents alive. One that cannot start is tried ever more rarely; the operator is told why.

    Args:
        url: the controller's WebSocket for agents.
        extra: further words of each agent's command line.
        say: tells the operator.
    """

    def __init__(
        self, home: Path, nodes: int, url: str, extra: list[str], say: Callable[[str], None]
    ) -> None:
        self._home, self._url, self._extra, self._say = home, url, extra, say
        names = [node_name(i, nodes) for i in range(nodes)]
        self._places = [_Place(name, home / "agents" / name) for name in names]

    @property
    def logs(self) -> list[Path]:
        """Where the agents write what they have to say."""
        return [place.log for place in self._places]

    async def keep(self) -> None:
        """Start those that are not there; look again for ever."""
        while True:
            for place in self._places:
                try:
                    self._look(place, time.monotonic())
                except OSError as e:  # no process to be had, or no room for its log
                    self._failed(place, time.monotonic(), f"cannot be started: {e}")
            await asyncio.sleep(LOOK_EVERY)

    def _look(self, place: _Place, now: float) -> None:
        if place.child is not None:
            code = place.child.poll()
            if code is None:
                if place.failures and now - place.started > SETTLED_AFTER:
                    place.failures = 0
                return
            place.child = None
            if code > 0:
                self._failed(place, now, f"ended with code {code}: {tail(place.log)}")
        if now >= place.not_before and not is_held(place.folder / "agent.lock"):
            place.child, place.started = self._spawn(place), now

    def _failed(self, place: _Place, now: float, what: str) -> None:
        place.failures += 1
        pause = min(BACKOFF_MOST, BACKOFF_FIRST * 2.0 ** (place.failures - 1))
        place.not_before = now + pause
        self._say(f"the agent of node {place.name} {what} (log: {place.log}; tried again in {pause:.0f} s)")

    def _spawn(self, place: _Place) -> subprocess.Popen[bytes]:
        place.folder.mkdir(parents=True, exist_ok=True)
        command = [
            *(sys.executable, "-m", "haibun.run.agent", "--controller", self._url),
            *("--token-file", str(self._home / "token")),
            *("--node", place.name, "--state", str(place.folder), *self._extra),
        ]
        with open(place.log, "ab") as log:
            return subprocess.Popen(  # the agent itself is spawned here, its workers in run/processes.py
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env=environment(os.environ),
            )


def environment(mine: Mapping[str, str]) -> dict[str, str]:
    """What agents and so their jobs inherit: ``python`` is the one that runs Haibun, and no token is handed on."""
    folder = str(Path(sys.executable).parent)
    path = mine.get("PATH", os.defpath)
    if path.split(os.pathsep)[0] != folder:
        path = os.pathsep.join((folder, path))
    return {**{k: v for k, v in mine.items() if k not in ("HAIBUN_TOKEN", "HAIBUN_URL")}, "PATH": path}


def is_held(lock: Path) -> bool:
    """Whether a living agent holds its state folder."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def tail(log: Path) -> str:
    """The last words of a log, in one line."""
    try:
        with open(log, "rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - TAIL_BYTES))
            lines = f.read().decode(errors="replace").splitlines()
    except OSError as e:
        return f"its log cannot be read: {e.strerror}"
    said = [line.strip() for line in lines if line.strip()]
    return " / ".join(said[-TAIL_LINES:]) or "it has said nothing"


def node_name(i: int, nodes: int) -> str:
    """The host's name; numbered where there are several nodes on it."""
    host = socket.gethostname().split(".")[0] or "node"
    return host if nodes == 1 else f"{host}-{i}"
