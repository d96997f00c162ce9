"""What must hold of every State after every event, counted anew from the gangs: invariants 1 and 2 of DESIGN.

Slow and plain on purpose: it shares no arithmetic with ``fleet`` and ``life``, whose books it checks. For
tests, and to look at a snapshot that is in doubt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from haibun.core.fleet import NO_JOB, UNBOUNDED, Health, millicpus
from haibun.core.state import State
from haibun.core.vocabulary import (
    PAUSED,
    PENDING,
    QUEUED,
    RECOVERING,
    RUNNING,
    STARTING,
    STOPPING,
    SUCCEEDED,
    Job,
    Locality,
    Shape,
)


def violations(state: State) -> list[str]:
    """Every broken invariant, as a sentence; empty when all is well. Changes nothing."""
    return [
        *_table(state),
        *_gangs(state),
        *_claims(state),
        *_owners(state),
        *_free_devices(state),
        *_hosts(state),
        *_waiting(state),
        *_release(state),
        *_work(state),
    ]


def _rows(state: State) -> Iterator[tuple[int, Job, int]]:
    """(row, job, state) of each job in the table, by row."""
    for row, job in enumerate(state.jobs.jobs):
        if job is not None:
            yield row, job, int(state.jobs.columns.state[row])


def _name(state: State, row: int) -> str:
    known = 0 <= row < len(state.jobs.jobs) and state.jobs.jobs[row] is not None
    return f"job {state.jobs.job(row).id}" if known else f"row {row}, which no job has,"


def _table(state: State) -> Iterator[str]:
    jobs, c = state.jobs, state.jobs.columns
    if c.n != len(jobs.jobs):
        yield f"the job table has {c.n} rows of columns and {len(jobs.jobs)} jobs"
    if jobs.row_of != {job.id: row for row, job, _ in _rows(state)}:
        yield "the index of job ids is not that of the rows"
    if sorted(jobs.free_rows) != [row for row, job in enumerate(jobs.jobs) if job is None]:
        yield "the list of unused rows is not that of the rows without a job"
    for row in jobs.free_rows:
        if row in jobs.gangs or c.state[row] < SUCCEEDED:
            yield f"unused row {row} has a gang or a job's state"
    for needed, names in jobs.dependents.items():
        for name in names:
            job = jobs.jobs[jobs.row_of[name]] if name in jobs.row_of else None
            if job is not None and needed not in (*job.depends_on, *job.after):
                yield f"job {name} is listed as waiting for job {needed}, and does not"


def _holds(state: State, row: int, where: int) -> bool:
    """Whether a job in this state must have a gang."""
    return where in (STARTING, RUNNING, STOPPING) or (where == PAUSED and bool(state.jobs.columns.held[row]))


def _gangs(state: State) -> Iterator[str]:
    jobs, c = state.jobs, state.jobs.columns
    for row, job, where in _rows(state):
        gang = jobs.gangs.get(row)
        if gang is None:
            if _holds(state, row, where):
                yield f"job {job.id} is {jobs.state(row).name.lower()} without a gang"
            continue
        if not _holds(state, row, where):
            yield f"job {job.id} is {jobs.state(row).name.lower()} and has a gang"
        if len(set(gang)) != len(gang) or list(gang) != sorted(gang):
            yield f"the gang of job {job.id} is not a set of devices in order: {gang}"
        if c.width[row] != len(gang):
            yield f"job {job.id} has {len(gang)} devices and a width of {c.width[row]}"
        if not any(_takes(state, gang, shape) for shape in job.shapes):
            yield f"the gang of job {job.id}, {gang}, has none of its shapes"
        if len(gang) and c.type[row] != state.fleet.pools.type[state.fleet.devices.pool[gang[0]]]:
            yield f"job {job.id} is booked under another device type than its gang's"
    for row in jobs.gangs:
        if row >= len(jobs.jobs) or jobs.jobs[row] is None:
            yield f"row {row} has a gang and no job"


def _takes(state: State, gang: tuple[int, ...], shape: Shape) -> bool:
    """Whether a gang has a shape: type, count, locality, nodes asked for."""
    fleet = state.fleet
    types = {fleet.types.names[fleet.pools.type[fleet.devices.pool[d]]] for d in gang}
    on = Counter(fleet.node_of(d) for d in gang)
    sites = {int(fleet.nodes.site[node]) for node in on}
    return (
        len(gang) == shape.devices
        and len(types) == 1
        and (shape.device_type is None or types == {shape.device_type})
        and not (shape.locality is Locality.NODE and len(on) > 1)
        and not (shape.locality is Locality.SITE and len(sites) > 1)
        and (shape.nodes is None or (len(on) == shape.nodes and len(set(on.values())) == 1))
    )


def _claims(state: State) -> Iterator[str]:
    """The plan's book: a job that has a gang and is not giving it back claims it whole; nobody else does."""
    fleet = state.fleet
    claims = {
        device: row
        for row, gang in state.jobs.gangs.items()
        if state.jobs.columns.state[row] != STOPPING
        for device in gang
    }
    for device in range(fleet.devices.n):
        claim = int(fleet.devices.claim[device])
        if claim != claims.get(device, NO_JOB):
            yield (
                f"device {fleet.device_name(device)} is claimed by {_name(state, claim)} in the book, and by "
                f"{_name(state, claims.get(device, NO_JOB))} in the plan"
            )
        if claim != NO_JOB and fleet.nodes.health[fleet.node_of(device)] == Health.LOST:
            yield f"device {fleet.device_name(device)} of a lost node is claimed by {_name(state, claim)}"
    planned = [
        d for row, g in state.jobs.gangs.items() if state.jobs.columns.state[row] != STOPPING for d in g
    ]
    for device, times in Counter(planned).items():
        if times > 1:
            yield f"device {fleet.device_name(device)} is given to {times} jobs"


def _owners(state: State) -> Iterator[str]:
    """The world's book: workers of at most one job on a device, those of a launched gang on all of it."""
    fleet, jobs, c = state.fleet, state.jobs, state.jobs.columns
    for device in range(fleet.devices.n):
        owner = int(fleet.devices.owner[device])
        if owner == NO_JOB:
            continue
        if fleet.nodes.health[fleet.node_of(device)] == Health.LOST:
            yield f"device {fleet.device_name(device)} of a lost node is owned by {_name(state, owner)}"
        if device not in jobs.gangs.get(owner, ()) or not c.launched[owner]:
            yield f"device {fleet.device_name(device)} is owned by {_name(state, owner)}, which is not there"
    for row, gang in jobs.gangs.items():
        owned = sum(int(fleet.devices.owner[d]) == row for d in gang)
        whole = len(gang) if c.launched[row] else 0
        if c.state[row] == STOPPING:  # it may have lost a node, but not all of them
            if not 0 < owned <= whole:
                yield f"{_name(state, row)} is stopping on {owned} of its {len(gang)} devices"
        elif owned != whole:
            yield f"{_name(state, row)} has workers on {owned} of its {len(gang)} devices"


def _free_devices(state: State) -> Iterator[str]:
    pools, fleet = state.fleet.pools, state.fleet
    for pool in range(pools.n):
        first, count = int(pools.first[pool]), int(pools.count[pool])
        claimed = sum(int(fleet.devices.claim[d]) != NO_JOB for d in range(first, first + count))
        if pools.free[pool] != count - claimed:
            yield f"pool {pool} counts {pools.free[pool]} free of {count} devices, {claimed} of them claimed"
        if bool(pools.open[pool]) != (fleet.nodes.health[pools.node[pool]] == Health.UP):
            yield f"pool {pool} is {'open' if pools.open[pool] else 'closed'}, unlike its node"


def _hosts(state: State) -> Iterator[str]:
    """CPUs and memory of nodes, both books: what is left is what there is less what gangs take, never < 0."""
    fleet, n = state.fleet, state.fleet.nodes
    books = {"planned": fleet.devices.claim, "used": fleet.devices.owner}
    left = {
        ("planned", "CPUs"): n.cpu_free,
        ("planned", "memory"): n.memory_free,
        ("used", "CPUs"): n.cpu_here,
        ("used", "memory"): n.memory_here,
    }
    for (book, what), column in left.items():
        taken: Counter[int] = Counter()
        for device in range(fleet.devices.n):
            row = int(books[book][device])
            if row != NO_JOB and state.jobs.jobs[row] is not None:
                job = state.jobs.job(row)
                taken[fleet.node_of(device)] += millicpus(job.cpus) if what == "CPUs" else job.memory
        for node, described in enumerate(fleet.descriptions):
            has = millicpus(described.cpus) if what == "CPUs" else described.memory
            if column[node] != (has or UNBOUNDED) - taken[node]:
                yield f"the book of {book} {what} of node {described.name} is off: {column[node]} left"
            if has and taken[node] > has:
                yield f"node {described.name} has {has} of {what}, and {taken[node]} are {book}"


def _waiting(state: State) -> Iterator[str]:
    """Jobs without a gang hold nothing; the counter of queued jobs is right."""
    c = state.jobs.columns
    queued = 0
    for row, job, where in _rows(state):
        queued += where == QUEUED
        if row not in state.jobs.gangs and (c.width[row] or c.rate[row] or c.held[row] or c.launched[row]):
            yield f"job {job.id} has no gang, and a width, rate, process or launch"
        if where == PENDING and c.blockers[row] <= 0:
            yield f"job {job.id} waits for no job, and is not queued"
        if where in (QUEUED, RECOVERING, STARTING, RUNNING) and c.blockers[row]:
            yield f"job {job.id} did not wait for all the jobs that it depends on"
        if where == RECOVERING and math.isinf(float(c.not_before[row])):
            yield f"job {job.id} recovers, and nothing says until when"
    if queued != state.queued:
        yield f"{queued} jobs are queued, and {state.queued} are counted"


def _release(state: State) -> Iterator[str]:
    """Those whose devices are not free yet are known; none of them could start now."""
    c = state.jobs.columns
    expected = {row for row, _, where in _rows(state) if where == STARTING and not c.launched[row]}
    if expected != set(state.awaiting_release):
        yield f"rows {sorted(state.awaiting_release)} await devices, and should be {sorted(expected)}"
    for row in expected & state.jobs.gangs.keys():
        demand = c.demand[row]
        cpu, memory = int(state.demands.rows.cpu[demand]), int(state.demands.rows.memory[demand])
        if state.fleet.can_occupy(state.jobs.gangs[row], cpu, memory):
            yield f"the devices of {_name(state, row)} are free, and it has not been started"


def _work(state: State) -> Iterator[str]:
    """Work is never below what is durable, service and times are never negative."""
    c = state.jobs.columns
    for row, job, where in _rows(state):
        if where < SUCCEEDED and c.done[row] < c.durable[row] - 1e-9:
            yield f"job {job.id} has {c.done[row]} steps done and {c.durable[row]} durable"
        if min(c.service[row], c.waited[row], c.ran[row], c.lost[row]) < 0.0:
            yield f"job {job.id} has had negative service, waiting, running or loss"
        if where == STOPPING and not c.intent[row]:
            yield f"job {job.id} is stopping, and nothing says what for"
