"""Rows for people: what they tell of jobs and attempts, and that a crash loses none."""

from __future__ import annotations

from haibun.app import make_engine
from haibun.core import snapshot
from haibun.core.events import (
    AnyEvent,
    AttemptFailed,
    AttemptProgressed,
    AttemptStarted,
    AttemptStopped,
    JobCancelled,
    JobPaused,
    JobSubmitted,
    NodeLost,
)
from haibun.core.vocabulary import Cluster, DeviceGroup, Job, Node, Shape
from haibun.run.history import History
from haibun.store import AttemptRow, JobRow


class Told:
    """An engine whose every event a history sees."""

    def __init__(self) -> None:
        self.engine = make_engine(Cluster((Node("n", (DeviceGroup("cpu", 2),)),)))
        self.history = History(self.engine.state)
        self.jobs: dict[str, JobRow] = {}
        self.attempts: dict[tuple[str, int], AttemptRow] = {}

    def go(self, *events: AnyEvent) -> None:
        kept: list[AnyEvent] = []
        for event in events:
            self.engine.apply(event)
            self.history.note(event)
        self.engine.state.dirty = True
        self.engine.handle([], events[-1].at, kept.append)
        for event in kept:
            self.history.note(event)

    def write(self) -> None:
        jobs, attempts = self.history.take()
        self.jobs |= {row.id: row for row in jobs}
        self.attempts |= {(row.job, row.epoch): row for row in attempts}


def job(name: str, retries: int = 0, priority: int = 0) -> JobSubmitted:
    return JobSubmitted(1.0, Job(name, (Shape(2),), retries=retries, priority=priority))


def test_an_attempt_is_open_until_it_ends_and_then_says_how() -> None:
    t = Told()
    t.go(job("1", retries=1))
    t.go(AttemptStarted(2.0, "1", 1))
    t.write()
    assert t.attempts["1", 1] == AttemptRow("1", 1, 1.0, nodes=("n",), devices=(0, 1))
    assert t.jobs["1"].state == "running"
    t.go(AttemptProgressed(3.0, "1", 1, 9.0, 5.0))
    t.go(AttemptFailed(4.0, "1", 1, "boom", 9.0, 5.0))
    t.write()
    row = t.attempts["1", 1]
    assert (row.ended, row.outcome, row.cause, row.steps, row.durable) == (4.0, "failed", "boom", 9.0, 5.0)
    assert (t.jobs["1"].state, t.jobs["1"].failures) == ("recovering", 1)


def test_a_stopped_attempt_says_why_it_was_stopped() -> None:
    for ask, outcome in (
        (JobPaused(3.0, "1"), "paused"),
        (JobCancelled(3.0, "1"), "cancelled"),
        (job("2", priority=5), "preempted"),
        (None, "stopped"),
    ):
        t = Told()
        t.go(job("1"))
        t.go(AttemptStarted(2.0, "1", 1))
        if ask is not None:
            t.go(ask)
        t.go(AttemptStopped(4.0, "1", 1, 0.0, 0.0))
        t.write()
        assert t.attempts["1", 1].outcome == outcome


def test_a_lost_node_is_named() -> None:
    t = Told()
    t.go(job("1"))
    t.go(NodeLost(3.0, "n"))
    t.write()
    assert (t.attempts["1", 1].outcome, t.attempts["1", 1].cause) == ("lost", "node n was lost")


def test_rows_that_could_not_be_written_are_kept_and_newer_ones_win() -> None:
    t = Told()
    t.go(job("1"))
    taken = t.history.take()
    t.go(JobCancelled(2.0, "1"))
    t.go(AttemptStopped(3.0, "1", 1, 0.0, 0.0))
    t.history.give_back(*taken)
    t.write()
    assert t.jobs["1"].state == "cancelled"
    assert t.attempts["1", 1].outcome == "cancelled"


def test_from_a_snapshot_and_the_events_since_the_same_rows_come_again() -> None:
    t = Told()
    t.go(job("1"))
    t.write()
    blob = snapshot.dump(t.engine.state)
    later = [AttemptStarted(2.0, "1", 1), JobCancelled(3.0, "1"), AttemptStopped(4.0, "1", 1, 7.0, 7.0)]
    t.go(*later)
    lost = t.history.take()  # the crash comes before they are written
    state = snapshot.load(blob)
    again = History(state)
    from haibun.core.life import apply

    for event in later:
        apply(state, event)
        again.note(event)
    assert again.take() == lost
