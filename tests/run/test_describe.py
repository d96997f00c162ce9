"""What people are shown of jobs that only the tables remember, and of very many."""

from __future__ import annotations

from haibun.app import make_engine
from haibun.core.events import JobSubmitted
from haibun.core.vocabulary import Cluster, DeviceGroup, Job, Node, Shape
from haibun.run import describe
from haibun.run.agents import Agents
from haibun.store import JobRow


class NoAgents(Agents):
    """Nobody is connected."""

    def __init__(self) -> None:
        self.lines = {}

    def status(self, job: str, epoch: int) -> None:
        return None


def test_a_retired_job_is_shown_from_its_row() -> None:
    row = JobRow("7", "n", "t", 3, 2, "failed", 1.0, 2.0, 3.0, 1, 2, 5.0, 9.0, reason="attempt 1 failed: x")
    view = describe.old_job_view(row, None, attempts=3)
    assert (view.id, view.state, view.attempts, view.step, view.total) == ("7", "failed", 3, 5.0, 9.0)
    assert view.exit == view.why == "attempt 1 failed: x"
    told = describe.old_explanation(row, make_engine(Cluster((Node("a", (DeviceGroup("cpu", 1),)),))).state)
    assert (told.state, told.since, told.reasons) == ("failed", 3.0, ("attempt 1 failed: x",))


def test_an_overview_shows_all_that_run_and_the_first_that_wait() -> None:
    engine = make_engine(Cluster((Node("a", (DeviceGroup("cpu", 1),)),)))
    jobs = [Job(str(i), (Shape(1),), priority=i % 3) for i in range(1, describe.MOST_WAITING + 50)]
    engine.handle([JobSubmitted(float(i), job) for i, job in enumerate(jobs)], 500.0)
    over = describe.overview(engine.state, NoAgents(), lambda _: None, 500.0, None)
    assert over.counts == {"starting": 1, "queued": len(jobs) - 1}
    assert len(over.jobs) == 1 + describe.MOST_WAITING
    assert over.jobs[0].state == "starting"
    assert over.jobs[1].priority == 2, "those that come first"
    (node,) = over.nodes
    assert (node.connected, node.holders) == (False, (over.jobs[0].id,))
