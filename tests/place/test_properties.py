"""Consolidated placement against slow, plain oracles, on small random clusters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from haibun.core.decision import Decision, Place
from haibun.core.engine import Engine, Stages
from haibun.core.events import AttemptStarted, Decided, JobSubmitted, NodeDrained, NodeJoined, NodeLost
from haibun.core.fleet import NO_JOB, UNBOUNDED, millicpus
from haibun.core.invariants import violations
from haibun.core.reasons import Reason, Why
from haibun.core.stages import Placement, Ranking, no_cost
from haibun.core.state import State, UnitRates
from haibun.core.view import View
from haibun.core.vocabulary import DeviceGroup, Job, Locality, Node, Shape
from haibun.order.fifo import Fifo
from haibun.place.consolidated import Consolidated

GROUPS = st.sampled_from([{"a": 2}, {"a": 3}, {"a": 4}, {"a": 1}, {"b": 3}, {"a": 2, "b": 2}])
HOSTS = st.sampled_from([(0.0, 0), (0.0, 0), (4.0, 0), (0.0, 32), (3.0, 16)])


@st.composite
def shapes(draw: Any) -> Shape:
    nodes = draw(st.sampled_from([None, None, None, 1, 2]))
    locality = draw(st.sampled_from([Locality.SITE, Locality.ANY] if nodes == 2 else list(Locality)))
    devices = draw(st.integers(1, 3 if nodes == 2 else 5)) * (nodes or 1)
    return Shape(devices, draw(st.sampled_from([None, "a", "a", "b"])), locality, nodes)


@st.composite
def jobs(draw: Any, most: int, hosts: bool) -> list[Job]:
    cpus = st.sampled_from([0.0, 0.0, 1.0, 1.5]) if hosts else st.just(0.0)
    memory = st.sampled_from([0, 0, 8]) if hosts else st.just(0)
    wanted = draw(
        st.lists(st.tuples(shapes(), cpus, memory, st.sampled_from([True, True, True, False])), max_size=most)
    )
    return [Job(f"j{i}", (s,), cpus=c, memory=m, preemptible=p) for i, (s, c, m, p) in enumerate(wanted)]


@dataclass
class Scene:
    """A cluster in which some jobs run, and a ranking of them and of those that wait."""

    state: State
    view: View
    order: list[int]  # rows of ranked jobs, best first
    strict: bool = False
    avoided: dict[int, int] | None = None

    @property
    def waiting(self) -> list[int]:
        return [row for row in self.order if row not in self.state.jobs.gangs]

    @property
    def running(self) -> list[int]:
        return [row for row in self.order if row in self.state.jobs.gangs]


@st.composite
def scenes(draw: Any, hosts: bool = True, sick: bool = True, most: int = 10) -> Scene:
    state = State(UnitRates())
    engine = Engine(state, Stages(Fifo(), Consolidated()))
    for i, groups in enumerate(draw(st.lists(GROUPS, min_size=1, max_size=5))):
        cpus, memory = draw(HOSTS) if hosts else (0.0, 0)
        devices = tuple(DeviceGroup(kind, count) for kind, count in groups.items())
        engine.apply(NodeJoined(0.0, Node(f"n{i}", devices, draw(st.sampled_from("st")), cpus, memory)))
    for job in draw(jobs(most, hosts)):
        engine.apply(JobSubmitted(0.0, job))
    _start_some(draw, engine)
    if sick:
        for node in state.fleet.descriptions:
            what = draw(st.sampled_from([None, None, None, "drain", "lose"]))
            if what == "lose":
                engine.apply(NodeLost(0.0, node.name))
            elif what == "drain":
                engine.apply(NodeDrained(0.0, node.name, evict=False))
    state.take_delta()
    assert violations(state) == []
    view = View(state)
    ranked = [*view.waiting().tolist(), *(r for r in view.running().tolist() if view.jobs.preemptible[r])]
    return Scene(state, view, draw(st.permutations(ranked)), draw(st.booleans()))


def _start_some(draw: Any, engine: Engine) -> None:
    """Jobs here and there, where a scheduler might never have put them."""
    state = engine.state
    for row, job in enumerate(state.jobs.jobs):
        assert job is not None
        if not draw(st.booleans()):
            continue
        free = [d for d in range(state.fleet.devices.n) if state.fleet.devices.claim[d] == NO_JOB]
        free = draw(st.permutations(free)) if draw(st.booleans()) else free
        gang = next((g for g in combinations(free, job.shapes[0].devices) if _legal(state, job, g)), None)
        if gang is not None:
            place = Place((job.id,), tuple(sorted(gang)), 0, Reason(Why.PLACED, (0, "test", 1, "a", "n")))
            engine.apply(Decided(0.0, Decision(place=(place,))))
            engine.apply(AttemptStarted(0.0, job.id, int(state.jobs.columns.epoch[row])))


# --- the oracle --------------------------------------------------------------------------------------------------


def _legal(state: State, job: Job, gang: tuple[int, ...]) -> bool:
    """Whether these devices are a gang that the job may have, with what is left of CPUs and memory."""
    fleet = state.fleet
    return _shaped(state, job, gang) and all(
        k * millicpus(job.cpus) <= fleet.nodes.cpu_free[node]
        and k * job.memory <= fleet.nodes.memory_free[node]
        for node, k in Counter(fleet.node_of(d) for d in gang).items()
    )


def _shaped(state: State, job: Job, gang: tuple[int, ...]) -> bool:
    fleet, shape = state.fleet, job.shapes[0]
    types = {fleet.types.names[fleet.pools.type[fleet.devices.pool[d]]] for d in gang}
    nodes = Counter(fleet.node_of(d) for d in gang)
    sites = {int(fleet.nodes.site[n]) for n in nodes}
    return (
        len(types) == 1
        and shape.device_type in (None, *types)
        and (shape.locality is not Locality.NODE or len(nodes) == 1)
        and (shape.locality is not Locality.SITE or len(sites) == 1)
        and (shape.nodes is None or (len(nodes) == shape.nodes and len(set(nodes.values())) == 1))
    )


class Room:
    """What is there to be had: devices of healthy nodes that are free, and those of some jobs."""

    def __init__(self, state: State, rows_free: set[int], taken: set[int], extra: dict[int, Job]) -> None:
        fleet = state.fleet
        self.state = state
        self.devices: list[int] = []
        self.cpu: dict[int, int] = {}
        self.memory: dict[int, int] = {}
        for node, described in enumerate(fleet.descriptions):
            self.cpu[node] = millicpus(described.cpus) or UNBOUNDED
            self.memory[node] = described.memory or UNBOUNDED
        for d in range(fleet.devices.n):
            claim = int(fleet.devices.claim[d])
            holder = extra.get(d)
            if holder is None and claim != NO_JOB and claim not in rows_free:
                holder = state.jobs.job(claim)
            node = fleet.node_of(d)
            if holder is not None:
                self.cpu[node] -= millicpus(holder.cpus)
                self.memory[node] -= holder.memory
            elif d not in taken and fleet.pools.open[fleet.devices.pool[d]]:
                self.devices.append(d)

    def holds(self, job: Job) -> bool:
        """Whether some gang of the job lies in it."""
        return self.fewest(job) > 0

    def fewest(self, job: Job) -> int:
        """The fewest nodes on which a gang of the job can lie here, 0 if it cannot: every set of nodes is tried."""
        fleet, shape = self.state.fleet, job.shapes[0]
        best = 0
        for kind in range(len(fleet.types)):
            if shape.device_type not in (None, fleet.types.names[kind]):
                continue
            rooms = self._rooms(job, kind)
            for k in range(1, len(rooms) + 1):
                if best and k >= best:
                    break
                if any(self._carries(job, rooms, nodes) for nodes in combinations(rooms, k)):
                    best = k
        return best

    def _rooms(self, job: Job, kind: int) -> dict[int, int]:
        fleet = self.state.fleet
        rooms = Counter(
            fleet.node_of(d) for d in self.devices if fleet.pools.type[fleet.devices.pool[d]] == kind
        )
        for node in rooms:
            while rooms[node] and (
                rooms[node] * millicpus(job.cpus) > self.cpu[node]
                or rooms[node] * job.memory > self.memory[node]
            ):
                rooms[node] -= 1
        return {node: k for node, k in rooms.items() if k > 0}

    def _carries(self, job: Job, rooms: dict[int, int], nodes: tuple[int, ...]) -> bool:
        shape = job.shapes[0]
        if shape.locality is Locality.NODE and len(nodes) > 1:
            return False
        if shape.locality is Locality.SITE and len({int(self.state.fleet.nodes.site[n]) for n in nodes}) > 1:
            return False
        if shape.nodes is not None:
            return len(nodes) == shape.nodes and all(rooms[n] * shape.nodes >= shape.devices for n in nodes)
        return sum(rooms[n] for n in nodes) >= shape.devices


def place(scene: Scene) -> Placement:
    rows = np.array(scene.order, np.int64)
    return Consolidated().place(Ranking.of(rows, scene.view, scene.strict), scene.view, no_cost)


def after(scene: Scene, placement: Placement, below: int = 1 << 30) -> Room:
    """What is left after a placement, together with what jobs ranked below a place hold then."""
    given = {
        d: scene.state.jobs.job(p.row)
        for p in placement.place
        for d in p.devices
        if scene.order.index(p.row) < below
    }
    evicted = {e.row for e in placement.evict}
    lower = {row for row in scene.running if scene.order.index(row) > below and not _on_closed(scene, row)}
    return Room(scene.state, evicted | lower, set(given), given)


def _on_closed(scene: Scene, row: int) -> bool:
    fleet = scene.state.fleet
    return any(not fleet.pools.open[fleet.devices.pool[d]] for d in scene.state.jobs.gangs[row])


def _possible(scene: Scene, row: int) -> bool:
    """Whether the nodes that take work could hold the job if they were empty."""
    return Room(scene.state, set(range(1000)), set(), {}).holds(scene.state.jobs.job(row))


def _job(scene: Scene, row: int) -> Job:
    return scene.state.jobs.job(row)


# --- the properties ----------------------------------------------------------------------------------------------


@given(scenes())
def test_a_placement_is_legal_and_leaves_every_book_in_order(scene: Scene) -> None:
    state = scene.state
    placement = place(scene)
    evicted = {e.row for e in placement.evict}
    assert evicted <= set(scene.running)
    seen: set[int] = set()
    for placed in placement.place:
        assert placed.row in scene.waiting
        assert list(placed.devices) == sorted(set(placed.devices))
        assert not seen & set(placed.devices)
        seen |= set(placed.devices)
        assert _shaped(state, _job(scene, placed.row), placed.devices)
        for d in placed.devices:
            assert state.fleet.devices.claim[d] in (NO_JOB, *evicted)
            assert state.fleet.pools.open[state.fleet.devices.pool[d]]
        assert placed.taken == sum(state.fleet.devices.claim[d] != NO_JOB for d in placed.devices)
        assert placed.rank == scene.order.index(placed.row)
    engine = Engine(state, Stages(Fifo(), Consolidated()))
    engine.view = scene.view
    decision = engine._decision(placement, _ranked(scene))
    engine.apply(Decided(0.0, decision))
    assert violations(state) == []


def _ranked(scene: Scene) -> Any:
    from haibun.core.stages import Ranked

    return Ranked(Ranking.of(np.array(scene.order, np.int64), scene.view, scene.strict))


@given(scenes())
def test_no_gang_is_refused_that_fits_on_what_is_left_or_held_by_jobs_ranked_below(scene: Scene) -> None:
    assume(not scene.strict)
    placement = place(scene)
    placed = {p.row for p in placement.place}
    for row in scene.waiting:
        if row not in placed:
            assert not after(scene, placement, scene.order.index(row)).holds(_job(scene, row))


@given(scenes())
def test_a_blocked_job_of_a_strict_ranking_blocks_those_behind_it_unless_it_could_never_run(
    scene: Scene,
) -> None:
    assume(scene.strict)
    placement = place(scene)
    placed = {p.row for p in placement.place}
    blocked = None
    for row in scene.waiting:
        if blocked is not None:
            assert row not in placed, "a job was passed over"
        elif row not in placed and _possible(scene, row):
            blocked = row
            assert not after(scene, placement, scene.order.index(row)).holds(_job(scene, row))
    assert placement.blocked == (-1 if blocked is None else blocked)


@given(scenes())
def test_who_loses_a_gang_loses_it_to_a_better_job_where_it_was(scene: Scene) -> None:
    fleet = scene.state.fleet
    placement = place(scene)
    nodes_of = {p.row: {fleet.node_of(d) for d in p.devices} for p in placement.place}
    for e in placement.evict:
        rank = scene.order.index(e.row)
        assert e.rank == rank
        on = {fleet.node_of(d) for d in scene.state.jobs.gangs[e.row]}
        better = [row for row, nodes in nodes_of.items() if nodes & on and scene.order.index(row) < rank]
        assert better, "a job lost its gang to one ranked below it, or elsewhere"


@given(scenes(hosts=False))
def test_nobody_is_evicted_in_vain(scene: Scene) -> None:
    placement = place(scene)
    used = {d for p in placement.place for d in p.devices}
    for e in placement.evict:
        assert used & set(scene.state.jobs.gangs[e.row]), "its devices are all still there"


@given(scenes())
def test_an_evicted_job_could_not_have_stayed_beside_the_better_ones(scene: Scene) -> None:
    placement = place(scene)
    for e in placement.evict:
        rank, job = scene.order.index(e.row), _job(scene, e.row)
        room = after(scene, placement, rank)
        own = Counter(int(scene.state.fleet.devices.pool[d]) for d in scene.state.jobs.gangs[e.row])
        there = Counter(int(scene.state.fleet.devices.pool[d]) for d in room.devices)
        on = Counter(scene.state.fleet.node_of(d) for d in scene.state.jobs.gangs[e.row])
        assert (
            any(there[pool] < k for pool, k in own.items())
            or any(k * millicpus(job.cpus) > room.cpu[n] for n, k in on.items())
            or any(k * job.memory > room.memory[n] for n, k in on.items())
        ), "it could have kept its gang"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 6), st.data())
def test_of_single_device_jobs_just_the_lowest_ranked_lose(nodes: list[int], arrive: int, data: Any) -> None:
    state = State(UnitRates())
    engine = Engine(state, Stages(Fifo(), Consolidated()))
    for i, k in enumerate(nodes):
        engine.apply(NodeJoined(0.0, Node(f"n{i}", (DeviceGroup("a", k),))))
    total = sum(nodes)
    for i in range(total + arrive):
        engine.apply(JobSubmitted(0.0, Job(f"j{i}", (Shape(1),))))
    for d in range(total):
        reason = Reason(Why.PLACED, (0, "test", 1, "a", "n"))
        engine.apply(Decided(0.0, Decision(place=(Place((f"j{d}",), (d,), 0, reason),))))
    state.take_delta()
    scene = Scene(state, View(state), data.draw(st.permutations(range(total + arrive))))
    placement = place(scene)
    best = set(scene.order[:total])
    assert {p.row for p in placement.place} == {row for row in best if row >= total}
    assert {e.row for e in placement.evict} == set(range(total)) - best


@given(scenes(sick=False, most=4))
def test_one_gang_goes_to_the_fewest_nodes_and_on_one_node_where_it_leaves_the_fewest_devices(
    scene: Scene,
) -> None:
    waiting = scene.waiting
    assume(waiting)
    row = waiting[0]
    job = _job(scene, row)
    room = Room(scene.state, set(), set(), {})
    scene.order = [row]
    placement = place(scene)
    fewest = room.fewest(job)
    if not fewest:
        assert not placement.place
        return
    fleet = scene.state.fleet
    devices = placement.place[0].devices
    nodes = {fleet.node_of(d) for d in devices}
    kind = int(fleet.pools.type[fleet.devices.pool[devices[0]]])
    same_type = Job(
        "x",
        (Shape(job.shapes[0].devices, fleet.types.names[kind], job.shapes[0].locality, job.shapes[0].nodes),),
        cpus=job.cpus,
        memory=job.memory,
    )
    assert len(nodes) == room.fewest(same_type)
    if len(nodes) == 1:
        rooms = room._rooms(job, kind)
        assert rooms[nodes.pop()] == min(k for k in rooms.values() if k >= job.shapes[0].devices)


@given(scenes(sick=False, most=5), st.integers(0, 4))
def test_the_node_where_a_job_failed_is_avoided_where_it_can_be_and_only_then(
    scene: Scene, node: int
) -> None:
    waiting = scene.waiting
    assume(waiting and node < scene.state.fleet.nodes.n)
    row = waiting[0]
    scene.order = [row]
    scene.state.jobs.columns.avoid[row] = node
    room = Room(scene.state, set(), set(), {})
    placement = place(scene)
    fits = room.holds(_job(scene, row))
    assert bool(placement.place) == fits
    if fits:
        used = {scene.state.fleet.node_of(d) for d in placement.place[0].devices}
        room.devices = [d for d in room.devices if scene.state.fleet.node_of(d) != node]
        kind = int(
            scene.state.fleet.pools.type[scene.state.fleet.devices.pool[placement.place[0].devices[0]]]
        )
        shape = _job(scene, row).shapes[0]
        alone = Job(
            "x",
            (Shape(shape.devices, scene.state.fleet.types.names[kind], shape.locality, shape.nodes),),
            cpus=_job(scene, row).cpus,
            memory=_job(scene, row).memory,
        )
        assert (node not in used) == room.holds(alone)


@given(scenes())
def test_the_same_scene_gives_the_same_placement(scene: Scene) -> None:
    assert place(scene) == place(scene)


@given(scenes(), st.data())
def test_decisions_on_a_fixed_ranking_come_to_an_end(scene: Scene, data: Any) -> None:
    """Evicted jobs queue again at once; no two take devices from each other for ever."""
    state = scene.state
    engine = Engine(state, Stages(Fifo(), Consolidated()))
    for _ in range(len(scene.order) + 2):
        placement = place(scene)
        if not (placement.place or placement.evict):
            return
        engine.view = scene.view
        for action in engine.apply(Decided(0.0, engine._decision(placement, _ranked(scene)))):
            if type(action).__name__ == "StopAttempt":
                from haibun.core.events import AttemptStopped

                engine.apply(AttemptStopped(0.0, action.job, action.epoch, 0.0, 0.0))
        assert violations(state) == []
        scene.view.refresh()
    raise AssertionError("jobs take devices from each other for ever")
