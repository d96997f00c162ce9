"""A State as bytes, and back: what a restart loads before it applies the journal's tail.

Written are the books themselves; derived things (demands, lanes of policies) are made anew. ``FORMAT`` is raised when
the layout changes; columns may be added without that, an old snapshot gives them their fresh values.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from haibun.core.columns import Codes
from haibun.core.demand import Rates
from haibun.core.reasons import Reason
from haibun.core.state import Config, State
from haibun.core.vocabulary import Job, Node

FORMAT = 1


class SnapshotError(ValueError):
    """A snapshot that this version cannot read."""


class _Table(Struct):
    n: int
    columns: dict[str, bytes]


class _Snapshot(Struct):
    format: int
    now: float
    sequence: int
    decisions: int
    config: tuple[str, dict[str, Any], str]
    nodes: list[Node]
    health: list[int]
    books: dict[str, _Table]
    jobs: list[Job | None]
    job_columns: _Table
    tenants: list[str]
    gangs: dict[int, tuple[int, ...]]
    reasons: dict[int, Reason]
    free_rows: list[int]
    awaiting_release: list[int]
    timers: list[tuple[float, int, int]]
    memory: dict[str, bytes]
    rates: list[tuple[Any, ...]]
    highest: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Snapshot)


def dump(state: State) -> bytes:
    """All of a State, as bytes."""
    fleet, jobs = state.fleet, state.jobs
    books = {"nodes": fleet.nodes, "pools": fleet.pools, "devices": fleet.devices}
    n = jobs.columns.n
    return _encode(
        _Snapshot(
            format=FORMAT,
            now=state.now,
            sequence=state.sequence,
            decisions=state.decisions,
            config=(state.config.policy, state.config.params, state.config.placer),
            nodes=fleet.descriptions,
            health=fleet.nodes.health[: fleet.nodes.n].tolist(),
            books={name: _Table(table.n, table.dump()) for name, table in books.items()},
            jobs=jobs.jobs,
            job_columns=_Table(n, {k: v for k, v in jobs.columns.dump().items() if k != "demand"}),
            tenants=jobs.tenants.names,
            gangs=jobs.gangs,
            reasons=jobs.reasons,
            free_rows=jobs.free_rows,
            awaiting_release=list(state.awaiting_release),
            timers=sorted(timer for timer in state.timers if state.is_set(timer)),
            memory={name: column[:n].tobytes() for name, column in state.memory.columns.items()},
            rates=[tuple(row) for row in state.rates.to_rows()],
            highest=jobs.highest,
        )
    )


def load(blob: bytes, rates: Rates | None = None) -> State:
    """The State that ``dump`` was given.

    Raises:
        SnapshotError: the bytes are damaged, or of another format.
    """
    try:
        s = _decoder.decode(blob)
    except (msgspec.DecodeError, msgspec.ValidationError) as e:
        raise SnapshotError(f"the snapshot cannot be read: {e}") from e
    if s.format != FORMAT:
        raise SnapshotError(f"the snapshot has format {s.format}; this Haibun reads {FORMAT}")
    state = State(rates)
    state.now, state.sequence, state.decisions = s.now, s.sequence, s.decisions
    state.config = Config(*s.config)
    state.rates.restore(s.rates)
    _load_fleet(state, s)
    _load_jobs(state, s)
    state.awaiting_release = dict.fromkeys(s.awaiting_release)
    state.timers = s.timers
    return state


def _load_fleet(state: State, s: _Snapshot) -> None:
    fleet = state.fleet
    for node in s.nodes:
        fleet.join(node)
    for name, table in s.books.items():
        getattr(fleet, name).load(table.n, table.columns)
    fleet.nodes.health[: len(s.health)] = s.health


def _load_jobs(state: State, s: _Snapshot) -> None:
    jobs = state.jobs
    jobs.columns.load(s.job_columns.n, s.job_columns.columns)
    jobs.jobs = s.jobs
    jobs.tenants = Codes(s.tenants)
    jobs.gangs, jobs.reasons, jobs.free_rows = s.gangs, s.reasons, s.free_rows
    jobs.highest = s.highest
    c = jobs.columns
    for row, job in enumerate(s.jobs):
        if job is None:
            continue
        jobs.row_of[job.id] = row
        c.demand[row] = state.demands.number(job, state.fleet, state.rates)
    for row, job in enumerate(s.jobs):
        if job is not None and c.blockers[row]:
            for needed in (*job.depends_on, *job.after):
                if needed in jobs.row_of:
                    jobs.dependents.setdefault(needed, []).append(job.id)
    state.queued = int((c.state[: c.n] == 1).sum())
    for name, raw in s.memory.items():
        values = _floats(raw)  # fewer than jobs, where the policy has not asked since some came
        state.memory.column(name, c.n)[: len(values)] = values


def _floats(raw: bytes) -> Any:
    import numpy as np

    return np.frombuffer(raw, np.float64)
