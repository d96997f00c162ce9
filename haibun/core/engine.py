"""The engine: a synchronous state machine, sans I/O. The twin and the live driver are loops around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from haibun.core import life
from haibun.core.actions import Action
from haibun.core.decision import Decision, Evict, Place
from haibun.core.events import AnyEvent, Decided
from haibun.core.reasons import Reason, Why
from haibun.core.stages import (
    Cost,
    Evicted,
    PackAlone,
    Packer,
    Placed,
    Placement,
    Placer,
    Policy,
    Ranked,
    WireNothing,
    Wirer,
    no_cost,
)
from haibun.core.state import State
from haibun.core.view import View

_PREEMPTED, _TAKEN, _PLACED = (
    Why.PREEMPTED,
    Why.PLACED_BY_PREEMPTION,
    Why.PLACED,
)  # see vocabulary: looked up once

Record = Callable[[AnyEvent], None]


@dataclass(slots=True)
class Stages:
    """The four stages in force."""

    policy: Policy
    placer: Placer
    packer: Packer = field(default_factory=PackAlone)
    wirer: Wirer = field(default_factory=WireNothing)
    cost: Cost = no_cost


class Engine:
    """State, stages, and the two calls that drive them.

    ``apply(event)`` changes the State and returns actions. ``decide(now)`` is pure but for the delta that it takes: it
    returns what should change. ``handle`` is the usual round: apply events, decide, apply the decision.
    A driver makes what ``handle`` recorded durable before it carries the actions out.
    """

    def __init__(self, state: State, stages: Stages) -> None:
        self.state = state
        self.stages = stages
        self.view = View(state)
        self.wake_at: float = math.inf

    def apply(self, event: AnyEvent) -> list[Action]:
        """Change the State by one event. Raises ValueError where the event contradicts it."""
        return life.apply(self.state, event)

    def handle(self, events: Iterable[AnyEvent], now: float, record: Record | None = None) -> list[Action]:
        """Apply ``events``, then one decision if any of them called for it (or a wake-up is due).

        ``record`` is given every event before it is applied, the decision among them.
        """
        apply, state = life.apply, self.state
        actions: list[Action] = []
        for event in events:
            if record is not None:
                record(event)
            actions += apply(state, event)
        if state.dirty or self.wake_at <= now:
            decision = self.decide(now)
            if decision is not None:
                decided = Decided(now, decision)
                if record is not None:
                    record(decided)
                actions += apply(state, decided)
        return actions

    def decide(self, now: float) -> Decision | None:
        """What should change now: order, pack, place, wire. None: nothing, and nothing to remember."""
        state, stages = self.state, self.stages
        delta = state.take_delta()
        view = self.view.refresh()
        ranked = stages.policy.rank(view, delta, now)
        bundles = stages.packer.pack(ranked.ranking, view)
        placement = stages.placer.place(bundles, view, stages.cost)
        self.wake_at = math.inf if ranked.wake_at is None else ranked.wake_at
        wake = getattr(stages.policy, "wake", None)  # optional: see stages.Waking
        if placement.place and wake is not None:
            self.wake_at = min(self.wake_at, wake(view, placement.place, now))
        if not (placement.place or placement.evict or ranked.memory):
            return None
        return self._decision(placement, ranked)

    def next_wake(self) -> float:
        """When the engine wants a Tick at the latest; inf: it waits for events alone."""
        return min(self.wake_at, self.state.next_timer())

    def _decision(self, placement: Placement, ranked: Ranked) -> Decision:
        state = self.state
        evict = tuple(self._evict(e) for e in placement.evict)
        place = tuple(self._place(p) for p in placement.place)
        self.stages.wirer.wire(list(place), list(evict), self.view)
        blocked = state.jobs.job(placement.blocked).id if placement.blocked >= 0 else None
        wake_at = None if self.wake_at == math.inf else self.wake_at
        return Decision(evict, place, ranked.memory, wake_at, blocked)

    def _evict(self, evicted: Evicted) -> Evict:
        jobs = self.state.jobs
        by = jobs.job(evicted.by).id
        return Evict(
            jobs.job(evicted.row).id,
            Reason(_PREEMPTED, (evicted.rank, self.state.config.policy, f"job {by}")),
        )

    def _place(self, placed: Placed) -> Place:
        state = self.state
        option = placed.option
        type_name = state.fleet.types.names[state.demands.options.type[option]]
        code = _TAKEN if placed.taken else _PLACED
        nodes = ", ".join(state.fleet.node_names(placed.devices))
        reason = Reason(code, (placed.rank, state.config.policy, len(placed.devices), type_name, nodes))
        shape = int(state.demands.options.shape[option])
        return Place((state.jobs.job(placed.row).id,), placed.devices, shape, reason)
