"""Nodes come and go; what is known of the cluster changes."""

from __future__ import annotations

from haibun.core.events import (
    Configured,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeResumed,
    ThroughputMeasured,
)
from haibun.core.fleet import Health
from haibun.core.life.steps import (
    KILL,
    RECOVER,
    REQUEUE,
    Actions,
    begin_stop,
    give_back,
    gone,
    lose_work,
    node_number,
    per_device,
)
from haibun.core.reasons import Reason, Why
from haibun.core.state import State
from haibun.core.vocabulary import (
    STOPPING,
)


def configured(state: State, event: Configured, actions: Actions) -> None:
    """Another policy or placer decides from now on."""
    config = state.config
    if event.policy != config.policy:
        state.memory.columns.clear()
    config.policy, config.params, config.placer = event.policy, event.params, event.placer
    state.delta.full = state.dirty = True


def node_joined(state: State, event: NodeJoined, actions: Actions) -> None:
    """A node is there, new or back."""
    state.fleet.join(event.node)
    state.capacity_changed()


def node_resumed(state: State, event: NodeResumed, actions: Actions) -> None:
    """A drained node takes work again."""
    state.fleet.drain(node_number(state, event.node), False)
    state.capacity_changed()


def node_drained(state: State, event: NodeDrained, actions: Actions) -> None:
    """A node takes no new work; what runs there is asked to move, or may end there."""
    node = node_number(state, event.node)
    state.fleet.drain(node, True)
    state.capacity_changed()
    c, reason = state.jobs.columns, Reason(Why.NODE_DRAINED, (event.node,))
    for row in _rows_on(state, node):
        if c.state[row] == STOPPING:
            continue
        if not c.launched[row] or event.evict:  # what was only planned for the node never starts there
            give_back(state, row, REQUEUE, reason, actions)


def node_lost(state: State, event: NodeLost, actions: Actions) -> None:
    """All attempts on a node are over."""
    node = node_number(state, event.node)
    state.fleet.set_health(node, Health.LOST)
    state.capacity_changed()
    launched = state.jobs.columns.launched
    for row in _rows_on(state, node):  # first what was only planned for it: it must not start there now
        if not launched[row]:
            give_back(state, row, REQUEUE, Reason(Why.NODE_LOST, (event.node,)), actions)
    for row in _rows_on(state, node):
        _lose_node(state, row, node, event, actions)


def _lose_node(state: State, row: int, node: int, event: NodeLost, actions: Actions) -> None:
    """One gang loses what it has on a node: the rest of it is stopped, or if nothing is left it queues again."""
    c, fleet = state.jobs.columns, state.fleet
    reason = Reason(Why.NODE_LOST, (event.node,))
    gang = state.jobs.gangs[row]
    cpu, memory = per_device(state, row)
    there = tuple(d for d in gang if fleet.node_of(d) == node)
    fleet.release(row, there, cpu, memory)
    if c.state[row] != STOPPING:
        c.accrue(row, state.now)
        c.avoid[row] = node
        begin_stop(state, row, RECOVER, reason, KILL, actions, tell=len(there) < len(gang))
    if all(fleet.devices.owner[d] != row for d in gang):  # nothing is left of it that could report
        c.accrue(row, state.now)
        lose_work(state, row, float(c.durable[row]))
        gone(state, row, actions)


def _rows_on(state: State, node: int) -> list[int]:
    return [
        row for row, gang in state.jobs.gangs.items() if any(state.fleet.node_of(d) == node for d in gang)
    ]


def throughput_measured(state: State, event: ThroughputMeasured, actions: Actions) -> None:
    """The profile learns a rate."""
    state.rates.observe(event.model, event.device_type, event.devices, event.consolidated, event.rate)
    state.capacity_changed()
