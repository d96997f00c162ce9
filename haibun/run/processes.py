"""The one place where processes are started, waited for, listed and ended.

Everything of an attempt can be found: by its cage (cgroup) where there is one, else by the variable
HAIBUN_ATTEMPT in its environment, by descent, and, since the agent is subreaper, by being a child of the
agent that nobody knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from haibun.run.clock import Clock
from haibun.run.isolation import Cage

PR_SET_CHILD_SUBREAPER = 36
MARK = "HAIBUN_ATTEMPT"  # AGENT/JOB/EPOCH, in the environment of all that an attempt starts
ZYGOTE_MARK = (
    "HAIBUN_ZYGOTE"  # AGENT, in the environment of the zygotes, and of what they forked without exec
)
SPARE = "haibun-spare"  # as in zygote.py
ZYGOTE = Path(__file__).with_name("zygote.py")
# SIGKILL takes effect in milliseconds; a process that stands in the kernel (a dead disk) may take as long as
# that does.
KILL_TIMEOUT = 30.0


class SpawnError(Exception):
    """A program could not be started; ``fatal`` when trying again cannot help."""

    def __init__(self, why: str, fatal: bool = False) -> None:
        super().__init__(why)
        self.fatal = fatal


class Request(msgspec.Struct, frozen=True):
    """What a zygote is asked to start; the fields are those that ``zygote.py`` reads."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    log: str
    joins: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    python: bool = False  # run ``arguments`` in the warm interpreter instead of executing ``argv``
    arguments: tuple[str, ...] = ()
    module: bool = False
    unbuffered: bool = False
    python_path: tuple[str, ...] = ()
    threads: int = 1


class Reaper:
    """Waits for all children of the agent, those that it adopts too."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._early: dict[int, int] = {}  # ended before anyone asked
        self.pending = 0  # spawns under way, whose process ids are not known yet

    def start(self) -> None:
        """Begin to listen; needs a running loop in the main thread."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    def stop(self) -> None:
        """Stop listening."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)

    def reap(self) -> None:
        """Collect all children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            if (future := self._waiting.pop(pid, None)) and not future.done():
                future.set_result(code)
            elif self.pending:
                self._early[pid] = code

    def exit_of(self, pid: int) -> asyncio.Future[int]:
        """The exit code of a child, negative for a signal, as a future."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if pid in self._early:
            future.set_result(self._early.pop(pid))
        else:
            self._waiting[pid] = future
        return future

    def known(self) -> set[int]:
        """Children that somebody waits for."""
        return set(self._waiting)

    def done_spawning(self) -> None:
        """One spawn fewer is under way."""
        self.pending -= 1
        if not self.pending:
            self._early.clear()


class Zygote:
    """A running zygote, seen from the agent. ``warm``: it has torch loaded, once ``ready`` is set.

    ``spares``: workers to be forked in advance; 0 makes it a small one that imports nothing.
    """

    def __init__(self, agent: str, reaper: Reaper, spares: int = 0) -> None:
        self._reaper, self._spares, self.warm = reaper, spares, spares > 0
        self._sock: socket.socket | None = None
        # No PYTHON* setting of the operator's may show in a worker. One thread, since a fork keeps only one;
        # CUDA is not touched, since it does not survive a fork.
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.env |= {"OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1", ZYGOTE_MARK: agent}
        self.pid = 0
        self.modules: dict[str, str] = {}  # top-level modules that it has, and their files
        self.ready = asyncio.Event()
        self.failed: str | None = None  # why it will never be ready: torch is not installed
        self.gone: asyncio.Future[int] | None = None

    def start(self) -> None:
        """Start it; ``ready`` follows."""
        ours, theirs = socket.socketpair()
        argv = [sys.executable, str(ZYGOTE), str(theirs.fileno()), str(os.getpid())]
        self._reaper.pending += 1
        try:
            child = subprocess.Popen(
                [*argv, str(self._spares), " " * 400]
                if self.warm
                else argv,  # room for the workers' command lines
                env=self.env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.pid, self.gone = child.pid, self._reaper.exit_of(child.pid)
        finally:
            self._reaper.done_spawning()
        child.returncode = 0  # the reaper waits for it, not this object
        theirs.close()
        ours.setblocking(False)
        self._sock, self._buffer = ours, b""
        asyncio.get_running_loop().add_reader(ours, self._read)

    def _read(self) -> None:
        assert self._sock is not None
        try:
            part = self._sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self._buffer += part
        if not part:
            self._drop()
        elif self._buffer.endswith(b"\n"):
            answer = json.loads(self._buffer)
            self.modules, self.failed = answer["modules"], answer.get("error")
            if self.failed is None:
                self.ready.set()

    def _drop(self) -> None:
        self.ready.clear()
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
            self._sock = None

    def send(self, body: bytes, fds: list[int]) -> None:
        """Hand a request over.

        Raises:
            SpawnError: the zygote has gone.
        """
        if self._sock is None:
            raise SpawnError("the process that starts workers has gone")
        try:
            self._sock.setblocking(True)
            self._sock.settimeout(2.0)  # it reads at once, unless it is being ended
            socket.send_fds(self._sock, [len(body).to_bytes(4, "little")], fds)
            self._sock.sendall(body)
            self._sock.setblocking(False)
        except OSError as e:
            self._drop()
            raise SpawnError(f"the process that starts workers has gone: {e}") from e

    def stop(self) -> None:
        """End it; workers are not its children and live on."""
        self._drop()
        if self.gone is not None and not self.gone.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Process:
    """A child of the agent: its id, and its exit code to come (negative: a signal)."""

    def __init__(self, pid: int, exited: asyncio.Future[int]) -> None:
        self.pid, self.exited = pid, exited

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self.exited.result() if self.exited.done() else None


async def spawn(zygote: Zygote, reaper: Reaper, request: Request, terminal: int | None = None) -> Process:
    """Start a program; returns once it runs (executes, or is about to read the script's first line).

    Raises:
        SpawnError: it could not be started, or the zygote died over it.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    reaper.pending += 1
    try:
        try:
            zygote.send(msgspec.json.encode(request), [writing] if terminal is None else [writing, terminal])
        finally:
            os.close(writing)
        said = await _read_all(reading)
        lines = dict(line.split(" ", 1) for line in said.decode(errors="replace").splitlines() if " " in line)
        if "pid" not in lines:
            raise SpawnError("the process that starts workers died over a request")
        process = Process(int(lines["pid"]), reaper.exit_of(int(lines["pid"])))
    finally:
        os.close(reading)
        reaper.done_spawning()
    if "error" in lines:
        await process.exited
        raise SpawnError(lines["error"], fatal=True)
    return process


async def _read_all(fd: int) -> bytes:
    """What comes out of a pipe until its last writer has closed it."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    parts: list[bytes] = []
    os.set_blocking(fd, False)

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            part = os.read(fd, 4096)
            parts.append(part)
            if not part:
                done.set()

    loop.add_reader(fd, read)
    try:
        await done.wait()
    finally:
        loop.remove_reader(fd)
    return b"".join(parts)


# ---- listing and ending ----


def marked(prefix: str, key: str = MARK) -> set[int]:
    """Processes of this host whose environment sets ``key`` to ``prefix`` or something below it."""
    needle = f"{key}={prefix}".encode()
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
                if any(v == needle or v.startswith(needle + b"/") for v in environ):
                    found.add(int(name))
    return found - {os.getpid()}


def parents() -> dict[int, int]:
    """Parent of each process of this host that has not ended."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := read_stat(int(name))) and stat[0] not in "ZX":
            found[int(name)] = int(stat[1])
    return found


def descendants(roots: Iterable[int]) -> set[int]:
    """The living among ``roots``, and all that descend from them."""
    of = parents()
    children: dict[int, list[int]] = {}
    for pid, parent in of.items():
        children.setdefault(parent, []).append(pid)
    todo, found = [p for p in roots if p in of], set()
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo.extend(children.get(pid, ()))
    return found


def is_spare(pid: int) -> bool:
    """Whether a child of the agent is a warm worker that waits for its job."""
    try:
        return Path(f"/proc/{pid}/comm").read_text() == f"{SPARE}\n"
    except OSError:
        return False


def read_stat(pid: int) -> list[str] | None:
    """/proc/PID/stat from the state on: [0] state, [1] parent, [11], [12] CPU ticks; None: gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()
    except OSError:
        return None


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, all threads; 0 once it is gone."""
    stat = read_stat(pid)
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK") if stat else 0.0


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes. Some may have gone, some be another user's by now: listing tells."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


class Tree:
    """All processes of one attempt on this node.

    ``strays``: children of the agent that nobody knows; asked only where there are no cgroups, since there
    they may be a daemon of this attempt that has shed its marks.
    """

    def __init__(self, mark: str, cage: Cage, strays: Callable[[], set[int]], clock: Clock) -> None:
        self.mark, self._cage, self._strays, self._clock = mark, cage, strays, clock
        self.roots: list[Process] = []

    def members(self) -> set[int]:
        """Ids of all its living processes."""
        inside = self._cage.members()
        roots = {p.pid for p in self.roots if p.code is None}
        if inside is not None:
            return inside | roots
        return descendants(roots | marked(self.mark) | self._strays())

    def tell(self, number: int) -> None:
        """Send one signal to all; stopped ones are woken first unless they are to stop."""
        pids = self.members()
        if number != signal.SIGSTOP:
            self._cage.thaw()
            signal_all(pids, signal.SIGCONT)
        if number != signal.SIGCONT:
            signal_all(pids, number)

    async def end(self, timeout: float = KILL_TIMEOUT) -> set[int]:
        """SIGKILL all until listing proves that none is left. Returns those that would not die in time."""
        deadline = self._clock.now() + timeout
        while pids := self.members():
            if self._cage.freezes:
                self._cage.freeze()  # so that none forks behind the listing
                pids |= self.members()
            signal_all(pids, signal.SIGKILL)
            if self._cage.freezes:
                self._cage.thaw()
            await self._clock.sleep(0.002)
            if self._clock.now() > deadline:
                return self.members()
        while not self._cage.remove() and self._clock.now() < deadline:
            await self._clock.sleep(0.002)
        return set()


def nothing_left(tree: Tree) -> bool:
    """Whether listing shows no process of the attempt."""
    return not tree.members()
