"""The story and the claims."""

from __future__ import annotations

import pytest
from demo_world import CLUSTER, PROFILE

from haibun.demo.checks import Agreement, agreement, checks, left_check, order_check
from haibun.demo.conduct import Observed
from haibun.demo.outcome import Outcome, as_json, write_report
from haibun.demo.record import Record, replayed
from haibun.demo.screen import news
from haibun.demo.story import Story
from haibun.demo.workload import POLICY


def test_a_run_as_it_should_be_meets_every_claim(live: Record, seen: Observed) -> None:
    assert [c.claim for c in checks(live, seen, "urgent") if not c.holds] == []


def test_a_preempted_job_that_goes_on_elsewhere_is_found_out(live: Record, seen: Observed) -> None:
    job = seen.ids["ddp"]
    seen.restored[job, 2] -= 1
    assert _broken(live, seen) == ["preempted jobs go on at the very step at which they were stopped"]
    del seen.restored[job, 2]
    assert _broken(live, seen) == ["preempted jobs go on at the very step at which they were stopped"]


def test_a_lost_checkpoint_is_found_out(live: Record, seen: Observed) -> None:
    seen.restored[seen.ids["gpt"], 2] = 59
    assert _broken(live, seen) == ["the killed worker's job loses no checkpointed step"]


def test_no_kill_is_no_recovery(live: Record, seen: Observed) -> None:
    seen.killed = None
    assert _broken(live, seen) == ["the killed worker's job loses no checkpointed step"]


def test_a_job_that_takes_nothing_is_not_said_to(live: Record, seen: Observed) -> None:
    assert not next(c for c in checks(live, seen, "cnn") if c.claim.startswith("cnn takes")).holds


def test_the_first_start_that_differs_is_named() -> None:
    check = order_check(Agreement(("a", "b"), ("a", "c"), {"a": 0.0}))
    assert not check.holds
    assert "start 2 is b live and c in the twin" in check.evidence


def test_a_process_left_behind_is_named() -> None:
    assert not left_check({4711}).holds
    assert left_check(set()).holds


def test_a_job_that_did_not_end_counts_as_wholly_wrong() -> None:
    assert Agreement((), (), {"a": float("nan"), "b": float("nan"), "c": 0.1}).median_error == float("inf")


def test_the_story_names_jobs_and_reasons(live: Record, seen: Observed) -> None:
    told = Story(live, seen.restored).tell()
    text = "\n".join(moment.text for moment in told)
    assert [m.at for m in told] == sorted(m.at for m in told)
    assert "ddp is asked for its devices: ranked" in text
    assert "below urgent, which needs its devices" in text
    assert "gpt fails at step 72: rank 0 was killed by SIGKILL; step 60 is safe" in text
    assert "gpt goes on from step 60 on device 0" in text
    assert "job 4" not in text


@pytest.mark.parametrize(
    ("state", "why", "said"),
    [
        ("queued", "queued", "gpt is queued"),
        ("queued", "ranked 1 by priority, below job 7", "gpt is queued: ranked 1 by priority, below urgent"),
        ("succeeded", "ended: succeeded", "gpt succeeded"),
        ("cancelled", "below job 8", "gpt was cancelled: below job 8"),
    ],
)
def test_news_of_a_job_says_nothing_twice_and_names_others(state: str, why: str, said: str) -> None:
    from fake_controller import job_view

    job = job_view("4", "gpt", state=state, why=why)
    assert news(job, [job, job_view("7", "urgent")]) == said


def test_the_outcome_is_one_page_and_one_object(live: Record, seen: Observed, tmp_path: object) -> None:
    from pathlib import Path

    report = Path(str(tmp_path), "report.html")
    twin = replayed(live, CLUSTER, POLICY, PROFILE)
    told = Story(live, seen.restored).tell()
    claims = checks(live, seen, "urgent")
    outcome = Outcome(live, twin, told, agreement(live, twin), claims, PROFILE, ["A note."], report, 60.0)
    write_report(outcome)
    page = report.read_text(encoding="utf-8")
    assert "short-gpt" in page
    assert "A note." in page
    assert 'class="best"' not in page  # live beside the twin is no contest
    found = as_json(outcome)
    assert found["ok"] is True
    assert found["median_jct_error"] == pytest.approx(0.0, abs=1e-6)


def _broken(live: Record, seen: Observed) -> list[str]:
    return [c.claim for c in checks(live, seen, "urgent") if not c.holds]
