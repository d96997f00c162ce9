"""From the State and the latest telemetry to what people are shown."""

from __future__ import annotations

from collections.abc import Callable

from haibun.core.engine import Engine
from haibun.core.explain import explain
from haibun.core.fleet import UNBOUNDED, Health
from haibun.core.state import State
from haibun.core.vocabulary import QUEUED, RUNNING, SUCCEEDED, JobId, JobState
from haibun.run.agents import Agents
from haibun.run.history import known
from haibun.run.views import AttemptView, ExplanationView, JobView, NodeView, Overview
from haibun.spec.job import JobSpec
from haibun.store import AttemptRow, JobRow

RECENT_ENDED = 20  # ended jobs that an overview shows
MOST_WAITING = 200  # and jobs that wait


def job_view(state: State, agents: Agents, row: int, spec: JobSpec | None) -> JobView:
    """A job that is in the State."""
    c, jobs = state.jobs.columns, state.jobs
    job = jobs.job(row)
    where = JobState(int(c.state[row]))
    gang = jobs.gangs.get(row, ())
    status = agents.status(job.id, int(c.epoch[row])) if gang else None
    reason = jobs.reasons.get(row)
    done = float(c.done[row]) + float(c.rate[row]) * max(0.0, state.now - float(c.as_of[row]))
    step = max(status.step, float(c.durable[row])) if status is not None else done
    rate = status.rate if status is not None and status.rate is not None else known(c.speed[row])
    return JobView(
        id=job.id,
        name=job.name,
        tenant=job.tenant,
        priority=int(c.priority[row]),
        state=where.name.lower(),
        devices=len(gang) or job.shapes[0].devices,
        device_type=state.fleet.types.names[c.type[row]] if gang else job.shapes[0].device_type,
        submitted=float(c.submitted[row]),
        started=known(c.first_start[row]),
        ended=known(c.ended_at[row]),
        nodes=state.fleet.node_names(gang) if gang else (),
        on=tuple(state.fleet.device_name(d) for d in gang),
        step=step or None,
        durable=float(c.durable[row]) or None,
        total=status.total if status is not None and status.total else known(c.total[row]),
        rate=rate if where == RUNNING else None,
        attempts=int(c.epoch[row]),
        preemptions=int(c.preemptions[row]),
        failures=int(c.failures[row]),
        retries=int(c.retries[row]),
        lost=float(c.lost[row]),
        exit=reason.render() if reason is not None and where >= SUCCEEDED else None,
        why="waits for devices"
        if where == QUEUED and reason is None
        else (reason.render() if reason is not None else ""),
        metrics=dict(status.metrics) if status is not None else {},
        labels=dict(spec.labels) if spec is not None else {},
    )


def old_job_view(row: JobRow, spec: JobSpec | None, attempts: int = 0) -> JobView:
    """A job that has left the State, from its row in the tables."""
    return JobView(
        id=row.id,
        name=row.name,
        tenant=row.tenant,
        priority=row.priority,
        state=row.state,
        devices=row.devices,
        device_type=None,
        submitted=row.submitted,
        started=row.first_start,
        ended=row.finished,
        nodes=(),
        on=(),
        step=row.steps or None,
        durable=None,
        total=row.total_steps,
        rate=None,
        attempts=attempts,
        preemptions=row.preemptions,
        failures=row.failures,
        retries=spec.retries if spec is not None else 0,
        lost=0.0,
        exit=row.reason,
        why=row.reason,
        metrics={},
        labels=dict(spec.labels) if spec is not None else {},
    )


def attempt_view(state: State, row: AttemptRow) -> AttemptView:
    """One attempt, with its devices by name."""
    known_devices = state.fleet.devices.n
    return AttemptView(
        epoch=row.epoch,
        nodes=row.nodes,
        devices=tuple(state.fleet.device_name(d) for d in row.devices if d < known_devices),
        started=row.started,
        ended=row.ended,
        outcome=row.outcome or "running",
        cause=row.cause,
    )


def explanation_view(engine: Engine, job: JobId, now: float) -> ExplanationView:
    """Why a job is where it is."""
    told = explain(engine, job, now)
    return ExplanationView(
        job=job,
        state=told.state,
        since=told.since,
        reasons=tuple(told.sentences()),
        codes=tuple(reason.code.value for reason in told.reasons),
        rank=told.rank,
        ahead=told.ahead,
        policy=engine.state.config.policy,
    )


def old_explanation(row: JobRow, state: State) -> ExplanationView:
    """Why a job that has left the State ended as it did."""
    return ExplanationView(
        job=row.id,
        state=row.state,
        since=row.finished or row.submitted,
        reasons=(row.reason,) if row.reason else (),
        codes=(),
        rank=None,
        ahead=(),
        policy=state.config.policy,
    )


def overview(
    state: State,
    agents: Agents,
    spec_of: Callable[[JobId], JobSpec | None],
    now: float,
    degraded: str | None,
) -> Overview:
    """The whole at a glance: all that have devices, and the first few of those that wait and the last that ended."""
    c, table = state.jobs.columns, state.jobs
    counts: dict[str, int] = {}
    for row in table.row_of.values():
        key = JobState(int(c.state[row])).name.lower()
        counts[key] = counts.get(key, 0) + 1
    active = state.active_rows().tolist()
    waiting = [row for row in active if row not in table.gangs]
    waiting.sort(key=lambda row: (-int(c.priority[row]), float(c.submitted[row]), row))
    ended = [row for row in table.row_of.values() if c.state[row] >= SUCCEEDED]
    ended.sort(key=lambda row: float(c.ended_at[row]))
    rows = [*table.gangs, *waiting[:MOST_WAITING], *ended[-RECENT_ENDED:]]
    return Overview(
        now=now,
        policy=state.config.policy,
        params=dict(state.config.params),
        nodes=tuple(node_view(state, agents, n) for n in range(state.fleet.nodes.n)),
        jobs=tuple(job_view(state, agents, row, spec_of(table.job(row).id)) for row in rows),
        counts=counts,
        events=state.sequence,
        decisions=state.decisions,
        degraded=degraded,
    )


def node_view(state: State, agents: Agents, number: int) -> NodeView:
    """One node, with what is on each of its devices."""
    fleet = state.fleet
    name = fleet.names.names[number]
    line = agents.lines.get(name)
    devices = [
        d
        for pool in range(fleet.pools.n)
        if fleet.pools.node[pool] == number
        for d in range(int(fleet.pools.first[pool]), int(fleet.pools.first[pool] + fleet.pools.count[pool]))
    ]
    owners = [int(fleet.devices.owner[d]) for d in devices]
    free = sum(
        int(fleet.devices.claim[d]) < 0 and owner < 0 for d, owner in zip(devices, owners, strict=True)
    )
    cpus, memory = int(fleet.nodes.cpus[number]), int(fleet.nodes.memory[number])
    beat = line.beat if line is not None else None
    return NodeView(
        name=name,
        site=fleet.sites.names[fleet.nodes.site[number]],
        health=Health(int(fleet.nodes.health[number])).name.lower(),
        connected=line is not None and line.connected,
        type="+".join(g.type for g in fleet.descriptions[number].devices),
        devices=len(devices),
        free=free,
        holders=tuple(state.jobs.job(owner).id if owner >= 0 else None for owner in owners),
        cpus=cpus / 1000.0 if cpus < UNBOUNDED else 0.0,
        cpus_free=int(fleet.nodes.cpu_free[number]) / 1000.0 if cpus < UNBOUNDED else 0.0,
        memory=memory if memory < UNBOUNDED else 0,
        memory_free=int(fleet.nodes.memory_free[number]) if memory < UNBOUNDED else 0,
        cpu_busy=beat.cpu if beat is not None else 0.0,
        memory_used=beat.memory if beat is not None else 0,
        utilisation=beat.devices if beat is not None else (),
    )
