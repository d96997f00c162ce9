"""The node agent: obeys the controller, runs the attempts of its node, and reports.

``python -m haibun.run.agent --controller ws://HOST:PORT --token-file F --node NAME --state DIR``
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import uuid
from pathlib import Path

import psutil

from haibun.core.events import AnyEvent, AttemptFailed, AttemptStopped, AttemptSucceeded
from haibun.core.vocabulary import JobId, StopMode
from haibun.run import tenure
from haibun.run.attempt import Attempt, Host
from haibun.run.clock import Clock, RealClock
from haibun.run.devices import Inventory, NvmlProbe, discover
from haibun.run.ending import EndEvent
from haibun.run.isolation import Cages, OpenCages, detect
from haibun.run.link import Link, RefusedError
from haibun.run.processes import Reaper, is_spare, marked, parents
from haibun.run.protocol import (
    AttemptStatus,
    Beat,
    Continue,
    Hello,
    Hold,
    Launch,
    Order,
    Shutdown,
    Start,
    Stop,
    ToAgent,
    Welcome,
)
from haibun.run.terminal import Place, TerminalService
from haibun.run.usage import Usage
from haibun.run.warm import Launcher

EXIT_ERROR, EXIT_REFUSED = 1, 3
LAST_WORDS = 3.0  # seconds at the end for the controller to acknowledge the last reports


def say(what: str) -> None:
    """Tell the operator."""
    print(f"haibun agent: {what}", file=sys.stderr, flush=True)


class Agent:
    """The attempts of one node. Everything runs in one loop; processes are children of this process."""

    def __init__(
        self,
        inventory: Inventory,
        held: tenure.Tenure,
        cages: Cages,
        controller: str,
        token_file: Path | None,
        clock: Clock | None = None,
        warm: bool = True,
    ) -> None:
        self.inventory, self._held, self._cages = inventory, held, cages
        self._clock = clock or RealClock()
        self.node, self.boot = inventory.node.name, uuid.uuid4().hex
        self.reaper = Reaper()
        self.launcher = Launcher(
            held.agent, self.reaper, self._clock, say, len(inventory.devices) if warm else 0
        )
        self._host = Host(
            held.agent,
            self.node,
            inventory.devices,
            held.boards,
            self.launcher,
            self.reaper,
            cages,
            self._clock,
            say,
            self.strays,
        )
        self.link = Link(controller, token_file, self._clock, self._hello, self._beat, self.obey, say)
        self.terminals = TerminalService(held.folder / "agent.sock", self.launcher, self._place_of)
        self._usage = Usage(self._clock, NvmlProbe() if inventory.node.devices[0].type != "cpu" else None)
        self.attempts: dict[JobId, Attempt] = {}
        self._lives: dict[JobId, asyncio.Task[None]] = {}
        self._waiting: dict[JobId, Launch] = {}  # the former attempt is still being ended
        self._ended: dict[JobId, EndEvent] = {}  # how the last attempt here ended
        self._over = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until told to shut down.

        Raises:
            RefusedError: the controller does not want this agent.
        """
        loop = asyncio.get_running_loop()
        self.reaper.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.shut_down)
        self.launcher.start()
        await self.terminals.start()
        line, over = asyncio.create_task(self.link.run()), asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait((line, over), return_when=asyncio.FIRST_COMPLETED)
            if line.done():
                line.result()
        finally:
            await self._end_all(0.0)
            await self.link.close()
            line.cancel()
            over.cancel()
            await asyncio.gather(line, over, return_exceptions=True)
            await self.terminals.stop()
            await self.launcher.close()
            self.reaper.stop()
            self._cages.close()

    # ---- commands ----

    def obey(self, message: ToAgent) -> None:
        """Carry out one message of the controller, under the rules on epochs in ``protocol``."""
        match message:
            case Welcome(keep=keep):
                for job, attempt in self.attempts.items():
                    if (job, attempt.launch.epoch) not in keep:
                        attempt.command(Stop(job, attempt.launch.epoch, StopMode.KILL))
            case Start(launch=launch):
                self._start(launch)
            case Stop() | Hold() | Continue():
                self._command(message)
            case Order(job=job, epoch=epoch):
                if (found := self.attempts.get(job)) and found.launch.epoch == epoch:
                    found.mirror(message)
            case Shutdown(grace=grace):
                self.shut_down(grace)
            case _:
                pass

    def _start(self, launch: Launch) -> None:
        if self._ending is not None or launch.epoch <= self._latest_epoch(launch.job):
            return  # a repeat, or older than what is here
        if (problem := self._problem(launch)) is not None:
            self._emit(
                AttemptFailed(
                    self._clock.wall(), launch.job, launch.epoch, problem, node=self.node, fatal=True
                )
            )
            return
        if (former := self.attempts.get(launch.job)) is not None:
            self._waiting[launch.job] = launch
            former.command(Stop(launch.job, former.launch.epoch, StopMode.KILL))
            return
        try:
            attempt = Attempt(launch, self._host, self._emit)
        except (OSError, ValueError) as e:  # no room for a board, no cgroup to be made
            self._emit(AttemptFailed(self._clock.wall(), launch.job, launch.epoch, f"{e}", node=self.node))
            return
        self.attempts[launch.job] = attempt
        life = self._lives[launch.job] = asyncio.create_task(attempt.run())
        life.add_done_callback(lambda _: self._done(launch.job))

    def _latest_epoch(self, job: JobId) -> int:
        epochs = [self._waiting[job].epoch] if job in self._waiting else []
        epochs += [self.attempts[job].launch.epoch] if job in self.attempts else []
        epochs += [self._ended[job].epoch] if job in self._ended else []
        return max(epochs, default=-1)

    def _problem(self, launch: Launch) -> str | None:
        have = len(self.inventory.devices)
        if not launch.devices or not all(0 <= d < have for d in launch.devices):
            return f"node {self.node} has devices 0 to {have - 1}, not {list(launch.devices)}"
        if launch.processes < 1:
            return f"{launch.processes} processes cannot be started"
        if launch.run is None and not launch.argv:
            return "there is no command to run"
        return None

    def _done(self, job: JobId) -> None:
        del self.attempts[job], self._lives[job]
        if (launch := self._waiting.pop(job, None)) is not None:
            self._start(launch)

    def _command(self, message: Stop | Hold | Continue) -> None:
        job, latest = message.job, self._latest_epoch(message.job)
        if message.epoch < latest:
            return
        attempt = self.attempts.get(job)
        if attempt is not None and attempt.launch.epoch == message.epoch:
            attempt.command(message)
            return
        waiting = self._waiting.get(job)
        if waiting is not None and isinstance(message, Stop):
            del self._waiting[job]
        ended = self._ended.get(job)
        if ended is not None and ended.epoch == message.epoch:
            self._emit(ended)  # it has not heard, or the two crossed: the same answer again
        elif waiting is None or isinstance(message, Stop):
            self._emit(AttemptStopped(self._clock.wall(), job, message.epoch, step=0.0, durable=0.0))

    def _emit(self, event: AnyEvent) -> None:
        if isinstance(event, AttemptStopped | AttemptSucceeded | AttemptFailed):
            self._ended[event.job] = event
        self.link.report(event)

    # ---- what the controller sees ----

    def _statuses(self) -> tuple[AttemptStatus, ...]:
        return tuple(a.status() for a in self.attempts.values())

    def _hello(self) -> Hello:
        return Hello(self.inventory.node, self.boot, self._statuses())

    def _beat(self) -> Beat:
        cpu, memory, devices = self._usage.measure(self.inventory.devices, self.attempts.values())
        return Beat(self.node, self._statuses(), cpu, memory, devices)

    # ---- helpers of the attempts ----

    def strays(self) -> set[int]:
        """Children of this process that nobody waits for: daemons of attempts, adopted, without a mark."""
        if self.reaper.pending:
            return set()  # one of them may be a worker whose process id is not known yet
        me = os.getpid()
        adopted = {pid for pid, parent in parents().items() if parent == me}
        strange = adopted - self.reaper.known() - self.launcher.zygotes - marked(self._held.agent)
        return {pid for pid in strange if not is_spare(pid)}

    def _place_of(self, job: JobId) -> Place | None:
        attempt = self.attempts.get(job)
        if attempt is None or not attempt.env:
            return None
        return Place(attempt.env, attempt.launch.cwd, attempt.cage.joins(0), attempt.limits.workers[0].cpus)

    # ---- the end ----

    def shut_down(self, grace: float = 10.0) -> None:
        """End all attempts, attached ones with a checkpoint, then the agent. The second time: at once."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._shut_down(grace))
            return
        for job, attempt in self.attempts.items():
            attempt.command(Stop(job, attempt.launch.epoch, StopMode.KILL))

    async def _shut_down(self, grace: float) -> None:
        await self._end_all(grace)
        until = self._clock.now() + LAST_WORDS
        while self.link.connected and not self.link.settled and self._clock.now() < until:
            await self._clock.sleep(0.02)
        self._over.set()

    async def _end_all(self, grace: float) -> None:
        self._waiting.clear()
        mode = StopMode.CHECKPOINT if grace > 0 else StopMode.KILL
        for job, attempt in self.attempts.items():
            attempt.command(Stop(job, attempt.launch.epoch, mode, grace))
        await asyncio.gather(*self._lives.values(), return_exceptions=True)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m haibun.run.agent", description=(__doc__ or "").splitlines()[0]
    )
    p.add_argument("--controller", required=True, metavar="URL", help="ws://HOST:PORT of the controller")
    p.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file with the token; read at each connect"
    )
    p.add_argument("--node", required=True, metavar="NAME", help="name of this node")
    p.add_argument("--state", required=True, type=Path, metavar="DIR", help="folder of this agent alone")
    p.add_argument("--virtual-devices", type=int, metavar="N", help="cut the CPUs into N devices")
    p.add_argument("--site", default="default", help="data centre of this node")
    p.add_argument("--no-warm", action="store_true", help="start every worker cold")
    p.add_argument("--no-cgroups", action="store_true", help="bind workers by CPU affinity alone")
    return p.parse_args(argv)


async def serve(options: argparse.Namespace) -> int:
    """Take the state folder, clean up, serve; returns the exit code."""
    try:
        held = tenure.take(options.state)
    except tenure.TenureError as e:
        say(str(e))
        return EXIT_ERROR
    try:
        mask = os.environ.get("CUDA_VISIBLE_DEVICES")
        inventory = discover(options.node, virtual=options.virtual_devices, site=options.site, mask=mask)
        cages = OpenCages("--no-cgroups") if options.no_cgroups else detect(held.agent)
        for note in cages.notes:
            say(note)
        if swept := tenure.sweep(held, cages):
            say(f"ended {swept} processes that a former agent had left")
        psutil.cpu_percent()
        agent = Agent(
            inventory, held, cages, options.controller, options.token_file, warm=not options.no_warm
        )
        tenure.sign(held, agent.node, agent.boot, cages)
        await agent.run()
    except RefusedError as e:
        say(f"the controller refused this agent: {e}")
        return EXIT_REFUSED
    except (tenure.TenureError, ValueError, OSError) as e:
        say(str(e))
        return EXIT_ERROR
    finally:
        held.release()
    return 0


def main() -> None:
    """Run the agent."""
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(serve(parse())))


if __name__ == "__main__":
    main()
