"""The controller's side of the agents: who is connected, what they are told, and what is when they come back.

When an agent says hello, what it has is held against what the journal says it should have:

| the State says          | the agent has it       | the agent does not                                          |
|-------------------------|------------------------|-------------------------------------------------------------|
| starting                | it has started: so say | the order was lost: start it (a repeat is passed over)      |
| running, paused         | keep it                | its end is on its way: wait GRACE, then it is taken as stopped |
| stopping                | stop it again          | stop it again: the agent answers for what it no longer has  |
| nothing, another epoch  | the agent ends it      |                                                             |
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from haibun.core.actions import Action, ContinueAttempt, HoldAttempt, StartAttempt, StopAttempt
from haibun.core.events import (
    AnyEvent,
    AttemptFailed,
    AttemptStarted,
    AttemptStopped,
    NodeJoined,
    NodeLost,
)
from haibun.core.fleet import Health
from haibun.core.state import State
from haibun.core.vocabulary import PAUSED, RUNNING, STARTING, STOPPING, JobId, Node, NodeName, StopMode
from haibun.run.clock import Clock
from haibun.run.gang import Gang
from haibun.run.launching import Folders, launches
from haibun.run.ledger import Ledger
from haibun.run.protocol import (
    PROTOCOL_VERSION,
    Ack,
    AttemptStatus,
    Beat,
    Continue,
    Hello,
    Hold,
    Message,
    Order,
    Refused,
    Report,
    Shutdown,
    Start,
    Stop,
    Welcome,
    from_agent,
    pack,
)
from haibun.spec.job import JobSpec

log = logging.getLogger("haibun.agents")

BEAT_EVERY = 0.5  # seconds
LEASE = 10.0  # seconds of silence after which a lease is missed: an agent reconnects within five
LEASES_MISSED = 3  # before a node is declared lost: one lost call is no failure
GRACE = 5.0  # seconds in which the end of an attempt that an agent no longer has must have been reported
STOP_GRACE = 15.0  # seconds from notice to SIGKILL: room to finish a step and save


class Channel(Protocol):
    """One connection to an agent."""

    async def recv(self) -> bytes: ...

    async def send(self, frame: bytes) -> None: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Line:
    """What is known of one agent. ``heard`` is the time of its last word."""

    node: NodeName
    heard: float
    boot: str = ""
    channel: Channel | None = None
    address: str | None = None
    statuses: dict[JobId, AttemptStatus] = field(default_factory=dict)
    beat: Beat | None = None
    missing_since: dict[tuple[JobId, int], float] = field(default_factory=dict)
    queue: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)


class Agents:
    """All agents, and the gangs that they run."""

    def __init__(
        self,
        state: State,
        ledger: Ledger,
        folders: Folders,
        spec_of: Callable[[JobId], JobSpec | None],
        clock: Clock,
    ) -> None:
        self._state, self._ledger, self._folders = state, ledger, folders
        self._spec_of, self._clock = spec_of, clock
        self.lines: dict[NodeName, Line] = {}
        self._gangs: dict[JobId, Gang] = {}
        self._orders: dict[JobId, Order] = {}
        now = clock.wall()
        for name in state.fleet.names.names:
            self.lines[name] = Line(name, now)

    # --- actions ---------------------------------------------------------------------------------------------------

    def act(self, actions: Iterable[Action]) -> None:
        """Tell agents what to do. What a disconnected one misses is made good when it says hello."""
        for action in actions:
            if isinstance(action, StartAttempt):
                self._start(action)
            elif isinstance(action, StopAttempt):
                self._tell(action, Stop(action.job, action.epoch, action.mode, STOP_GRACE))
            elif isinstance(action, HoldAttempt):
                self._tell(action, Hold(action.job, action.epoch))
            elif isinstance(action, ContinueAttempt):
                self._tell(action, Continue(action.job, action.epoch))

    def shut_down(self, grace: float) -> None:
        """Ask all connected agents to end their attempts, with a checkpoint where they can, and themselves."""
        for line in self.lines.values():
            if line.channel is not None:
                line.queue.put_nowait(Shutdown(grace))

    @property
    def connected(self) -> int:
        """How many agents are connected."""
        return sum(line.channel is not None for line in self.lines.values())

    def _start(self, action: StartAttempt) -> None:
        spec = self._spec_of(action.job)
        if spec is None:
            cause = "its launch spec is not in the store"
            event = AttemptFailed(self._clock.wall(), action.job, action.epoch, cause, fatal=True)
            self._ledger.put([event])
            return
        addresses = {name: line.address for name, line in self.lines.items() if line.address}
        parts = launches(action, spec, self._state, self._folders, addresses)
        self._gangs[action.job] = Gang(action.job, action.epoch, tuple(parts))
        for node, launch in parts.items():
            self._send(node, Start(launch))

    def _tell(self, action: Action, message: Message) -> None:
        gang = self._gangs.get(action.job)
        if gang is not None and gang.epoch == action.epoch:
            for node in gang.living():
                self._send(node, message)
        else:  # an attempt that should not be: whoever has it ends it
            for node in self.lines:
                self._send(node, message)

    def _send(self, node: NodeName, message: Message) -> None:
        line = self.lines.get(node)
        if line is not None and line.channel is not None:
            line.queue.put_nowait(message)

    # --- connections -----------------------------------------------------------------------------------------------

    async def serve(self, channel: Channel, address: str | None = None) -> None:
        """Talk to one agent until its connection ends."""
        hello = from_agent(await channel.recv())
        if not isinstance(hello, Hello):
            raise msgspec.ValidationError("an agent must say hello first")
        refusal = await self._admit(hello)
        if refusal is not None:
            await channel.send(pack(Refused(refusal)))
            await channel.close()
            return
        line = self._take_line(hello, channel, address)
        writer = asyncio.create_task(self._write(line, channel, line.queue))
        try:
            line.queue.put_nowait(Welcome(self._wanted(line.node), BEAT_EVERY))
            self._reconcile(line, hello)
            while True:
                self._hear(line, from_agent(await channel.recv()))
        finally:
            writer.cancel()
            if line.channel is channel:
                line.channel = None
                line.heard = self._clock.wall()

    async def _admit(self, hello: Hello) -> str | None:
        """Let the node join where it must; returns why it cannot."""
        if hello.version != PROTOCOL_VERSION:
            return f"it speaks version {hello.version} of the protocol, the controller {PROTOCOL_VERSION}: upgrade it"
        node, fleet = hello.node, self._state.fleet
        line = self.lines.get(node.name)
        if line is not None and line.channel is not None and line.boot != hello.boot:
            return f"a node named {node.name} is connected already; give this one another name"
        number = fleet.names.get(node.name)
        if number is not None and fleet.descriptions[number].devices != node.devices:
            return f"node {node.name} came back with other devices than it had; give it a new name"
        await self._join(node, number, line, hello)
        return None

    async def _join(self, node: Node, number: int | None, line: Line | None, hello: Hello) -> None:
        now = self._clock.wall()
        if number is None:
            await self._ledger.put([NodeJoined(now, node)])
            return
        lost = self._state.fleet.nodes.health[number] == Health.LOST
        reborn = line is not None and line.boot not in ("", hello.boot)
        if lost:
            await self._ledger.put([NodeJoined(now, node)])
        elif reborn:  # its former life, and all that ran in it, is over
            await self._ledger.put([NodeLost(now, node.name), NodeJoined(now, node)])

    def _take_line(self, hello: Hello, channel: Channel, address: str | None) -> Line:
        line = self.lines.setdefault(hello.node.name, Line(hello.node.name, self._clock.wall()))
        line.boot, line.channel, line.address = hello.boot, channel, address
        line.queue = asyncio.Queue()
        line.heard = self._clock.wall()
        line.statuses = {status.job: status for status in hello.attempts}
        line.missing_since.clear()
        return line

    async def _write(self, line: Line, channel: Channel, queue: asyncio.Queue[Message]) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            while True:
                await channel.send(pack(await queue.get()))

    # --- what they say ---------------------------------------------------------------------------------------------

    def _hear(self, line: Line, message: Message) -> None:
        line.heard = self._clock.wall()
        if isinstance(message, Report):
            self._report(line, message)
        elif isinstance(message, Beat):
            line.beat = message
            line.statuses = {status.job: status for status in message.attempts}
            for status in message.attempts:
                if status.order is not None and self._orders.get(status.job) != status.order:
                    self._pass_on(line.node, status.order)
            self._look_for_missing(line)

    def _report(self, line: Line, report: Report) -> None:
        event = msgspec.structs.replace(report.event, at=self._clock.wall())
        done = self._ledger.put(self._merge(line.node, event))
        channel, seq = line.channel, report.seq

        def acknowledge(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and future.exception() is None and line.channel is channel:
                line.queue.put_nowait(Ack(seq))

        done.add_done_callback(acknowledge)

    def _merge(self, node: NodeName, event: AnyEvent) -> list[AnyEvent]:
        """What the core should hear; parts of gangs that a failure leaves alone are ended on the way."""
        job: JobId | None = getattr(event, "job", None)
        gang = self._gangs.get(job) if job is not None else None
        if gang is None or getattr(event, "epoch", None) != gang.epoch:
            return [event]
        merged = gang.merge(node, event)
        if gang.over:
            self._gangs.pop(gang.job, None)
            self._orders.pop(gang.job, None)
        elif gang.broken and isinstance(event, AttemptFailed | AttemptStopped):
            for other in gang.living():
                self._send(other, Stop(gang.job, gang.epoch, StopMode.KILL, STOP_GRACE))
        return [] if merged is None else [merged]

    def _pass_on(self, from_node: NodeName, order: Order) -> None:
        self._orders[order.job] = order
        gang = self._gangs.get(order.job)
        for node in gang.living() if gang is not None else ():
            if node != from_node:
                self._send(node, order)

    # --- what is, against what should be ---------------------------------------------------------------------------

    def _wanted(self, node: NodeName) -> tuple[tuple[JobId, int], ...]:
        state = self._state
        return tuple(
            (state.jobs.job(row).id, int(state.jobs.columns.epoch[row])) for row in self._rows_on(node)
        )

    def _rows_on(self, node: NodeName) -> list[int]:
        """Rows of launched gangs with a part on the node."""
        state = self._state
        launched = state.jobs.columns.launched
        return [
            row
            for row, gang in state.jobs.gangs.items()
            if launched[row] and node in state.fleet.node_names(gang)
        ]

    def _reconcile(self, line: Line, hello: Hello) -> None:
        has = {(status.job, status.epoch): status for status in hello.attempts}
        state, now = self._state, self._clock.wall()
        for row in self._rows_on(line.node):
            c = state.jobs.columns
            job, epoch, where = state.jobs.job(row).id, int(c.epoch[row]), int(c.state[row])
            gang = self._gangs.get(job)
            if gang is None or gang.epoch != epoch:
                nodes = state.fleet.node_names(state.jobs.gangs[row])
                gang = self._gangs[job] = Gang(
                    job, epoch, nodes, started=set(nodes) if where == RUNNING else set()
                )
            status = has.get((job, epoch))
            if where == STARTING and status is None:
                self._start_part(row, line.node)
            elif where == STARTING and status is not None and status.state == "running":
                self._ledger.put(self._merge(line.node, AttemptStarted(now, job, epoch)))
            elif where == STOPPING:
                self._send(line.node, Stop(job, epoch, StopMode.CHECKPOINT, STOP_GRACE))
            elif where in (RUNNING, PAUSED) and status is None:
                line.missing_since[job, epoch] = now
            elif where == RUNNING and status is not None and status.state == "held":
                self._send(line.node, Continue(job, epoch))

    def _start_part(self, row: int, node: NodeName) -> None:
        """The order to start was lost on its way to one node: give it again."""
        state = self._state
        c = state.jobs.columns
        job = state.jobs.job(row).id
        gang = state.jobs.gangs[row]
        action = StartAttempt(job, int(c.epoch[row]), gang, durable=float(c.durable[row]))
        spec = self._spec_of(job)
        if len(state.fleet.node_names(gang)) > 1:
            # The parts of one gang must agree on a port, which is not known any more: end what there is; it queues anew.
            self._tell(action, Stop(job, action.epoch, StopMode.KILL, STOP_GRACE))
            return
        if spec is None:
            return
        self._send(node, Start(launches(action, spec, state, self._folders, {})[node]))

    def _look_for_missing(self, line: Line) -> None:
        """Attempts that should run there and are not in the agent's list for GRACE seconds are over."""
        now, state = self._clock.wall(), self._state
        c = state.jobs.columns
        missing: dict[tuple[JobId, int], float] = {}
        for row in self._rows_on(line.node):
            job, epoch = state.jobs.job(row).id, int(c.epoch[row])
            status = line.statuses.get(job)
            if (status is not None and status.epoch == epoch) or c.state[row] not in (
                RUNNING,
                PAUSED,
                STOPPING,
            ):
                continue
            since = line.missing_since.get((job, epoch), now)
            missing[job, epoch] = since
            if now - since >= GRACE:
                log.warning("attempt %s of job %s is gone from node %s without a word", epoch, job, line.node)
                durable = float(c.durable[row])
                event = AttemptStopped(now, job, epoch, max(float(c.done[row]), durable), durable)
                self._ledger.put(self._merge(line.node, event))
                missing[job, epoch] = now
        line.missing_since = missing

    async def watch(self) -> None:
        """Declare nodes lost whose agents have missed their leases; for ever."""
        while True:
            await self._clock.sleep(LEASE / 4)
            now, fleet = self._clock.wall(), self._state.fleet
            for line in self.lines.values():
                number = fleet.names.get(line.node)
                if number is None or line.channel is not None or fleet.nodes.health[number] == Health.LOST:
                    continue
                if now - line.heard > LEASE * LEASES_MISSED:
                    log.warning("node %s has missed %d leases: lost", line.node, LEASES_MISSED)
                    self._forget_parts(line.node)
                    await self._ledger.put([NodeLost(now, line.node)])

    def _forget_parts(self, node: NodeName) -> None:
        """What a lost node had will never report its end."""
        now = self._clock.wall()
        for gang in list(self._gangs.values()):
            if node in gang.living() and len(gang.nodes) > 1:
                gang.ends[node] = AttemptStopped(now, gang.job, gang.epoch, 0.0, 0.0)
            elif node in gang.nodes and len(gang.nodes) == 1:
                del self._gangs[gang.job]

    def status(self, job: JobId, epoch: int) -> AttemptStatus | None:
        """The latest telemetry of an attempt, from the node of its first rank where that has any."""
        best: AttemptStatus | None = None
        for line in self.lines.values():
            status = line.statuses.get(job)
            if status is not None and status.epoch == epoch and (best is None or status.step > best.step):
                best = status
        return best
