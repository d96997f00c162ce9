"""A journal folded, and replayed in the twin."""

from __future__ import annotations

import pytest
from demo_world import CLUSTER, PROFILE, ZERO

from haibun.core.events import AnyEvent, JobSubmitted
from haibun.core.vocabulary import Job, Shape
from haibun.demo.checks import agreement
from haibun.demo.record import Record, fold, replayed
from haibun.demo.workload import POLICY
from haibun.twin.replay import History


def test_a_folded_journal_tells_what_happened(written: tuple[list[AnyEvent], History], live: Record) -> None:
    assert live.history.spans == written[1].spans
    assert live.zero == ZERO
    assert live.starts()[:4] == ["gpt", "cnn", "ddp", "gpt, attempt 2"]


def test_events_of_other_jobs_change_nothing(written: tuple[list[AnyEvent], History], live: Record) -> None:
    other = Job("1", (Shape(4),), name="measured before")
    events = [JobSubmitted(ZERO - 10.0, other), *written[0]]
    again = fold(events, [job.id for job in live.jobs], CLUSTER, POLICY, PROFILE.table())
    assert again.history.spans == live.history.spans


def test_a_run_that_went_as_profiled_is_foretold_exactly(live: Record) -> None:
    found = agreement(live, replayed(live, CLUSTER, POLICY, PROFILE))
    assert found.same_order
    assert found.median_error == pytest.approx(0.0, abs=1e-6)
    assert set(found.errors) == {"gpt", "cnn", "ddp", "short-cnn", "short-gpt", "urgent"}
