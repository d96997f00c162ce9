"""A policy is anything that ranks: nothing else is asked of it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from haibun.core.engine import Engine, Stages
from haibun.core.events import JobSubmitted, NodeJoined
from haibun.core.stages import Ranked, Ranking
from haibun.core.state import Delta, State
from haibun.core.view import View
from haibun.core.vocabulary import DeviceGroup, Job, Node, Shape
from haibun.place.consolidated import Consolidated


class Newest:
    """Last in, first out, written without any base class."""

    name: ClassVar[str] = "newest"

    def rank(self, view: View, delta: Delta, now: float) -> Ranked:
        rows = np.concatenate([view.waiting(), view.running()])
        return Ranked(Ranking.of(rows[np.argsort(-view.jobs.submitted[rows], kind="stable")], view))


def test_a_policy_that_only_ranks_schedules() -> None:
    engine = Engine(State(), Stages(Newest(), Consolidated()))
    engine.apply(NodeJoined(0.0, Node("n", (DeviceGroup("gpu", 1),))))
    engine.apply(JobSubmitted(1.0, Job("old", (Shape(1),))))
    (started,) = engine.handle([JobSubmitted(2.0, Job("new", (Shape(1),)))], 2.0)
    assert started.job == "new"
