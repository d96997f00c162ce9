"""Invariants 1, 2, 3 and 5 under anything that can happen, for every shipped policy."""

from __future__ import annotations

import contextlib
from typing import Any

from core_world import World, picture, replay
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from haibun.core.admission import AdmissionError, admit
from haibun.core.events import (
    JobCancelled,
    JobPaused,
    JobReprioritised,
    JobResumed,
    JobsRetired,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeResumed,
    ThroughputMeasured,
    Tick,
)
from haibun.core.invariants import violations
from haibun.core.snapshot import dump, load
from haibun.core.state import LearntRates
from haibun.core.vocabulary import PAUSED, Cluster, DeviceGroup, Job, Locality, Node, Shape

GROUPS = st.sampled_from(
    [
        (DeviceGroup("a", 4),),
        (DeviceGroup("a", 2),),
        (DeviceGroup("b", 3),),
        (DeviceGroup("a", 1), DeviceGroup("b", 2)),
    ]
)
NODES = st.tuples(GROUPS, st.sampled_from(["s", "t"]), st.sampled_from([0.0, 4.0]), st.sampled_from([0, 32]))
SHAPES = st.builds(
    lambda devices, kind, locality, nodes: Shape(devices * (nodes or 1), kind, locality, nodes),
    st.integers(1, 4),
    st.sampled_from([None, None, "a", "b"]),
    st.sampled_from([Locality.SITE, Locality.SITE, Locality.ANY]),
    st.sampled_from([None, None, None, 2]),
) | st.builds(Shape, st.integers(1, 4), st.sampled_from([None, "a"]), st.just(Locality.NODE))
JOBS: Any = st.fixed_dictionaries(
    {
        "shapes": st.lists(SHAPES, min_size=1, max_size=2).map(tuple),
        "priority": st.sampled_from([0, 0, 0, 1, 5]),
        "cpus": st.sampled_from([0.0, 0.0, 1.0, 1.5]),
        "memory": st.sampled_from([0, 0, 8]),
        "model": st.sampled_from([None, "m", "n"]),
        "total_steps": st.sampled_from([None, 1.0, 10.0, 100.0]),
        "walltime": st.sampled_from([None, None, 5.0, 500.0]),
        "retries": st.integers(0, 2),
        "preemptible": st.sampled_from([True, True, True, False]),
    }
)
PICK = st.integers(0, 1000)


class Machine(RuleBasedStateMachine):
    """One engine under one policy. After every event ``World`` checks the books; after every decision, its twin."""

    policy: str

    @initialize(nodes=st.lists(NODES, min_size=1, max_size=4))
    def begin(self, nodes: list[Any]) -> None:
        cluster = Cluster(
            tuple(
                Node(f"n{i}", groups, site, cpus, memory)
                for i, (groups, site, cpus, memory) in enumerate(nodes)
            )
        )
        self.world = World(cluster, self.policy)
        self.number = 0
        self.snapshot: tuple[int, bytes] | None = None

    def pick(self, among: list[Any], number: int) -> Any:
        return among[number % len(among)] if among else None

    def pick_job(self, number: int) -> Any:
        return self.pick(sorted(self.world.jobs.row_of), number)

    def pick_attempt(self, number: int, **having: bool) -> Any:
        attempts = [
            a
            for a in self.world.attempts.values()
            if all(bool(getattr(a, name)) == value for name, value in having.items())
        ]
        return self.pick(attempts, number)

    # --- what users do -----------------------------------------------------------------------------------------

    @rule(job=JOBS, needs=st.lists(PICK, max_size=2) | st.just([]))
    def submit(self, job: dict[str, Any], needs: list[int]) -> None:
        depends = tuple(dict.fromkeys(self.pick_job(n) for n in needs)) if self.world.jobs.row_of else ()
        self.number += 1
        new = Job(f"j{self.number}", depends_on=depends, **job)
        with contextlib.suppress(AdmissionError):
            admit(self.world.state, new)
            self.world.feed(JobSubmitted(self.world.now, new))

    @rule(
        number=PICK, what=st.sampled_from(["cancel", "pause", "hold", "hold", "resume", "resume", "priority"])
    )
    def ask(self, number: int, what: str) -> None:
        job, now = self.pick_job(number), self.world.now
        if job is None:
            return
        events: dict[str, Any] = {
            "cancel": JobCancelled(now, job),
            "pause": JobPaused(now, job),
            "hold": JobPaused(now, job, hold=True),
            "resume": JobResumed(now, job),
            "priority": JobReprioritised(now, job, number % 3),
        }
        self.world.feed(events[what])

    @rule(number=PICK)
    def retire(self, number: int) -> None:
        ended = [job for job in sorted(self.world.jobs.row_of) if self.world.where(job).ended]
        if ended:
            self.world.feed(JobsRetired(self.world.now, tuple(ended[: 1 + number % 3])))

    # --- what attempts do --------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.attempts)
    @rule(number=PICK)
    def start(self, number: int) -> None:
        attempt = self.pick_attempt(number, up=False)
        if attempt is not None:
            self.world.start(attempt.job)

    @precondition(lambda self: self.world.attempts)
    @rule(
        number=PICK,
        steps=st.sampled_from([0.0, 1.0, 4.0]),
        durable=st.booleans(),
        rate=st.sampled_from([None, 2.0]),
    )
    def progress(self, number: int, steps: float, durable: bool, rate: float | None) -> None:
        a = self.pick_attempt(number, up=True)
        if a is not None:
            self.world.progress(a.job, a.step + steps, a.step + steps if durable else a.durable, rate)

    @precondition(lambda self: self.world.attempts)
    @rule(number=PICK, what=st.sampled_from(["succeed", "fail", "fatal", "somewhere"]))
    def end(self, number: int, what: str) -> None:
        attempt = self.pick_attempt(number, held=False)
        if attempt is None or (what == "succeed" and not (attempt.up and attempt.on == set(attempt.devices))):
            return
        if what == "succeed":
            self.world.succeed(attempt.job)
        else:
            fleet = self.world.state.fleet
            node = fleet.node_names(attempt.devices)[0] if what == "somewhere" else None
            self.world.fail(attempt.job, node=node, fatal=what == "fatal")

    @precondition(lambda self: any(a.stop for a in self.world.attempts.values()))
    @rule(number=PICK)
    def stopped(self, number: int) -> None:
        stopping = [a for a in self.world.attempts.values() if a.stop]
        self.world.stopped(self.pick(stopping, number).job)

    @precondition(lambda self: any(a.hold_asked or a.go_on_asked for a in self.world.attempts.values()))
    @rule()
    def hold_or_go_on(self) -> None:
        a = next(a for a in self.world.attempts.values() if a.hold_asked or a.go_on_asked)
        if a.hold_asked and not a.held and a.up:
            self.world.held(a.job)
        elif a.go_on_asked:
            self.world.goes_on(a.job)

    @precondition(lambda self: self.world.reported)
    @rule(number=PICK)
    def say_again(self, number: int) -> None:
        """An old report comes once more, late: where its attempt has passed it changes nothing."""
        event = self.pick(self.world.reported, number)
        attempt = self.world.attempts.get(event.job)
        stale = attempt is None or attempt.epoch != event.epoch
        before = picture(self.world.state)
        if stale:
            for action in self.world.engine.apply(event):
                assert action.epoch == event.epoch
            after = picture(self.world.state)
            assert after | {"sequence": 0} == before | {"sequence": 0}
            assert not violations(self.world.state)
            self.world.log.append(_encoded(event))
        elif type(event).__name__ == "AttemptStarted":
            self.world.feed(event)

    # --- what nodes and time do --------------------------------------------------------------------------------

    @rule(number=PICK, what=st.sampled_from(["lose", "join", "join", "drain", "close", "resume", "resume"]))
    def node(self, number: int, what: str) -> None:
        node, now = self.pick(self.world.state.fleet.descriptions, number), self.world.now
        events: dict[str, Any] = {
            "lose": NodeLost(now, node.name),
            "join": NodeJoined(now, node),
            "drain": NodeDrained(now, node.name),
            "close": NodeDrained(now, node.name, evict=False),
            "resume": NodeResumed(now, node.name),
        }
        self.world.feed(events[what])

    @rule(
        model=st.sampled_from(["m", "n"]),
        kind=st.sampled_from(["a", "b"]),
        k=st.integers(1, 4),
        rate=st.integers(1, 9),
    )
    def measure(self, model: str, kind: str, k: int, rate: int) -> None:
        self.world.feed(ThroughputMeasured(self.world.now, model, kind, k, float(rate)))

    @rule(seconds=st.sampled_from([0.0, 0.5, 5.0, 60.0, 1000.0]))
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    @rule()
    def tick(self) -> None:
        self.world.feed(Tick(self.world.now))

    @rule()
    def take_snapshot(self) -> None:
        self.snapshot = len(self.world.log), dump(self.world.state)

    # --- what must hold at the end -----------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        self.replay_gives_the_same()
        for job in sorted(world.jobs.row_of):
            if world.where(job) == PAUSED or world.attempts.get(job, None) is not None:
                world.feed(JobResumed(world.now, job))
        world.finish()
        left = {job: world.where(job).name for job in world.jobs.row_of if not world.where(job).ended}
        assert not left, f"jobs that fit never end: {left}"
        self.replay_gives_the_same()

    def replay_gives_the_same(self) -> None:
        assert picture(self.world.replayed()) == picture(self.world.state)
        if self.snapshot is not None:
            at, blob = self.snapshot
            restored = replay(load(blob, LearntRates()), self.world.log[at:])
            assert picture(restored) == picture(self.world.state)


def _encoded(event: Any) -> tuple[str, int, bytes]:
    from haibun.core.codec import encode

    return encode(event)


class FifoMachine(Machine):
    policy = "fifo"


class SrtfMachine(Machine):
    policy = "srtf"


class TiresiasMachine(Machine):
    policy = "tiresias"


TestFifo, TestSrtf, TestTiresias = FifoMachine.TestCase, SrtfMachine.TestCase, TiresiasMachine.TestCase
