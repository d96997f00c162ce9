"""``haibun up``: controller, API and local agents, from nothing to serving, and down again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haibun import app as wiring
from haibun.core.events import Configured
from haibun.profile.throughput import ThroughputTable
from haibun.run.controller import Controller
from haibun.server.local_agents import LocalAgents
from haibun.store import Store, StoreError, StoreInUseError

DEFAULT_PORT = 7878


class UpError(RuntimeError):
    """Haibun cannot come up, or go on; the message says why and what to do."""


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
        UpError, StoreError, UnknownPolicyError: it cannot come up, or go on.
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
    with contextlib.ExitStack() as held:
        store = _open(options, home)
        held.callback(store.close)
        listener = held.enter_context(_listen(options, home))
        port = listener.getsockname()[1]
        _write_private(home / "port", str(port))
        token = _token(home)
        wiring.prepare_kernels(say)
        config = Configured(0.0, options.policy, dict(options.params))
        controller = Controller(store, stages, config, home, ThroughputTable())
        shown = f"[{options.host}]" if ":" in options.host else options.host
        stop = Stop()
        agents = _local_agents(options, home, f"ws://{shown}:{port}/v1/agent", say)
        async with _started(controller), _answering(controller, token, listener, stop) as serving:
            url = f"http://{shown}:{port}"
            about = {"url": url, "pid": os.getpid(), "port": port}
            _write_private(home / "server.json", json.dumps(about))
            held.callback((home / "server.json").unlink, missing_ok=True)
            say(f"Haibun is up: {url}  (policy {options.policy}; Ctrl-C ends it)")
            say(f"Logs: jobs in {home / 'jobs'}, agents in {home / 'agents'}")
            if ready is not None:
                ready.set()
            await _until_stopped(controller, agents, stop, serving, say)


class Stop:
    """The wish to end, and how. Asked a second time: at once, without waiting for jobs to save."""

    def __init__(self) -> None:
        self.asked, self.at_once = asyncio.Event(), asyncio.Event()
        self.keep_jobs = False

    def ask(self, keep_jobs: bool = False) -> None:
        """End soon."""
        if self.asked.is_set():
            self.at_once.set()
            return
        self.keep_jobs = keep_jobs
        self.asked.set()


@contextlib.asynccontextmanager
async def _started(controller: Controller) -> AsyncIterator[None]:
    try:
        await controller.start()
        yield
    finally:
        await controller.stop()


@contextlib.asynccontextmanager
async def _answering(
    controller: Controller, token: str, listener: socket.socket, stop: Stop
) -> AsyncIterator[asyncio.Task[None]]:
    """The HTTP server, answering from here to the end of the block; yields its task."""
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
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop.ask)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if serving.done():
                serving.result()
                raise UpError("the HTTP server did not start")
            await asyncio.sleep(0.01)
        yield serving
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)
        for number in numbers:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(number)


async def _until_stopped(
    controller: Controller,
    agents: LocalAgents | None,
    stop: Stop,
    serving: asyncio.Task[None],
    say: Callable[[str], None],
) -> None:
    """Keep the agents going until somebody asks for the end, or something fails."""
    keeping = asyncio.create_task(agents.keep()) if agents is not None else None
    asked, failed = asyncio.create_task(stop.asked.wait()), asyncio.create_task(controller.failed.wait())
    try:
        await asyncio.wait({asked, failed, serving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (keeping, asked, failed):
            if task is not None:
                task.cancel()
    if controller.error is not None:
        raise _fatal(controller.error) from controller.error
    if not stop.asked.is_set():
        raise UpError("the HTTP server ended by itself; running jobs go on: start Haibun again")
    say("Saving jobs and going down ..." if not stop.keep_jobs else "Going down; jobs go on ...")
    ending = asyncio.create_task(controller.shutdown(stop.keep_jobs))
    at_once = asyncio.create_task(stop.at_once.wait())
    await asyncio.wait({ending, at_once}, return_when=asyncio.FIRST_COMPLETED)
    for task in (ending, at_once):
        task.cancel()


def _fatal(error: BaseException) -> Exception:
    """What to end with when the controller cannot go on."""
    if isinstance(error, StoreError):
        return UpError(f"Haibun cannot go on: {error}. Running jobs go on; the next start finds them")
    what = f"{type(error).__name__}: {error}"
    return UpError(f"Haibun ended over a fault of its own ({what}). Running jobs go on: start it again")


def _local_agents(options: UpOptions, home: Path, url: str, say: Callable[[str], None]) -> LocalAgents | None:
    if not options.agents:
        return None
    extra = [] if options.warm else ["--no-warm"]
    if options.virtual_devices is not None:
        extra += ["--virtual-devices", str(options.virtual_devices)]
    return LocalAgents(home, options.nodes, url, extra, say)


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
        where = running_at(home)
        at = f" at {where}" if where else ""
        raise UpError(
            f"Haibun is up already for this home{at}: {e}; `haibun down` ends it, --home names another"
        ) from e


def running_at(home: Path) -> str | None:
    """The URL of the server that runs for a home, if one does."""
    try:
        found = json.loads((home / "server.json").read_text())
        os.kill(int(found["pid"]), 0)
        return str(found["url"])
    except PermissionError:  # another user's process: it lives
        return str(found["url"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _listen(options: UpOptions, home: Path) -> socket.socket:
    """A listening socket; agents that outlived a controller look for it at the port that it had."""
    chosen = options.port
    if chosen is None:
        with contextlib.suppress(ValueError, OSError):
            chosen = int((home / "port").read_text())
    tries = [chosen] if chosen is not None else [DEFAULT_PORT, 0]
    error: OSError | None = None
    for port in tries:
        listener = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it. asyncio sets it only on sockets that it made itself; without it each answer, in two
        # writes, waits 40 ms for a delayed acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            listener.bind((options.host, port))
            listener.listen(512)
        except OSError as e:
            listener.close()
            error = e
            continue
        listener.set_inheritable(False)
        return listener
    port = DEFAULT_PORT if chosen is None else chosen
    raise UpError(
        f"port {port} on {options.host} cannot be used: {error.strerror if error else ''}; "
        "name another with --port, or --port 0 for any free one"
    )


def _token(home: Path) -> str:
    path = home / "token"
    with contextlib.suppress(FileNotFoundError):
        if (token := path.read_text().strip()) != "":
            return token
    token = secrets.token_urlsafe(32)
    _write_private(path, token)
    return token


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as f:
            f.write(text)
        os.replace(temporary, path)
    except OSError as e:
        raise UpError(f"{path} cannot be written: {e.strerror}") from e
