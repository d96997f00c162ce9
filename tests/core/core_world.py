"""A world for an engine to be wrong in: attempts on devices that start, work, fail and stop in any legal order.

``World.feed`` is the driver's round (apply, decide, apply) with every check that holds at any time built in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from haibun.core.actions import Action, ContinueAttempt, HoldAttempt, StartAttempt, StopAttempt
from haibun.core.codec import decode, encode
from haibun.core.engine import Engine, Stages
from haibun.core.events import (
    AnyEvent,
    AttemptFailed,
    AttemptHeld,
    AttemptProgressed,
    AttemptStarted,
    AttemptStopped,
    AttemptSucceeded,
    Configured,
    Decided,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeResumed,
    Tick,
)
from haibun.core.invariants import violations
from haibun.core.jobs import JobTable
from haibun.core.snapshot import dump, load
from haibun.core.state import LearntRates, State
from haibun.core.vocabulary import SUCCEEDED, Cluster, DeviceGroup, Job, JobState, Node, Shape, StopMode
from haibun.order.fifo import Fifo
from haibun.order.srtf import Srtf
from haibun.order.tiresias import Tiresias
from haibun.place.consolidated import Consolidated

POLICIES: dict[str, dict[str, Any]] = {
    "fifo": {},
    "srtf": {},
    "tiresias": {"queue_limits": [20.0, 200.0], "promote_knob": 2.0},
}
CLASSES = {"fifo": Fifo, "srtf": Srtf, "tiresias": Tiresias}
Log = list[tuple[str, int, bytes]]


def make_stages(policy: str, params: dict[str, Any] | None = None) -> Stages:
    """As ``app.make_stages``, without a look at all that is installed, thousands of times a test."""
    return Stages(CLASSES[policy](**(params or {})), Consolidated())


def rack(*nodes: int, kind: str = "a", cpus: float = 0.0, memory: int = 0, site: str = "s") -> Cluster:
    """Nodes n0, n1, ... with so many devices each."""
    return Cluster(
        tuple(Node(f"n{i}", (DeviceGroup(kind, k),), site, cpus, memory) for i, k in enumerate(nodes))
    )


def gang(name: str, devices: int = 1, **more: Any) -> Job:
    """A job of one shape and ten steps; ``shape`` gives more of the shape."""
    shape = Shape(devices, **more.pop("shape", {}))
    return Job(name, (shape,), **{"total_steps": 10.0, **more})


@dataclass
class Attempt:
    """One life of a job, as the world has it. ``on`` are the devices on which workers of it are left."""

    job: str
    epoch: int
    devices: tuple[int, ...]
    durable: float
    on: set[int] = field(default_factory=set)
    step: float = 0.0
    up: bool = False
    stop: StopMode | None = None
    hold_asked: bool = False
    held: bool = False
    go_on_asked: bool = False


class World:
    """An engine, a recorder and an executor that acts only when it is told to."""

    def __init__(self, cluster: Cluster, policy: str, params: dict[str, Any] | None = None) -> None:
        self.policy, self.params = policy, POLICIES[policy] if params is None else params
        self.engine = Engine(State(LearntRates()), make_stages(policy, self.params))
        self.now = 0.0
        self.log: Log = []
        self.attempts: dict[str, Attempt] = {}
        self.reported: list[AnyEvent] = []
        self.durable: dict[str, float] = {}
        self.decided: list[Decided] = []
        self.actions: list[Action] = []
        self.feed(Configured(0.0, policy, self.params), *(NodeJoined(0.0, node) for node in cluster.nodes))

    @property
    def state(self) -> State:
        return self.engine.state

    @property
    def jobs(self) -> JobTable:
        return self.state.jobs

    def where(self, job: str) -> JobState:
        """The state of a job."""
        return self.jobs.state(self.jobs.row_of[job])

    def column(self, job: str, name: str) -> Any:
        """One value of a job's row, as plain Python."""
        return getattr(self.jobs.columns, name)[self.jobs.row_of[job]].item()

    # --- the driver's round ------------------------------------------------------------------------------------

    def feed(self, *events: AnyEvent) -> list[Action]:
        """Apply events, decide if need be, obey; checks all that holds at any time. Returns the actions."""
        self.now = max(self.now, *(event.at for event in events))
        actions: list[Action] = []
        for event in events:
            actions += self._apply(event)
        if self.state.dirty or self.engine.wake_at <= self.now:
            decision = self._decide()
            if decision is not None:
                self.decided.append(decision)
                actions += self._apply(decision)
        self.actions += actions
        return actions

    def _decide(self) -> Decided | None:
        """Decide; a policy that starts anew from a snapshot must decide the same."""
        fresh = Engine(load(dump(self.state), LearntRates()), make_stages(self.policy, self.params))
        decision, anew = self.engine.decide(self.now), fresh.decide(self.now)
        assert decision == anew, "the policy's cache differs from what the State says"
        assert self.engine.wake_at == fresh.wake_at
        assert self.engine.wake_at > self.now, "the policy wants to be woken now, for ever"
        return None if decision is None else Decided(self.now, decision)

    def _apply(self, event: AnyEvent) -> list[Action]:
        kind, version, body = encode(event)
        self.log.append((kind, version, body))
        self._world_changes(event)
        actions = self.engine.apply(event)
        assert violations(self.state) == []
        self._work_is_kept()
        for action in actions:
            self._obey(action)
        return actions

    def _work_is_kept(self) -> None:
        c = self.jobs.columns
        for job, row in self.jobs.row_of.items():
            durable = float(c.durable[row])
            assert durable >= self.durable.get(job, 0.0), f"{job} forgot a durable step"
            assert c.done[row] >= durable or c.state[row] >= SUCCEEDED
            self.durable[job] = durable

    # --- the executor ------------------------------------------------------------------------------------------

    def _obey(self, action: Action) -> None:
        attempt = self.attempts.get(action.job)
        if isinstance(action, StartAttempt):
            busy = {d for a in self.attempts.values() for d in a.on}
            assert not busy & set(action.devices), "an attempt starts on devices that are not free"
            assert attempt is None, "a job runs twice"
            assert action.durable == self.durable.get(action.job, 0.0)
            self.attempts[action.job] = Attempt(
                action.job,
                action.epoch,
                action.devices,
                action.durable,
                set(action.devices),
                action.durable,
            )
        elif attempt is None or attempt.epoch != action.epoch:
            assert isinstance(action, StopAttempt), "an attempt that is not there is told to do something"
        elif isinstance(action, StopAttempt):
            attempt.stop = action.mode
        elif isinstance(action, HoldAttempt):
            attempt.hold_asked, attempt.go_on_asked = True, False
        elif isinstance(action, ContinueAttempt):
            attempt.go_on_asked, attempt.hold_asked = attempt.held, False

    def _world_changes(self, event: AnyEvent) -> None:
        if isinstance(event, NodeLost):
            fleet = self.state.fleet
            node = fleet.names.get(event.node)
            for attempt in list(self.attempts.values()):
                attempt.on -= {d for d in attempt.on if fleet.node_of(d) == node}
                if not attempt.on:
                    del self.attempts[attempt.job]

    def report(self, event: Any) -> list[Action]:
        """An attempt of the world says something; the last thing it says frees its devices."""
        self.reported.append(event)
        if isinstance(event, AttemptSucceeded | AttemptFailed | AttemptStopped):
            del self.attempts[event.job]
        return self.feed(event)

    def start(self, job: str) -> list[Action]:
        """The workers of a job come up."""
        attempt = self.attempts[job]
        attempt.up = True
        return self.report(AttemptStarted(self.now, job, attempt.epoch))

    def progress(
        self, job: str, step: float, durable: float = 0.0, rate: float | None = None
    ) -> list[Action]:
        """So many steps are done in all."""
        attempt = self.attempts[job]
        attempt.step, attempt.durable = step, max(attempt.durable, durable)
        return self.report(AttemptProgressed(self.now, job, attempt.epoch, step, durable, rate))

    def stopped(self, job: str) -> list[Action]:
        """A job that was told to stop has; with a checkpoint if it was to make one and is whole."""
        a = self.attempts[job]
        whole = a.stop == StopMode.CHECKPOINT and a.up and a.on == set(a.devices)
        return self.report(AttemptStopped(self.now, job, a.epoch, a.step, a.step if whole else a.durable))

    def held(self, job: str) -> list[Action]:
        """A job that was told to stand still does."""
        a = self.attempts[job]
        a.held, a.hold_asked = True, False
        return self.report(AttemptHeld(self.now, job, a.epoch, a.step))

    def goes_on(self, job: str) -> list[Action]:
        """A job that was told to go on does."""
        a = self.attempts[job]
        a.held, a.go_on_asked = False, False
        return self.report(AttemptStarted(self.now, job, a.epoch))

    def succeed(self, job: str) -> list[Action]:
        """It ends well."""
        a = self.attempts[job]
        return self.report(AttemptSucceeded(self.now, job, a.epoch, max(a.step, 10.0)))

    def fail(self, job: str, cause: str = "exit code 1", **more: Any) -> list[Action]:
        """It ends badly."""
        a = self.attempts[job]
        return self.report(AttemptFailed(self.now, job, a.epoch, cause, a.step, a.durable, **more))

    def wait(self, seconds: float) -> list[Action]:
        """Time passes, with a Tick at every wake-up on the way."""
        until, actions = self.now + seconds, []
        for _ in range(1000):
            wake = self.engine.next_wake()
            if not wake <= until:
                break
            actions += self.feed(Tick(max(wake, self.now)))
        else:
            raise AssertionError("the engine wakes up for ever")
        return actions + self.feed(Tick(until))

    def behave(self) -> None:
        """The executor does what it was told, at once, until it has nothing more to do."""
        for _ in range(10_000):
            for a in list(self.attempts.values()):
                if self.attempts.get(a.job) is not a:
                    continue
                if a.stop is not None:
                    self.stopped(a.job)
                elif not a.up:
                    self.start(a.job)
                elif a.hold_asked:
                    self.held(a.job)
                elif a.go_on_asked:
                    self.goes_on(a.job)
                else:
                    continue
                break
            else:
                return
        raise AssertionError("decisions at one instant never come to an end")

    def finish(self) -> None:
        """Every node comes back, nobody asks for anything more, the executor behaves: run to the end."""
        for node in self.state.fleet.descriptions:
            self.feed(NodeResumed(self.now, node.name), NodeJoined(self.now, node))
        for _ in range(1000):
            self.behave()
            working = [a.job for a in self.attempts.values() if a.up and not a.held]
            if working:
                self.succeed(working[0])
            elif self.engine.next_wake() < math.inf:
                self.wait(self.engine.next_wake() - self.now)
            else:
                return
        raise AssertionError("the jobs never come to an end")

    # --- replay ------------------------------------------------------------------------------------------------

    def replayed(self) -> State:
        """What the journal alone makes of a fresh State."""
        state = State(LearntRates())
        return replay(state, self.log)


def replay(state: State, log: Iterable[tuple[str, int, bytes]]) -> State:
    """Apply journalled events."""
    engine = Engine(state, make_stages("fifo"))
    for record in log:
        engine.apply(decode(*record))
    return state


def picture(state: State) -> dict[str, Any]:
    """Everything that a State holds, as values to compare; demands by value, for their numbers are no matter."""
    jobs, fleet, n = state.jobs, state.fleet, state.jobs.columns.n
    columns = jobs.columns.dump()
    del columns["demand"]
    memory = {
        name: column[:n].tobytes().rstrip(b"\0")
        for name, column in state.memory.columns.items()
        if np.any(column)
    }
    return {
        "now": state.now,
        "jobs": jobs.jobs,
        "demands": [state.demands.items[jobs.columns.demand[row]] for row in sorted(jobs.row_of.values())],
        "columns": columns,
        "gangs": list(jobs.gangs.items()),
        "reasons": jobs.reasons,
        "free_rows": jobs.free_rows,
        "row_of": jobs.row_of,
        "nodes": fleet.nodes.dump(),
        "pools": fleet.pools.dump(),
        "devices": fleet.devices.dump(),
        "awaiting": list(state.awaiting_release),
        "timers": _timers(state),
        "queued": state.queued,
        "memory": memory,
        "config": state.config,
        "decisions": state.decisions,
        "sequence": state.sequence,
    }


def _timers(state: State) -> list[tuple[float, int, int]]:
    """Those that are not void: void ones are dropped whenever somebody looks."""
    c = state.jobs.columns
    return sorted(t for t in state.timers if c.epoch[t[1]] == t[2] and c.state[t[1]] < SUCCEEDED)


__all__ = ["POLICIES", "Attempt", "NodeDrained", "World", "gang", "picture", "rack", "replay"]
