"""``haibun up``: controller, API and local agents, from nothing to serving, and down again."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haibun import app as wiring
from haibun.core.events import Configured
from haibun.profile.throughput import ThroughputTable
from haibun.run.controller import Controller
from haibun.store import Store, StoreInUseError

DEFAULT_PORT = 7878
RESPAWN_AFTER = 1.0  # seconds between looks at the local agents; one that died is started again


class UpError(RuntimeError):
    """Haibun cannot come up; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What ``haibun up`` takes. ``port`` None: the one used before in this home, else 7878 or the next free one."""

    home: Path
    host: str = "127.0.0.1"
    port: int | None = None
    policy: str = "fifo"
    params: Mapping[str, Any] = field(default_factory=dict)
    database: str | None = None
    nodes: int = 1
    virtual_devices: int | None = None
    warm: bool = True
    agents: bool = True


def up(options: UpOptions) -> None:
    """Serve until told to stop (SIGINT or SIGTERM: jobs are saved and ended; they queue for the next time).

    Raises:
        UpError, StoreError, UnknownPolicyError: it cannot come up.
    """
    asyncio.run(serve(options))


def tell(words: str) -> None:
    """Say something to whoever started it."""
    print(words, flush=True)


async def serve(
    options: UpOptions, ready: asyncio.Event | None = None, say: Callable[[str], None] = tell
) -> None:
    """As ``up``, in a loop of the caller's; ``ready`` is set once requests are answered."""
    stages = wiring.make_stages(options.policy, options.params)
    home = _home(options.home)
    listener = _listen(options, home)
    try:
        store = _open(options, home)
    except BaseException:
        listener.close()
        raise
    port = listener.getsockname()[1]
    token = _token(home)
    wiring.prepare_kernels()
    config = Configured(0.0, options.policy, dict(options.params))
    controller = Controller(store, stages, config, home, ThroughputTable())
    await controller.start()
    url = f"http://{options.host}:{port}"
    _write_private(home / "server.json", json.dumps({"url": url, "pid": os.getpid(), "port": port}))
    agents = LocalAgents(options, home, port)
    stop = Stop()
    try:
        await _serve_http(
            controller, token, listener, agents if options.agents else None, stop, url, ready, say
        )
    finally:
        await controller.stop()
        (home / "server.json").unlink(missing_ok=True)


class Stop:
    """The wish to end, and how."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.keep_jobs = False

    def ask(self, keep_jobs: bool = False) -> None:
        """End soon."""
        self.keep_jobs = keep_jobs
        self.asked.set()


async def _serve_http(
    controller: Controller,
    token: str,
    listener: socket.socket,
    agents: LocalAgents | None,
    stop: Stop,
    url: str,
    ready: asyncio.Event | None,
    say: Callable[[str], None],
) -> None:
    import uvicorn

    from haibun.server.api import create_app

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # signals are ours: jobs must be saved before the server goes

    application = create_app(controller, token, on_shutdown=stop.ask)
    config = uvicorn.Config(
        application, log_level="warning", lifespan="off", ws="websockets-sansio", timeout_graceful_shutdown=2
    )
    server = Server(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop.ask)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    keeping = asyncio.create_task(agents.keep()) if agents is not None else None
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    say(f"Haibun is up: {url}  (policy {controller.state.config.policy}; Ctrl-C ends it)")
    if ready is not None:
        ready.set()
    await stop.asked.wait()
    say("Saving jobs and going down ..." if not stop.keep_jobs else "Going down; jobs go on ...")
    if keeping is not None:
        keeping.cancel()
    await controller.shutdown(stop.keep_jobs)
    server.should_exit = True
    await serving


class LocalAgents:
    """The agents of this host: processes of their own, which outlive the controller and are found again."""

    def __init__(self, options: UpOptions, home: Path, port: int) -> None:
        self._options, self._home, self._port = options, home, port
        self._names = [_node_name(i, options.nodes) for i in range(options.nodes)]
        self._mine: dict[str, subprocess.Popen[bytes]] = {}

    async def keep(self) -> None:
        """Start those that are not there; look again for ever."""
        while True:
            for name in self._names:
                child = self._mine.get(name)
                if child is not None and child.poll() is None:
                    continue
                if not _is_held(self._home / "agents" / name / "agent.lock"):
                    self._mine[name] = self._spawn(name)
            await asyncio.sleep(RESPAWN_AFTER)

    def _spawn(self, name: str) -> subprocess.Popen[bytes]:
        folder = self._home / "agents" / name
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            *(sys.executable, "-m", "haibun.run.agent"),
            *("--controller", f"ws://{self._options.host}:{self._port}/v1/agent"),
            *("--token-file", str(self._home / "token"), "--node", name, "--state", str(folder)),
        ]
        if self._options.virtual_devices is not None:
            command += ["--virtual-devices", str(self._options.virtual_devices)]
        if not self._options.warm:
            command.append("--no-warm")
        with open(folder / "agent.log", "ab") as log:
            return subprocess.Popen(  # the agent itself is spawned here, its workers in run/processes.py
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
            )


def _is_held(lock: Path) -> bool:
    """Whether a living agent holds its state folder."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _node_name(i: int, nodes: int) -> str:
    host = socket.gethostname().split(".")[0] or "node"
    return host if nodes == 1 else f"{host}-{i}"


def _home(home: Path) -> Path:
    try:
        home.mkdir(parents=True, exist_ok=True)
        os.chmod(home, 0o700)
    except OSError as e:
        raise UpError(f"the home folder {home} cannot be made: {e.strerror}; name another with --home") from e
    return home.resolve()


def _open(options: UpOptions, home: Path) -> Store:
    url = options.database or f"sqlite:///{home / 'haibun.db'}"
    try:
        return Store.open(url)
    except StoreInUseError as e:
        where = _written(home).get("url")
        at = f" at {where}" if where else ""
        raise UpError(f"Haibun is up already for this home{at}: {e}") from e


def _written(home: Path) -> dict[str, Any]:
    try:
        found = json.loads((home / "server.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _listen(options: UpOptions, home: Path) -> socket.socket:
    """A listening socket; agents that outlived a controller look for it at the port that it had."""
    chosen = options.port
    port_file = home / "port"
    if chosen is None and port_file.exists():
        with contextlib.suppress(ValueError, OSError):
            chosen = int(port_file.read_text())
    tries = [chosen] if chosen is not None else [DEFAULT_PORT, 0]
    error: OSError | None = None
    for port in tries:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.host, port))
            listener.listen(512)
        except OSError as e:
            listener.close()
            error = e
            continue
        listener.set_inheritable(False)
        _write_private(port_file, str(listener.getsockname()[1]))
        return listener
    where = _written(home).get("url")
    hint = (
        f"Haibun may be up already ({where})"
        if where
        else "name another with --port, or --port 0 for any free one"
    )
    raise UpError(f"port {chosen or DEFAULT_PORT} on {options.host} cannot be used: {error}; {hint}")


def _token(home: Path) -> str:
    path = home / "token"
    if not path.exists():
        _write_private(path, secrets.token_urlsafe(32))
    return path.read_text().strip()


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as f:
        f.write(text)
    os.replace(temporary, path)
