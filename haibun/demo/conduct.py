"""The live run: jobs are submitted at their times, one worker is killed, and what boards show is written down."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from haibun.client import Client
from haibun.demo.cluster import Live
from haibun.demo.errors import DemoError
from haibun.demo.profile import Profile
from haibun.demo.workload import Plan, Scenario, spec
from haibun.run.views import JobView, Overview

LOOK = 0.5  # seconds between looks; each costs the controller a few milliseconds
PATIENCE = 4.0  # times the expected length, after which the run has gone wrong
SLACK = 60.0
ENDED = frozenset(("succeeded", "failed", "cancelled"))


@dataclass(frozen=True, slots=True)
class Killed:
    """A worker that was killed: where its job stood on the board just before."""

    job: str
    epoch: int
    rank: int
    pid: int
    step: int
    durable: int


@dataclass(slots=True)
class Observed:
    """``restored``: by job and epoch, the step that an attempt began from, as its workers said.

    ``went_on``: by name, when a job was first seen to go on from a checkpoint, in seconds since the first submission.
    """

    ids: dict[str, str] = field(default_factory=dict)  # by name
    restored: dict[tuple[str, int], int] = field(default_factory=dict)
    went_on: dict[str, float] = field(default_factory=dict)
    killed: Killed | None = None

    def due(self, plan: Plan) -> float:
        """When a job is to be submitted, in seconds since the first; inf: what it waits for has not happened."""
        return plan.at + (self.went_on.get(plan.after, math.inf) if plan.after else 0.0)


Show = Callable[[Overview, float], None]


def conduct(live: Live, scenario: Scenario, profile: Profile, workdir: Path, show: Show) -> Observed:
    """Run the scenario to its end.

    Args:
        show: called twice a second with how things are, and the seconds since the first submission.

    Raises:
        DemoError: the jobs do not end in several times the time that they should take.
    """
    seen, waiting = Observed(), list(scenario.plans)
    began = time.monotonic()
    limit = SLACK + PATIENCE * sum(plan.at + plan.seconds for plan in scenario.plans) / 2
    while True:
        now = time.monotonic() - began
        due = [plan for plan in waiting if seen.due(plan) <= now]
        if due:
            waiting = [plan for plan in waiting if plan not in due]
            _submit(live.client, due, profile, workdir, seen)
        overview = live.client.top()
        mine = [job for job in overview.jobs if job.id in seen.ids.values()]
        _read_boards(live, mine, seen, now)
        if seen.killed is None and now >= scenario.kill.at:
            _kill(live, mine, scenario, seen)
        show(overview, now)
        if not waiting and all(job.state in ENDED for job in mine):
            return seen
        if now > limit:
            stuck = ", ".join(f"{job.name} ({job.state})" for job in mine if job.state not in ENDED)
            raise DemoError(f"after {now:.0f} s these jobs have not ended: {stuck}")
        _sleep(began, LOOK, *map(seen.due, waiting), scenario.kill.at)


def _sleep(began: float, pause: float, *times: float) -> None:
    """For ``pause`` seconds, or until the first of ``times`` that is still to come."""
    now = time.monotonic() - began
    time.sleep(max(0.0, min([pause, *(at - now for at in times if at > now)])))


def _submit(client: Client, plans: list[Plan], profile: Profile, workdir: Path, seen: Observed) -> None:
    specs = [
        spec(p.name, p.kind, max(1, round(p.seconds * profile.rates[p.kind.name])), workdir, p.priority)
        for p in plans
    ]
    ids = client.submit(*specs)
    seen.ids.update(zip((p.name for p in plans), ids, strict=True))


def _read_boards(live: Live, jobs: list[JobView], seen: Observed, now: float) -> None:
    for job in jobs:
        if job.state != "running" or (job.id, job.attempts) in seen.restored:
            continue
        board = live.board(job.id, job.attempts)
        if board is not None and all(s.attached and s.beat and s.step > s.restored for s in board.slots):
            seen.restored[job.id, job.attempts] = min(int(slot.restored) for slot in board.slots)
            if job.attempts > 1:
                seen.went_on.setdefault(job.name, now)


def _kill(live: Live, jobs: list[JobView], scenario: Scenario, seen: Observed) -> None:
    """Once its job has a checkpoint and has gone on since: then a step can be lost, and must not be."""
    job = next((j for j in jobs if j.name == scenario.kill.job and j.state == "running"), None)
    board = live.board(job.id, job.attempts) if job is not None else None
    if job is None or board is None:
        return
    slot = board.slots[scenario.kill.rank]
    durable, step, pid = max(int(s.durable) for s in board.slots), int(slot.step), int(slot.pid)
    if not slot.attached or durable <= int(slot.restored) or step <= durable:
        return
    os.kill(pid, signal.SIGKILL)
    seen.killed = Killed(job.id, job.attempts, scenario.kill.rank, pid, step, durable)
