"""What is, held against what should be: when an agent says hello, and all the time while it is connected.

| the State says         | the agent has it               | the agent does not                                     |
|------------------------|--------------------------------|--------------------------------------------------------|
| starting               | running: note that it started  | the order was lost: start it (a repeat is passed over); |
|                        |                                | a gang on several nodes: stop all of it, it queues anew |
| running, paused        | keep it                        | ask how it ended, by an order to stop                   |
| stopping               | stop it again                  | stop it again: the agent answers for what it no longer has |
| nothing, another epoch | the agent ends it (``Welcome`` lists what it may keep) |                                |

An agent that is asked to stop an attempt that it does not have answers how that ended, or that it has stopped: so the
devices are given on only after somebody who can know has said that nothing is left there.
"""

from __future__ import annotations

import logging

import msgspec

from haibun.core.actions import StartAttempt
from haibun.core.events import AttemptStarted, AttemptStopped
from haibun.core.jobs import Intent
from haibun.core.state import State
from haibun.core.vocabulary import STARTING, STOPPING, JobId, NodeName, StopMode
from haibun.run.gang import AttemptEvent, Gang
from haibun.run.lines import Line
from haibun.run.protocol import Hello, Stop

log = logging.getLogger("haibun.agents")

GRACE = 5.0  # seconds in which the end of an attempt that an agent no longer lists must have been reported
STOP_GRACE = 15.0  # seconds from notice to SIGKILL: room to finish a step and save
_KILLED = (Intent.CANCEL, Intent.RECOVER)  # nobody wants the work of these stops saved


def gang_of(state: State, row: int) -> Gang:
    """The gang that a row of the State has, as far as the State knows: for one that this controller did not start."""
    c, fleet = state.jobs.columns, state.fleet
    devices = state.jobs.gangs[row]
    nodes = fleet.node_names(devices)
    gang = Gang(state.jobs.job(row).id, int(c.epoch[row]), nodes)
    if c.state[row] not in (STARTING, STOPPING):
        gang.started = set(nodes)
    if c.held[row]:
        gang.held = set(nodes)
    if c.launched[row]:
        left = fleet.node_names(tuple(d for d in devices if fleet.devices.owner[d] == row) or devices)
        for node in set(nodes) - set(left):  # lost, while other parts are still being ended
            gang.lose(node)
    return gang


def rows_on(state: State, node: NodeName) -> list[int]:
    """Rows of launched gangs of which a part is on the node (and has not been lost with it)."""
    fleet, launched = state.fleet, state.jobs.columns.launched
    owner = fleet.devices.owner
    return [
        row
        for row, gang in state.jobs.gangs.items()
        if launched[row]
        and any(owner[d] == row and fleet.names.names[fleet.node_of(d)] == node for d in gang)
    ]


def wanted(state: State, node: NodeName) -> tuple[tuple[JobId, int], ...]:
    """Attempts that an agent may keep."""
    epochs = state.jobs.columns.epoch
    return tuple((state.jobs.job(row).id, int(epochs[row])) for row in rows_on(state, node))


def stop_again(state: State, row: int) -> Stop:
    """The order to stop, as it was given before."""
    c = state.jobs.columns
    mode = StopMode.KILL if c.intent[row] in _KILLED else StopMode.CHECKPOINT
    return Stop(state.jobs.job(row).id, int(c.epoch[row]), mode, STOP_GRACE)


def start_again(state: State, row: int) -> StartAttempt:
    """The order to start, as it was given before."""
    c = state.jobs.columns
    job, gang = state.jobs.job(row).id, state.jobs.gangs[row]
    return StartAttempt(job, int(c.epoch[row]), gang, durable=float(c.durable[row]))


def compare(
    state: State, line: Line, hello: Hello
) -> tuple[list[Stop], list[StartAttempt], list[AttemptStarted]]:
    """What an agent that says hello must be told to stop and to start, and what the core has not heard."""
    has = {(status.job, status.epoch): status for status in hello.attempts}
    stops: list[Stop] = []
    starts: list[StartAttempt] = []
    news: list[AttemptStarted] = []
    for row in rows_on(state, line.node):
        c = state.jobs.columns
        job, epoch, where = state.jobs.job(row).id, int(c.epoch[row]), int(c.state[row])
        status = has.get((job, epoch))
        if where == STOPPING:
            stops.append(stop_again(state, row))
        elif where == STARTING and status is None:
            starts.append(start_again(state, row))
        elif status is None:
            stops.append(Stop(job, epoch, StopMode.KILL, STOP_GRACE))
        elif where == STARTING and status is not None and status.state == "running":
            news.append(AttemptStarted(0.0, job, epoch))
    return stops, starts, news


def find_missing(state: State, lines: dict[NodeName, Line], gangs: dict[JobId, Gang], now: float) -> None:
    """Ask agents about attempts that they should have and have not listed for GRACE seconds."""
    c = state.jobs.columns
    missing: dict[NodeName, dict[tuple[JobId, int], float]] = {}
    for row, devices in state.jobs.gangs.items():
        if not c.launched[row]:
            continue
        job, epoch = state.jobs.job(row).id, int(c.epoch[row])
        gang = gangs.get(job)
        for node in state.fleet.node_names(devices):
            line = lines.get(node)
            reported = gang is not None and gang.epoch == epoch and node in gang.ends
            if line is None or not line.connected or reported or line.has(job, epoch):
                continue
            since = line.missing_since.get((job, epoch), now)
            if now - since >= GRACE:
                log.warning("node %s no longer lists attempt %d of job %s: asked about it", node, epoch, job)
                line.send(Stop(job, epoch, StopMode.KILL, STOP_GRACE))
                since = now
            missing.setdefault(node, {})[job, epoch] = since
    for line in lines.values():
        line.missing_since = missing.get(line.node, {})


def is_current(state: State, job: JobId, epoch: int) -> bool:
    """Whether an attempt is the one that the State has."""
    row = state.jobs.row_of.get(job)
    return row is not None and row in state.jobs.gangs and state.jobs.columns.epoch[row] == epoch


def at_least_known(state: State, event: AttemptEvent) -> AttemptEvent:
    """An agent that no longer has an attempt answers with zeros; the State knows more."""
    if not isinstance(event, AttemptStopped):
        return event
    c, row = state.jobs.columns, state.jobs.row_of[event.job]
    step, durable = max(event.step, float(c.done[row])), max(event.durable, float(c.durable[row]))
    return msgspec.structs.replace(event, step=step, durable=durable)
