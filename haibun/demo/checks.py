"""What the demo claims, held against what happened."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from msgspec import Struct

from haibun.core.events import AttemptFailed, AttemptProgressed, AttemptStopped, Decided
from haibun.core.vocabulary import JobState
from haibun.demo.conduct import Killed, Observed
from haibun.demo.profile import Profile
from haibun.demo.record import Record


class Check(Struct, frozen=True):
    """A claim, whether it holds, and how that is known."""

    claim: str
    holds: bool
    evidence: str


class Agreement(Struct, frozen=True):
    """Twin against live: ``errors`` by job name, (twin - live) / live; nan where a job did not end in one of them."""

    live_starts: tuple[str, ...]
    twin_starts: tuple[str, ...]
    errors: dict[str, float]

    @property
    def same_order(self) -> bool:
        """Whether the same attempts started in the same order."""
        return self.live_starts == self.twin_starts

    @property
    def median_error(self) -> float:
        """Median of the absolute errors."""
        return statistics.median(abs(e) if e == e else math.inf for e in self.errors.values())


def agreement(live: Record, twin: Record) -> Agreement:
    """Hold two runs of the same jobs against each other."""
    errors = {
        job.name: (twin.completion(job.id) - live.completion(job.id)) / live.completion(job.id)
        for job in live.jobs
    }
    return Agreement(tuple(live.starts()), tuple(twin.starts()), errors)


def drift(live: Record, profile: Profile) -> float:
    """How far the speeds of a live run lay from the profile: the median over attempts of |live / profile - 1|."""
    last = {(e.job, e.epoch): e for e in live.events if isinstance(e, AttemptProgressed) and e.rate}
    off = []
    for event in last.values():
        job = live.state.jobs.job(live.state.jobs.row_of[event.job])
        if job.model is not None and event.rate is not None:
            off.append(abs(event.rate / profile.rates[job.model] - 1.0))
    return statistics.median(off) if off else 0.0


def checks(live: Record, seen: Observed, urgent: str) -> list[Check]:
    """Of the live run."""
    return [_all_succeeded(live), _preempted(live, urgent), _continued(live, seen), _recovered(live, seen)]


def order_check(found: Agreement) -> Check:
    """Of the twin."""
    differ = next(_differences(found), "")
    return Check(
        "in the twin, the same jobs start in the same order",
        found.same_order,
        f"{len(found.live_starts)} starts" + (f"; {differ}" if differ else ""),
    )


def left_check(left: set[int]) -> Check:
    """Of the end."""
    return Check(
        "no process is left behind",
        not left,
        f"had to be killed: {sorted(left)}" if left else "all have ended",
    )


def _differences(found: Agreement) -> Iterator[str]:
    longest = max(len(found.live_starts), len(found.twin_starts))
    for i in range(longest):
        a, b = (s[i] if i < len(s) else "nothing" for s in (found.live_starts, found.twin_starts))
        if a != b:
            yield f"start {i + 1} is {a} live and {b} in the twin"


def _all_succeeded(live: Record) -> Check:
    states = {job.name: live.state.jobs.state(live.state.jobs.row_of[job.id]) for job in live.jobs}
    bad = [f"{name} {state.name.lower()}" for name, state in states.items() if state != JobState.SUCCEEDED]
    return Check("all jobs succeed", not bad, ", ".join(bad) or f"{len(states)} of {len(states)}")


def _preempted(live: Record, urgent: str) -> Check:
    claim = f"{urgent} takes devices from a job of lower priority"
    for event in live.events:
        if not isinstance(event, Decided):
            continue
        taker = [p.jobs[0] for p in event.decision.place if live.name(p.jobs[0]) == urgent]
        victims = [e.job for e in event.decision.evict]
        if taker and victims:
            names = ", ".join(map(live.name, victims))
            return Check(
                claim,
                True,
                f"{names} was asked at {event.at - live.zero:.1f} s and {urgent} placed in its stead",
            )
    return Check(claim, False, "no decision took devices for it")


def _continued(live: Record, seen: Observed) -> Check:
    """Each preempted attempt left at a step that the next one began from."""
    claim = "preempted jobs go on at the very step at which they were stopped"
    told: list[str] = []
    wrong: list[str] = []
    for event in live.events:
        if not isinstance(event, AttemptStopped):
            continue
        restored = seen.restored.get((event.job, event.epoch + 1))
        what = f"{live.name(event.job)} {event.step:,.0f} -> {'not seen' if restored is None else f'{restored:,}'}"
        (told if restored == event.step == event.durable else wrong).append(what)
    return Check(claim, bool(told) and not wrong, ", ".join(wrong or told) or "none was preempted")


def _recovered(live: Record, seen: Observed) -> Check:
    claim = "the killed worker's job loses no checkpointed step"
    killed = seen.killed
    if killed is None:
        return Check(claim, False, "no worker could be killed: its job never had a checkpoint behind it")
    failures = [e for e in live.events if isinstance(e, AttemptFailed)]
    return Check(claim, _is_recovered(killed, failures, seen), _recovery(live, killed, failures, seen))


def _is_recovered(killed: Killed, failures: list[AttemptFailed], seen: Observed) -> bool:
    if [(e.job, e.epoch) for e in failures] != [(killed.job, killed.epoch)]:
        return False
    restored = seen.restored.get((killed.job, killed.epoch + 1), -1)
    return restored >= killed.durable and restored >= failures[0].durable and "SIGKILL" in failures[0].cause


def _recovery(live: Record, killed: Killed, failures: list[AttemptFailed], seen: Observed) -> str:
    restored = seen.restored.get((killed.job, killed.epoch + 1))
    told = (
        f"{live.name(killed.job)} had done {killed.step:,} steps, {killed.durable:,} of them durable, when "
    )
    told += f"rank {killed.rank} (process {killed.pid}) was killed; "
    told += "it was not seen to go on" if restored is None else f"it went on from step {restored:,}"
    others = len(failures) - 1
    return told + (f"; {others} other attempts failed" if others > 0 else "")
