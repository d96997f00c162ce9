"""Why a job is where it is: its reasons, worked out when somebody asks.

Nothing is kept for the thousands of jobs that wait: the ranking is made again and walked to the job.
"""

from __future__ import annotations

from dataclasses import dataclass

from haibun.core.demand import LOCALITIES, most
from haibun.core.engine import Engine
from haibun.core.reasons import Reason, Why
from haibun.core.stages import Ranking
from haibun.core.state import Delta, State
from haibun.core.vocabulary import (
    PAUSED,
    PENDING,
    QUEUED,
    RECOVERING,
    RUNNING,
    STARTING,
    STOPPING,
    JobId,
    JobState,
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What ``explain`` answers. ``since`` is the time at which the job came into its state; ``rank`` counts from 0."""

    job: JobId
    state: str
    since: float
    reasons: tuple[Reason, ...]
    rank: int | None = None
    ahead: tuple[JobId, ...] = ()

    def sentences(self) -> list[str]:
        """For people."""
        return [reason.render() for reason in self.reasons]


def explain(engine: Engine, job: JobId, now: float) -> Explanation:
    """Why the job is where it is, by the policy in force.

    Raises:
        KeyError: no such job is in the State.
    """
    state = engine.state
    row = state.jobs.row_of[job]
    c = state.jobs.columns
    where = int(c.state[row])
    since = _since(state, row)
    rank: int | None = None
    ahead: tuple[JobId, ...] = ()
    reasons: list[Reason] = []
    kept = state.jobs.reasons.get(row)
    if where == QUEUED:
        rank, ahead, reasons = _queued(engine, row, now)
        if kept is not None:
            reasons.append(kept)
    else:
        if where == STARTING and row in state.awaiting_release:
            reasons.append(Reason(Why.WAITS_FOR_RELEASE, (_holder(state, row),)))
        if where == RECOVERING:
            left = max(0.0, float(c.not_before[row]) - now)
            reasons.append(Reason(Why.BACKS_OFF, (int(c.failures[row]), left)))
        if where in (STARTING, RUNNING, STOPPING) or (where == PAUSED and c.held[row]):
            reasons.append(Reason(Why.RUNS, (", ".join(state.fleet.node_names(state.jobs.gangs[row])),)))
        if where == PENDING:
            reasons += [Reason(Why.WAITS_FOR_JOB, (needed,)) for needed in _blockers(state, row)]
        elif kept is not None:
            reasons.append(kept)
    return Explanation(job, JobState(where).name.lower(), since, tuple(reasons), rank, ahead)


def _since(state: State, row: int) -> float:
    c = state.jobs.columns
    where = int(c.state[row])
    if where >= JobState.SUCCEEDED:
        return float(c.ended_at[row])
    if where in (QUEUED, RECOVERING):
        return float(c.queued_at[row])
    if where == RUNNING:
        return float(c.running_since[row])
    if where == STARTING:
        return float(c.started_at[row])
    return float(c.as_of[row]) if where != PENDING else float(c.submitted[row])


def _blockers(state: State, row: int) -> list[JobId]:
    jobs = state.jobs
    job = jobs.job(row)
    return [
        needed
        for needed in (*job.depends_on, *job.after)
        if needed in jobs.row_of and not state.jobs.state(jobs.row_of[needed]).ended
    ]


def _holder(state: State, row: int) -> JobId:
    owners = (int(state.fleet.devices.owner[d]) for d in state.jobs.gangs[row])
    return next((state.jobs.job(o).id for o in owners if o not in (-1, row)), "?")


def _queued(engine: Engine, row: int, now: float) -> tuple[int | None, tuple[JobId, ...], list[Reason]]:
    state, view = engine.state, engine.view.refresh()
    c = state.jobs.columns
    demand = int(c.demand[row])
    if state.demands.stale:
        state.demands.rebuild(state.fleet, state.rates)
        view = engine.view.refresh()
    if not state.demands.rows.possible[demand]:
        return None, (), [_never_fits(state, demand)]
    ranking = engine.stages.policy.rank(view, Delta(full=True), now).ranking
    state.delta.full = True  # the policy's cache was made anew outside a decision
    ahead, blocked, left = _walk(state, ranking, row)
    ids = tuple(state.jobs.job(r).id for r in ahead)
    option = int(state.demands.rows.first[demand])
    kind = state.fleet.types.names[state.demands.options.type[option]]
    wanted = int(state.demands.options.devices[option])
    if ranking.strict and blocked is not None:
        reason = Reason(Why.BEHIND, (state.config.policy, state.jobs.job(blocked).id))
    elif left < wanted and not ahead:
        reason = Reason(Why.NOT_ENOUGH_FREE, (wanted, kind, left))
    elif left < wanted:
        reason = Reason(Why.NO_ROOM_LEFT, (len(ahead), left, wanted))
    elif any(p.row == row for p in engine.stages.placer.place(ranking, view, engine.stages.cost).place):
        reason = Reason(Why.DUE)
    elif state.demands.rows.cpu[demand] or state.demands.rows.memory[demand]:
        cpus = float(state.demands.rows.cpu[demand]) / 1000.0
        memory = int(state.demands.rows.memory[demand])
        reason = Reason(Why.NOT_ENOUGH_HOST, (wanted, kind, cpus, memory))
    else:
        where = LOCALITIES[state.demands.options.locality[option]].value
        reason = Reason(Why.FRAGMENTED, (wanted, kind, where, left))
    return len(ahead), ids[:5], [reason]


def _walk(state: State, ranking: Ranking, row: int) -> tuple[list[int], int | None, int]:
    """Rows ranked ahead, the first of them that is blocked, and the devices of the job's types left after them."""
    rows, options = state.demands.rows, state.demands.options
    demand = int(state.jobs.columns.demand[row])
    kinds = {int(options.type[o]) for o in range(int(rows.first[demand]), int(rows.last[demand]))}
    pools, c = state.fleet.pools, state.jobs.columns
    left = sum(int(pools.free[p]) for p in range(pools.n) if pools.open[p] and int(pools.type[p]) in kinds)
    running = set(ranking.running.tolist())
    left += sum(int(c.width[r]) for r in running if int(c.type[r]) in kinds)
    order = sorted([*ranking.waiting.tolist(), *running], key=lambda r: (*ranking.keys[r].tolist(), r))
    ahead = order[: order.index(row)]
    blocked = None
    for other in ahead:
        if other in running:
            left -= int(c.width[other]) if int(c.type[other]) in kinds else 0
            continue
        theirs = int(c.demand[other])
        if not rows.possible[theirs]:
            continue
        needs = int(rows.least[theirs])
        if needs <= left:
            left -= needs
        elif blocked is None:
            blocked = other
    return ahead, blocked, left


def _never_fits(state: State, demand: int) -> Reason:
    rows = state.demands.rows
    first, last = int(rows.first[demand]), int(rows.last[demand])
    shape = state.demands.items[demand].shapes[0]
    kind = shape.device_type or "devices"
    offer = max((most(state.demands, o, state.fleet) for o in range(first, last)), default=0)
    return Reason(Why.NEVER_FITS, (shape.devices, kind, offer))
