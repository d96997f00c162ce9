"""What can never be placed is refused in words that say what would do."""

from __future__ import annotations

import pytest

from haibun.app import make_engine
from haibun.core.admission import AdmissionError, admit
from haibun.core.vocabulary import Cluster, DeviceGroup, Job, Locality, Node, Shape

CLUSTER = Cluster(
    (
        Node("a", (DeviceGroup("v100", 4),), cpus=16.0, memory=64 << 30),
        Node("b", (DeviceGroup("k80", 2),), site="far", cpus=8.0, memory=32 << 30),
    )
)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (Job("j", (Shape(5),)), r"5 devices can never .* offers 4 v100 on one site or 2 k80 on one site"),
        (Job("j", (Shape(2, "h100"),)), r"'h100'; this cluster has: k80, v100"),
        (Job("j", (Shape(1),), cpus=17.0), r"17 CPUs for each device; no node has more than 16"),
        (
            Job("j", (Shape(1),), memory=65 << 30),
            r"65.0 GiB of memory for each device; no node has more than 64.0 GiB",
        ),
        (
            Job("j", (Shape(4, "v100"),), memory=32 << 30),
            r"4 devices with 32.0 GiB of memory each .* offers 2 v100",
        ),
        (Job("j", (Shape(4, "v100", Locality.ANY, 2),)), r"on exactly 2 nodes .* offers 2 v100"),
        (Job("j", (Shape(1),), depends_on=("nobody",)), r"depends on job nobody"),
    ],
)
def test_what_can_never_be_placed_is_refused_with_what_would_do(job: Job, says: str) -> None:
    with pytest.raises(AdmissionError, match=says):
        admit(make_engine(CLUSTER).state, job)


def test_before_the_first_node_has_joined_any_gang_may_be_possible() -> None:
    engine = make_engine(Cluster(()))
    admit(engine.state, Job("j", (Shape(1000, "anything"),)))
    assert not engine.state.jobs.row_of, "admitting a job changes nothing"
