"""A run of the demo's jobs as a journal would hold it: the twin's, with every event written down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from haibun.core.actions import Action
from haibun.core.engine import Engine
from haibun.core.events import AnyEvent
from haibun.core.vocabulary import Cluster, DeviceGroup, Job, Node, Shape
from haibun.demo.profile import Profile
from haibun.demo.workload import FULL
from haibun.twin.costs import Costs

CLUSTER = Cluster((Node("here", (DeviceGroup("cpu", 4),)),))
PROFILE = Profile(
    "cpu",
    "made up",
    {"gpt": 15.0, "cnn": 12.0, "ddp": 20.0},
    {
        "gpt": Costs(start=1.2, resume=1.4, checkpoint=0.4, stop=0.4),
        "cnn": Costs(start=1.0, resume=1.1, checkpoint=0.4, stop=0.4),
        "ddp": Costs(start=2.0, resume=2.2, checkpoint=0.7, stop=0.7),
    },
)
ZERO = 1_796_000_000.0  # Unix time, as live
DURABLE = 60.0


class Writing(Engine):
    """Writes down all that it is handed and decides."""

    written: list[AnyEvent]

    def handle(self, events: Iterable[AnyEvent], now: float, record: Any = None) -> list[Action]:
        return super().handle(events, now, self.written.append)


def jobs() -> list[Job]:
    return [
        Job(
            str(i + 4),
            (Shape(p.kind.devices),),
            name=p.name,
            priority=p.priority,
            model=p.kind.name,
            total_steps=round(p.seconds * PROFILE.rates[p.kind.name]),
            retries=2,
        )
        for i, p in enumerate(FULL.plans)
    ]
