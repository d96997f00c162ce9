"""The controller's side of the agents: who is connected, what they are told, what they report.

See ``reconcile`` for what happens when they come back, and docs/internals/live.md for the whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from haibun.core.actions import Action, ContinueAttempt, HoldAttempt, StartAttempt, StopAttempt
from haibun.core.events import (
    AnyEvent,
    AttemptFailed,
    AttemptHeld,
    AttemptProgressed,
    AttemptStarted,
    AttemptSucceeded,
    NodeJoined,
    NodeLost,
)
from haibun.core.fleet import Health
from haibun.core.state import State
from haibun.core.vocabulary import JobId, NodeName, StopMode
from haibun.run import reconcile
from haibun.run.clock import Clock
from haibun.run.gang import AttemptEvent, Ends, Gang
from haibun.run.launching import Folders, launches
from haibun.run.ledger import Ledger
from haibun.run.lines import Channel, Line, close_quietly
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
from haibun.run.reconcile import STOP_GRACE
from haibun.spec.job import JobSpec

log = logging.getLogger("haibun.agents")

BEAT_EVERY = 0.5  # seconds
LEASE = 10.0  # seconds of silence after which a lease is missed: an agent reconnects within five
LEASES_MISSED = 3  # before a node is declared lost: one lost call is no failure
LOOK_EVERY = 1.0  # seconds between looks at leases and missing attempts

_ALIVE = (AttemptStarted, AttemptProgressed, AttemptHeld)


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
        now = clock.now()
        self.lines: dict[NodeName, Line] = {name: Line(name, now) for name in state.fleet.names.names}
        self._gangs: dict[JobId, Gang] = {}
        self._orders: dict[JobId, Order] = {}
        self._closing: set[asyncio.Task[None]] = set()

    # --- actions -----------------------------------------------------------------------------------------------------

    def act(self, actions: Iterable[Action]) -> None:
        """Tell agents what to do. What a disconnected one misses is made good when it says hello."""
        for action in actions:
            match action:
                case StartAttempt():
                    self._start(action)
                case StopAttempt(job=job, epoch=epoch, mode=mode):
                    self._tell(Stop(job, epoch, mode, STOP_GRACE))
                case HoldAttempt(job=job, epoch=epoch):
                    self._tell(Hold(job, epoch))
                case ContinueAttempt(job=job, epoch=epoch):
                    self._tell(Continue(job, epoch))

    def shut_down(self, grace: float) -> None:
        """Ask all connected agents to end their attempts, with a checkpoint where they can, and themselves."""
        for line in self.lines.values():
            line.send(Shutdown(grace))

    @property
    def connected(self) -> int:
        """How many agents are connected."""
        return sum(line.connected for line in self.lines.values())

    def _start(self, action: StartAttempt) -> None:
        spec = self._spec_of(action.job)
        if spec is None:
            cause = "its launch spec is not in the store"
            self._ledger.put([AttemptFailed(self._ledger.now(), action.job, action.epoch, cause, fatal=True)])
            return
        addresses = {name: line.address for name, line in self.lines.items() if line.address}
        parts = launches(action, spec, self._state, self._folders, addresses)
        self._gangs[action.job] = Gang(action.job, action.epoch, tuple(parts), launches=parts)
        self._orders.pop(action.job, None)
        for node, launch in parts.items():
            self._send(node, Start(launch))

    def _start_again(self, node: NodeName, action: StartAttempt) -> None:
        """The order to start was lost on its way to one node."""
        gang = self._gang(action.job, action.epoch)
        if gang is not None and not gang.launches and len(gang.nodes) == 1:
            self._start(action)
        elif gang is not None and gang.launches:
            self._send(node, Start(gang.launches[node]))
        else:
            # Given by a former controller: the parts must agree on a port, which is not known any more. End what there
            # is of it, to begin anew.
            self._tell(Stop(action.job, action.epoch, StopMode.KILL, STOP_GRACE))

    def _tell(self, message: Stop | Hold | Continue) -> None:
        """Tell all nodes that have a part of the attempt; if it should not be, those that list it."""
        gang = self._gang(message.job, message.epoch)
        nodes = gang.living() if gang is not None else ()
        if gang is None:
            nodes = tuple(n for n, line in self.lines.items() if line.has(message.job, message.epoch))
        for node in nodes:
            self._send(node, message)

    def _send(self, node: NodeName, message: Message) -> None:
        line = self.lines.get(node)
        if line is not None and not line.send(message) and isinstance(message, Hold | Continue):
            line.missed.append(message)  # all others are made good by reconciliation

    def _gang(self, job: JobId, epoch: int) -> Gang | None:
        """The gang of the present attempt of a job; None if that is not it."""
        if not reconcile.is_current(self._state, job, epoch):
            return None
        gang = self._gangs.get(job)
        if gang is None or gang.epoch != epoch:
            gang = self._gangs[job] = reconcile.gang_of(self._state, self._state.jobs.row_of[job])
        return gang

    # --- connections -------------------------------------------------------------------------------------------------

    async def serve(self, channel: Channel, address: str | None = None) -> None:
        """Talk to one agent until its connection ends.

        Raises:
            msgspec.MsgspecError: it sends what is no message.
        """
        hello = from_agent(await channel.recv())
        if not isinstance(hello, Hello):
            raise msgspec.ValidationError("an agent must say hello first")
        refusal = self._refusal(hello)
        if refusal is not None:
            log.warning("refused an agent at %s: %s", address, refusal)
            await channel.send(pack(Refused(refusal)))
            await channel.close()
            return
        if not await self._join(hello):
            await channel.close()  # the store takes nothing just now: the agent tries again
            return
        line = self._take_line(hello, channel, address)
        writer = asyncio.create_task(line.write(channel))
        try:
            self._welcome(line, hello)
            while line.channel is channel:
                self._hear(line, from_agent(await channel.recv()))
        finally:
            writer.cancel()
            if line.channel is channel:
                line.channel = None

    def _refusal(self, hello: Hello) -> str | None:
        """Why an agent cannot be let in."""
        if hello.version != PROTOCOL_VERSION:
            return f"it speaks version {hello.version} of the protocol, the controller {PROTOCOL_VERSION}: upgrade it"
        node, fleet = hello.node, self._state.fleet
        line = self.lines.get(node.name)
        other = line is not None and line.connected and line.boot != hello.boot
        if (
            line is not None and other and self._clock.now() - line.heard < LEASE
        ):  # else it is dead, and this its heir
            return f"a node named {node.name} is connected already; give this one another name"
        number = fleet.names.get(node.name)
        if number is not None and fleet.descriptions[number].devices != node.devices:
            had = ", ".join(f"{g.count} {g.type}" for g in fleet.descriptions[number].devices)
            has = ", ".join(f"{g.count} {g.type}" for g in node.devices)
            return f"node {node.name} had other devices before ({had}; now {has}): give it the same, or another name"
        return None

    async def _join(self, hello: Hello) -> bool:
        """Make the node one that takes work; says whether it is."""
        node, fleet = hello.node, self._state.fleet
        now, number, line = self._ledger.now(), fleet.names.get(node.name), self.lines.get(node.name)
        events: list[AnyEvent] = []
        if number is None:
            events = [NodeJoined(now, node)]
        elif fleet.nodes.health[number] == Health.LOST:
            # Its devices may be given to others once it has them free: not before what it kept is ended.
            events = [] if hello.attempts else [NodeJoined(now, node)]
        elif line is not None and line.boot not in (
            "",
            hello.boot,
        ):  # its former life, with all in it, is over
            events = [NodeLost(now, node.name), NodeJoined(now, node)]
        if not events:
            return True
        if self._ledger.degraded is not None:
            return False
        ends = self._lose_parts(node.name) if len(events) > 1 else []
        await self._ledger.put([events[0], *ends, *events[1:]])
        return True

    def _take_line(self, hello: Hello, channel: Channel, address: str | None) -> Line:
        line = self.lines.setdefault(hello.node.name, Line(hello.node.name, 0.0))
        former, line.channel = line.channel, channel
        line.boot, line.address, line.heard = hello.boot, address, self._clock.now()
        line.queue = asyncio.Queue()
        line.statuses = {status.job: status for status in hello.attempts}
        line.missing_since.clear()
        if former is not None:
            self._close(former)
        return line

    def _close(self, channel: Channel) -> None:
        task = asyncio.create_task(close_quietly(channel))  # a dead peer may take its time to say goodbye
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _welcome(self, line: Line, hello: Hello) -> None:
        """Answer a hello, and make good what was missed."""
        line.send(Welcome(reconcile.wanted(self._state, line.node), BEAT_EVERY))
        stops, starts, news = reconcile.compare(self._state, line, hello)
        for stop in stops:
            line.send(stop)
        for start in starts:
            self._start_again(line.node, start)
        for event in news:
            self._take(line, msgspec.structs.replace(event, at=self._ledger.now()), lambda: None)
        missed, line.missed = line.missed, []
        for message in missed:
            line.send(message)  # one for an attempt that is over by now is passed over
        for job, order in self._orders.items():
            gang = self._gang(job, order.epoch)
            if gang is not None and line.node in gang.living() and line.node != gang.nodes[0]:
                line.send(order)

    # --- what they say -----------------------------------------------------------------------------------------------

    def _hear(self, line: Line, message: Message) -> None:
        line.heard = self._clock.now()
        if isinstance(message, Report):
            self._report(line, message)
        elif isinstance(message, Beat):
            line.beat = message
            line.statuses = {status.job: status for status in message.attempts}
            self._return(line, message)
            for status in message.attempts:
                if status.order is not None and self._orders.get(status.job) != status.order:
                    self._pass_on(line.node, status.order)

    def _return(self, line: Line, beat: Beat) -> None:
        """A lost node is back, and nothing is left on it of what it kept while it was cut off: it takes work again."""
        fleet = self._state.fleet
        number = fleet.names.get(line.node)
        if number is None or fleet.nodes.health[number] != Health.LOST or beat.attempts or line.returning:
            return
        line.returning = True
        node = fleet.descriptions[number]
        self._ledger.put([NodeJoined(self._ledger.now(), node)]).add_done_callback(line.returned)

    def _report(self, line: Line, report: Report) -> None:
        """Take a report; it is acknowledged once it is durable, or if it is of no consequence."""
        channel, event = line.channel, report.event

        def acknowledge() -> None:
            if line.channel is channel:
                line.send(Ack(report.seq))

        if not isinstance(event, AttemptEvent):
            log.warning("node %s reported a %s, which is not its to report", line.node, type(event).__name__)
            acknowledge()
            return
        # The clock of the node counts for nothing here: time is the controller's.
        self._take(line, msgspec.structs.replace(event, at=self._ledger.now()), acknowledge)

    def _take(self, line: Line, event: AttemptEvent, acknowledge: Callable[[], None]) -> None:
        gang = self._gang(event.job, event.epoch)
        if gang is None or line.node not in gang.nodes:  # of an attempt that is over, and its epoch past
            if isinstance(event, _ALIVE):
                line.send(Stop(event.job, event.epoch, StopMode.KILL))
            acknowledge()
            return
        merged = gang.merge(line.node, reconcile.at_least_known(self._state, event))
        if merged is not None:
            owed = [*gang.owed, acknowledge]
            gang.owed = []
            self._put(merged, owed)
        elif isinstance(event, Ends):
            gang.owed.append(acknowledge)
            if not isinstance(event, AttemptSucceeded):
                for other in gang.living():
                    self._send(other, Stop(gang.job, gang.epoch, StopMode.KILL, STOP_GRACE))
        else:
            acknowledge()

    def _put(self, event: AnyEvent, owed: list[Callable[[], None]]) -> None:
        def durable(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and future.exception() is None:
                for acknowledge in owed:
                    acknowledge()

        self._ledger.put([event]).add_done_callback(durable)

    def _pass_on(self, from_node: NodeName, order: Order) -> None:
        gang = self._gang(order.job, order.epoch)
        if gang is None:
            return
        self._orders[order.job] = order
        for node in gang.living():
            if node != from_node:
                self._send(node, order)

    # --- leases ------------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Declare nodes lost whose agents have missed their leases, and look for missing attempts; for ever."""
        looked = self._clock.now()
        while True:
            await self._clock.sleep(LOOK_EVERY)
            now = self._clock.now()
            late, looked = now - looked - LOOK_EVERY, now
            if late > LOOK_EVERY:  # it was this process that slept: nobody could be heard
                for line in self.lines.values():
                    line.heard += late
            await self._look_for_lost(now)
            if self._ledger.degraded is None:
                reconcile.find_missing(self._state, self.lines, self._gangs, now)
            self._forget_ended()

    async def _look_for_lost(self, now: float) -> None:
        fleet = self._state.fleet
        for line in list(self.lines.values()):
            number = fleet.names.get(line.node)
            if number is None or fleet.nodes.health[number] == Health.LOST:
                continue
            if now - line.heard <= LEASE * LEASES_MISSED:
                continue
            log.warning("node %s has missed %d leases: lost", line.node, LEASES_MISSED)
            if line.channel is not None:
                self._close(line.channel)
                line.channel = None
            lost = NodeLost(self._ledger.now(), line.node)
            await self._ledger.put([lost, *self._lose_parts(line.node)])

    def _lose_parts(self, node: NodeName) -> list[AnyEvent]:
        """What a lost node had will never report its end; returns the ends of gangs of which no other part lives."""
        ends: list[AnyEvent] = []
        for row in reconcile.rows_on(self._state, node):
            job, epoch = self._state.jobs.job(row).id, int(self._state.jobs.columns.epoch[row])
            gang = self._gang(job, epoch)
            if gang is None or gang.over:
                continue
            gang.lose(node)
            if gang.over and (end := gang.end()) is not None:
                ends.append(end)
        return ends

    def _forget_ended(self) -> None:
        for job in [
            j for j, gang in self._gangs.items() if not reconcile.is_current(self._state, j, gang.epoch)
        ]:
            del self._gangs[job]
            self._orders.pop(job, None)

    def status(self, job: JobId, epoch: int) -> AttemptStatus | None:
        """The latest telemetry of an attempt, from the node of its first rank where that has any."""
        gang = self._gang(job, epoch)
        for node in gang.nodes if gang is not None else ():
            line = self.lines.get(node)
            if line is not None and line.has(job, epoch):
                return line.statuses[job]
        return None
