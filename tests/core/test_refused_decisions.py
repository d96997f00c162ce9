"""A decision that contradicts the State is refused whole: a faulty policy changes nothing."""

from __future__ import annotations

import pytest

from haibun.app import make_engine
from haibun.core import snapshot
from haibun.core.decision import Decision, Evict, MemoryChange, Place
from haibun.core.events import AttemptStarted, Decided, JobSubmitted
from haibun.core.reasons import Reason, Why
from haibun.core.vocabulary import Cluster, DeviceGroup, Job, Node, Shape

WHY = Reason(Why.PLACED, (0, "x", 1, "gpu", "n"))


def place(job: str, *devices: int) -> Place:
    return Place((job,), devices, 0, WHY)


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        (Decision(place=(place("waits", 0),)), "another job has"),
        (Decision(place=(place("waits", 1, 1),)), "another job has"),
        (Decision(place=(place("runs", 1),)), "cannot be placed"),
        (Decision(evict=(Evict("waits", WHY),)), "cannot be evicted"),
        (Decision(evict=(Evict("runs", WHY), Evict("runs", WHY))), "cannot be evicted"),
        (Decision(place=(place("nobody", 1),)), "no job is named"),
        (
            Decision(evict=(Evict("runs", WHY),), place=(place("waits", 0), place("nobody", 1))),
            "no job is named",
        ),
        (
            Decision(memory=(MemoryChange("m", ("runs",), (1.0,)),), place=(place("runs", 1),)),
            "cannot be placed",
        ),
    ],
)
def test_a_decision_that_contradicts_the_state_changes_nothing(decision: Decision, says: str) -> None:
    engine = make_engine(Cluster((Node("n", (DeviceGroup("gpu", 2),)),)), "fifo")
    engine.handle([JobSubmitted(1.0, Job("runs", (Shape(1),)))], 1.0)
    engine.handle([AttemptStarted(2.0, "runs", 1)], 2.0)
    engine.apply(JobSubmitted(3.0, Job("waits", (Shape(2),))))
    engine.state.now = 4.0
    before = snapshot.dump(engine.state)
    with pytest.raises(ValueError, match=says):
        engine.apply(Decided(4.0, decision))
    assert snapshot.dump(engine.state) == before
