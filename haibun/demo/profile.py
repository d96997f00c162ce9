"""What a machine does with each kind of job, measured before the run and frozen: speeds, costs of starts and stops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from haibun.core.events import AnyEvent, AttemptProgressed, AttemptStopped, Decided
from haibun.core.vocabulary import JobId
from haibun.demo.errors import DemoError
from haibun.demo.workload import KINDS
from haibun.profile import ThroughputTable
from haibun.twin.costs import Costs

Say = Callable[[str], None]


class Profile(Struct, frozen=True):
    """``rates`` in steps/s and ``costs`` in seconds, by kind; ``device_type``: on which devices they hold."""

    device_type: str
    machine: str
    rates: Mapping[str, float]
    costs: Mapping[str, Costs]

    def table(self) -> ThroughputTable:
        """The rates as the twin takes them."""
        table = ThroughputTable()
        for kind in KINDS:
            table.set(kind.name, self.device_type, kind.devices, self.rates[kind.name])
        return table

    def write(self, path: Path) -> None:
        """Keep it for the next run."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def read(path: Path, machine: str) -> Profile | None:
    """The profile in a file, if there is one and it was made on such a machine with such jobs."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Profile)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.machine == machine else None


class Fit(Struct, frozen=True):
    """One job as measured: ``rate`` in steps/s; the rest in seconds, as in ``Costs``."""

    rate: float
    start: float
    resume: float
    stop: float

    def costs(self) -> Costs:
        """As the twin takes them.

        A job that is told to yield saves and ends just as one that is done: ``checkpoint`` and ``stop`` are the same.
        """
        return Costs(start=self.start, resume=self.resume, checkpoint=self.stop, stop=self.stop)


class _Life(Struct):
    """One attempt in the journal: when it was decided, from which step, reports, the end.

    ``first`` and ``seen`` are the first and the last report; ``late`` the last of an earlier step than ``seen``.
    """

    decided: float
    began: float = 0.0
    first: AttemptProgressed | None = None
    seen: AttemptProgressed | None = None
    late: AttemptProgressed | None = None
    ended: AttemptStopped | None = None


def fit(events: Iterable[AnyEvent], job: JobId) -> Fit:
    """Rate and costs of a job that ran, was stopped, ran again and was stopped again.

    In the twin, step ``k`` of an attempt that began from step ``b`` is done at ``decided + start + (k - b) / rate``.
    The rate comes from the workers' own beats, once they are under way; ``start`` is what then fits the first report,
    ``stop`` what is left after a late one until the devices are free.

    Raises:
        DemoError: the journal does not tell of two such attempts.
    """
    lives = _lives(events, job)
    whole = [life for life in lives if life.seen is not None and life.ended is not None]
    if len(whole) < 2:
        raise DemoError(f"measuring job {job} failed: it was not seen to run and stop twice")
    rate = _rate(whole)
    starts = [_start(life, rate) for life in whole]
    stops = [_stop(life, rate) for life in whole]
    resume = sum(starts[1:]) / len(starts[1:])
    # The very first start also reads libraries from disk, which no later one does; else a resume costs the more.
    return Fit(rate, min(starts[0], resume), resume, sum(stops) / len(stops))


def _lives(events: Iterable[AnyEvent], job: JobId) -> list[_Life]:
    lives: list[_Life] = []
    for event in events:
        if isinstance(event, Decided):
            if any(job in place.jobs for place in event.decision.place):
                began = lives[-1].ended.durable if lives and lives[-1].ended else 0.0
                lives.append(_Life(event.at, began))
        elif lives and isinstance(event, AttemptProgressed) and event.job == job:
            if event.rate and event.step > lives[-1].began:
                life = lives[-1]
                life.first = life.first or event
                if life.seen is not None and life.seen.step < event.step:
                    life.late = life.seen
                life.seen = event
        elif lives and isinstance(event, AttemptStopped) and event.job == job:
            lives[-1].ended = event
    return lives


def _rate(lives: list[_Life]) -> float:
    """Steps in all over the time they took: the longer attempt weighs more."""
    parts = [_steady(life) for life in lives]
    seconds = sum(seconds for _, seconds in parts)
    if not seconds:
        raise DemoError("a job made no steps while it was measured")
    return sum(steps for steps, _ in parts) / seconds


def _steady(life: _Life) -> tuple[float, float]:
    """Steps of an attempt and their seconds, from the first report to the last: slow first steps belong to the start.

    A report's rate is that of all beats since the attempt began: how long they took follows from it, without the delay
    with which the report came.
    """
    assert life.first is not None
    assert life.seen is not None
    steps, seconds = life.seen.step - life.began, _beats(life, life.seen)
    if life.seen.step <= life.first.step:
        return steps, seconds
    return life.seen.step - life.first.step, max(0.0, seconds - _beats(life, life.first))


def _beats(life: _Life, report: AttemptProgressed) -> float:
    return (report.step - life.began) / (report.rate or math.inf)


def _start(life: _Life, rate: float) -> float:
    """By the first report: a speed that changes later must not count as a slow or quick start."""
    assert life.first is not None
    return max(0.0, life.first.at - life.decided - (life.first.step - life.began) / rate)


def _stop(life: _Life, rate: float) -> float:
    """By the last report before the last step; that of the last step itself comes when all is saved."""
    report = life.late or life.first
    assert report is not None
    assert life.ended is not None
    return max(0.0, life.ended.at - report.at - (life.ended.step - report.step) / rate)
