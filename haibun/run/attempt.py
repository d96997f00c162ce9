"""The life of one attempt on this node: set up, start, watch, hold, end, and prove that nothing is left of
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from haibun.core.events import AnyEvent, AttemptHeld, AttemptStarted
from haibun.core.vocabulary import NodeName, StopMode
from haibun.run import ending, environment, logs
from haibun.run.clock import Clock
from haibun.run.devices import LocalDevice
from haibun.run.ending import Exit, Memory, Standing
from haibun.run.isolation import Cages
from haibun.run.processes import (
    Process,
    Reaper,
    Request,
    SpawnError,
    Tree,
    cpu_seconds,
    descendants,
    read_stat,
)
from haibun.run.progress import Progress
from haibun.run.protocol import AttemptStatus, Continue, Hold, Launch, Order, Stop
from haibun.run.warm import Launcher, Script, python_command
from haibun.run.watch import GangWatch
from haibun.train import fence
from haibun.train.board import Board, Command, Phase

POLL = 0.1  # seconds between looks at the board; one costs 0.1 ms
CHORES = 0.5  # seconds between looks at log sizes, memory, and at the processes of workers that are late
FREEZE_LIMIT = 0.05  # seconds that a rotation waits for the writer to stand still


@dataclass(frozen=True, slots=True)
class Host:
    """What the attempts of a node share."""

    agent: str
    node: NodeName
    devices: tuple[LocalDevice, ...]
    boards: Path
    launcher: Launcher
    reaper: Reaper
    cages: Cages
    clock: Clock
    say: Callable[[str], None]
    strays: Callable[[], set[int]]


class Attempt:
    """One attempt. ``run`` is its life; ``command`` may be called at any time; events go to ``emit``."""

    def __init__(self, launch: Launch, host: Host, emit: Callable[[AnyEvent], None]) -> None:
        self.launch, self._host, self._emit, self._clock = launch, host, emit, host.clock
        self._received = host.clock.now()
        self.state = "starting"
        self.devices = tuple(host.devices[d] for d in launch.devices)
        self.limits = environment.limits(launch, self.devices)
        self.cage = host.cages.open(f"{launch.job}.{launch.epoch}", self.limits)
        self.tree = Tree(environment.mark(host.agent, launch), self.cage, host.strays, self._clock)
        self._board_path = host.boards / f"{launch.job}.{launch.epoch}.board"
        board = Board.create(self._board_path, launch.processes, launch.epoch)
        self.progress = Progress(board, launch, self._clock, self._received)
        ranks = [launch.first_rank + i for i in range(launch.processes)]
        self._watch = GangWatch(ranks, launch.hang_after, self._received)
        self.workers: list[Process] = []
        self.env: dict[str, str] = {}
        self._exits: list[int] = []  # local ranks, in the order of their ends
        self._commands: deque[Stop | Hold | Continue] = deque()
        self._wake = asyncio.Event()
        self._stop: Stop | None = None
        self._kill_at: float | None = None
        self._forced = False
        self._holding: int | None = None  # the board's command to be obeyed; 0: the freezer
        self._chores_at = 0.0

    # ---- from outside ----

    def command(self, message: Stop | Hold | Continue) -> None:
        """Take a command; it is carried out at once."""
        self._commands.append(message)
        self._wake.set()

    def mirror(self, order: Order) -> None:
        """Write what rank 0 decided on another node's board onto this one."""
        h = self.progress.board.header
        if order.number != h.stop_no:
            h.stop_at, h.stop_seq, h.stop_command = order.at, order.seq, order.command
            h.stop_no = order.number

    def status(self) -> AttemptStatus:
        """Where it stands."""
        p, h = self.progress, self.progress.board.header
        leads = self.launch.nodes > 1 and self.launch.node_rank == 0 and h.stop_no
        return AttemptStatus(
            self.launch.job,
            self.launch.epoch,
            self.state,
            step=p.step,
            durable=p.durable,
            total=p.total,
            rate=p.rate.value,
            metrics=p.metrics,
            devices=self.launch.devices,
            pids=tuple(w.pid for w in self.workers),
            first_step_after=p.first_step_after,
            stragglers=self._watch.stragglers(),
            order=Order(self.launch.job, self.launch.epoch, h.stop_no, h.stop_command, h.stop_at, h.stop_seq)
            if leads
            else None,
        )

    async def run(self) -> None:
        """Live from start to end, and report how it ended once nothing is left of it."""
        try:
            event = await self._live()
        except (
            Exception
        ) as e:  # ours or the host's fault (a full disk, say): the job must not be lost over it
            event = self._failed(f"{type(e).__name__}: {e}")
        while left := await self.tree.end():
            self._host.say(
                f"{self.launch.job}: processes {sorted(left)} do not die; their devices stay taken"
            )
        self._board_path.unlink(missing_ok=True)
        self._emit(event)

    # ---- starting ----

    async def _live(self) -> ending.EndEvent:
        try:
            self._prepare()
            if self.launch.setup is not None and (code := await self._set_up()) != 0:
                if code is None:
                    return ending.stopped(self._clock.wall(), self._standing())
                words = logs.last_words(self._log("setup"))
                return self._failed(f"setup exited with code {code}" + (f": {words}" if words else ""))
            await self._start_workers()
        except SpawnError as e:
            return self._failed(str(e), fatal=e.fatal)
        except (OSError, fence.StaleAttemptError, RuntimeError) as e:
            return self._failed(str(e))
        self.state = "running"
        self._emit(AttemptStarted(self._clock.wall(), self.launch.job, self.launch.epoch))
        return await self._watch_over()

    def _prepare(self) -> None:
        """Folders, fence, environment."""
        if not Path(self.launch.cwd).is_dir():
            raise SpawnError(
                f"the folder {self.launch.cwd} does not exist on node {self._host.node}", fatal=True
            )
        logs.epoch_folder(self.launch.logs, self.launch.epoch).mkdir(parents=True, exist_ok=True)
        fence.advance(Path(self.launch.checkpoints), self.launch.epoch)
        port = self.launch.master_port or environment.free_port()
        self.env = environment.common(self.launch, self._host.agent, self.devices, port)

    def _log(self, name: str) -> Path:
        return logs.epoch_folder(self.launch.logs, self.launch.epoch) / f"{name}.log"

    async def _set_up(self) -> int | None:
        """Run the setup script; returns its exit code, None if a stop came in between."""
        argv = ("/bin/sh", "-c", self.launch.setup or "")
        request = Request(
            argv, self.env, self.launch.cwd, str(self._log("setup")), self.cage.joins(None), self.limits.cpus
        )
        process = await self._host.launcher.launch(request)
        self.tree.roots.append(process)
        process.exited.add_done_callback(lambda _: self._wake.set())
        while process.code is None:
            await self._clock.wait(self._wake, 3600.0)
            self._wake.clear()
            if any(isinstance(c, Stop) for c in self._commands):
                return None
        return process.code

    async def _start_workers(self) -> None:
        """Start all ranks; none or all of them run afterwards, since a failure ends the attempt."""
        argv, script = self.launch.argv, python_command(self.launch.argv, self.launch.run)
        if self.launch.setup is not None:
            script = None  # it may have changed what the interpreter imports
        if argv is None:
            argv = ("/bin/sh", "-c", self.launch.run or "")
        starts = (self._start_worker(i, argv, script) for i in range(self.launch.processes))
        started = await asyncio.gather(*starts, return_exceptions=True)
        self.workers = [p for p in started if isinstance(p, Process)]
        if problem := next((p for p in started if isinstance(p, BaseException)), None):
            raise problem
        for i, worker in enumerate(self.workers):
            worker.exited.add_done_callback(lambda _, i=i: self._exited(i))  # type: ignore[misc]

    async def _start_worker(self, local: int, argv: tuple[str, ...], script: Script | None) -> Process:
        limits = self.limits.workers[local]
        threads = environment.threads(self.launch, limits)
        env = environment.of_worker(self.env, self.launch, local, threads, self._board_path)
        log = self._log(f"rank-{self.launch.first_rank + local}")
        request = Request(argv, env, self.launch.cwd, str(log), self.cage.joins(local), limits.cpus)
        process = await self._host.launcher.launch(request, script)
        self.tree.roots.append(process)
        return process

    def _exited(self, local: int) -> None:
        self._exits.append(local)
        self._wake.set()

    # ---- running ----

    async def _watch_over(self) -> ending.EndEvent:
        """Until all workers have ended, or one has failed, hangs, or is stopped."""
        while True:
            if (event := self._end()) is not None:
                return event
            while self._commands:
                self._obey(self._commands.popleft())
            if self._kill_at is not None and self._clock.now() >= self._kill_at:
                self._forced = True
                return ending.stopped(self._clock.wall(), self._standing())
            if (why := self._look()) is not None:
                return self._failed(why)
            pause = POLL if self._kill_at is None else min(POLL, self._kill_at - self._clock.now())
            await self._clock.wait(self._wake, pause)
            self._wake.clear()

    def _end(self) -> ending.EndEvent | None:
        """The event, if it has ended: all are gone, or one has failed and takes the others with it."""
        exits = [self._exit(i) for i in self._exits]
        if len(exits) < len(self.workers) and (self._stop or all(e.code == 0 for e in exits)):
            return None
        memory = Memory(self.limits.memory, self.cage.oom_kills(), self.cage.binds_memory)
        asked = self._stop is not None
        return ending.ended(self._clock.wall(), self._standing(), exits, memory, asked, self._forced)

    def _exit(self, local: int) -> Exit:
        rank, code = self.launch.first_rank + local, self.workers[local].code
        assert code is not None
        words = logs.last_words(self._log(f"rank-{rank}")) if code else ""
        attached = self.progress.attached(local)
        return Exit(rank, code, words, yielded=attached and self.progress.phase(local) == Phase.YIELDED)

    def _look(self) -> str | None:
        """Look at board and processes; returns the cause of a failure that no exit code shows."""
        if (event := self.progress.look()) is not None:
            self._emit(event)
        if self._holding is not None:
            self._look_for_hold(self._holding)
        now = self._clock.now()
        chores = now >= self._chores_at
        if chores:
            self._chores_at = now + CHORES
            self._rotate_logs()
            if (why := self._over_memory()) is not None:
                return why
        if self.state == "running" and self.progress.any_attached:
            self._see(now, chores and self._watch.suspicious(now))
            return self._watch.verdict(now)
        return None

    def _see(self, now: float, closely: bool) -> None:
        for i, (worker, watch) in enumerate(zip(self.workers, self._watch.workers, strict=True)):
            if not self.progress.attached(i) or worker.code is not None:
                watch.resume(now)
            elif closely:
                stat = read_stat(worker.pid)
                stopped = stat is not None and stat[0] == "T"
                watch.see(self.progress.sight(i, cpu_seconds(worker.pid), stopped), now)
            else:
                watch.see(self.progress.sight(i, stopped=watch.stopped_since is not None), now)

    def _over_memory(self) -> str | None:
        """Where no cgroup binds memory, the sum over the process tree does."""
        if self.cage.binds_memory or not self.limits.memory:
            return None
        used = 0
        for pid in descendants(w.pid for w in self.workers):
            with contextlib.suppress(psutil.Error):
                used += psutil.Process(pid).memory_info().rss
        if used <= self.limits.memory:
            return None
        return f"out of memory: {ending.size(used)} used, the limit is {ending.size(self.limits.memory)}"

    def _rotate_logs(self) -> None:
        for i in range(len(self.workers)):
            with contextlib.suppress(OSError):  # a full disk: the log grows on, the job goes on
                logs.rotate(self._log(f"rank-{self.launch.first_rank + i}"), still=self._still)

    @contextlib.contextmanager
    def _still(self) -> Iterator[None]:
        if not self.cage.freezes or self.state != "running":
            yield
            return
        self.cage.freeze()
        until = self._clock.now() + FREEZE_LIMIT
        try:
            while not self.cage.frozen() and self._clock.now() < until:
                pass
            yield
        finally:
            self.cage.thaw()

    # ---- commands ----

    def _obey(self, message: Stop | Hold | Continue) -> None:
        match message:
            case Stop():
                self._begin_stop(message)
            case Hold() if self.state == "running" and self._holding is None:
                self._begin_hold()
            case Continue() if self.state == "held" or self._holding is not None:
                self._go_on()

    def _begin_stop(self, stop: Stop) -> None:
        """Tell the workers, and set the time at which they are killed."""
        now = self._clock.now()
        first, self._stop = self._stop is None, self._stop or stop
        grace = 0.0 if stop.mode == StopMode.KILL else stop.grace
        self._kill_at = min(now + grace, self._kill_at if self._kill_at is not None else now + grace)
        self.state, self._holding = "stopping", None
        if stop.mode == StopMode.KILL or not first:
            return
        if self.progress.any_attached:
            self.cage.thaw()
            self.progress.ask(Command.YIELD, grace)
        else:
            self._forced = True
            self.tree.tell(signal.SIGTERM)

    def _begin_hold(self) -> None:
        if self.progress.any_attached:
            self._holding = self.progress.ask(Command.HOLD)
        else:
            self._holding = 0
            if self.cage.freezes:
                self.cage.freeze()
            else:
                self.tree.tell(signal.SIGSTOP)

    def _look_for_hold(self, sequence: int) -> None:
        if sequence:
            held = self.progress.obeyed(sequence, Phase.HELD)
        else:
            held = self.cage.frozen() if self.cage.freezes else True
        if held:
            self._holding, self.state = None, "held"
            self.progress.rate.pause()
            self._emit(
                AttemptHeld(self._clock.wall(), self.launch.job, self.launch.epoch, self.progress.step)
            )

    def _go_on(self) -> None:
        if self.progress.any_attached:
            self.progress.ask(Command.RUN)
        else:
            self.tree.tell(signal.SIGCONT)
        self._holding, self.state = None, "running"
        self.progress.rate.pause()
        self._watch.resume(self._clock.now())
        self._emit(AttemptStarted(self._clock.wall(), self.launch.job, self.launch.epoch))

    # ---- words ----

    def _standing(self) -> Standing:
        p = self.progress
        step = p.step if p.any_attached else self.launch.durable
        return Standing(self.launch.job, self.launch.epoch, self._host.node, step, p.durable, p.any_attached)

    def _failed(self, why: str, fatal: bool = False) -> ending.EndEvent:
        return ending.failed(self._clock.wall(), self._standing(), why, fatal)
