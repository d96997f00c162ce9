"""Controllers, agents and workers die, and no job is lost, run twice, or left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_harness import alive
from up_harness import Haibun, assert_ran_once, enough, haibun_up, steps, until

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Haibun]:
    with haibun_up(tmp_path_factory.mktemp("crash"), virtual_devices=3) as h:
        yield h


@pytest.fixture(autouse=True)
def _nothing_is_left(here: Haibun) -> Iterator[None]:
    yield
    here.assert_idle()


def test_a_controller_that_is_killed_comes_back_and_no_job_dies_is_lost_or_runs_twice(
    here: Haibun, tmp_path: Path
) -> None:
    outs = [tmp_path / f"out-{i}" for i in range(3)]
    long = here.stepper(outs[0], name="long")
    ends_meanwhile = here.stepper(outs[1], 60, name="ends")
    fails = here.shell(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 7", name="fails")
    waits = here.stepper(outs[2], 20, resources={"devices": 3}, name="waits")
    until(lambda: all(len(steps(out)) > 5 for out in outs[:2]), "two run")
    here.until(fails, "running")
    pids = here.pids(long)
    here.kill()
    (tmp_path / "go").touch()
    until(lambda: len(steps(outs[1])) == 60, "one ends while nobody listens")
    here.start()
    assert here.view(long).state == "running"
    assert here.pids(long) == pids
    assert here.client.wait(ends_meanwhile, 20).state == "succeeded"
    assert here.client.wait(fails, 20).exit == "attempt 1 failed: rank 0 exited with code 7; no retries left"
    here.kill()  # once more, and with what has just been written
    here.start()
    assert here.pids(long) == pids
    enough(outs[0])
    for job, out in ((long, outs[0]), (ends_meanwhile, outs[1]), (waits, outs[2])):
        view = here.client.wait(job, 20)
        assert (view.state, view.attempts, view.step) == ("succeeded", 1, len(steps(out)))
        assert_ran_once(out)
    assert [a.outcome for a in here.client.show(ends_meanwhile).attempts] == ["succeeded"]


def test_a_job_submitted_just_before_the_crash_is_there(here: Haibun, tmp_path: Path) -> None:
    jobs = [here.shell(f"echo x >> {tmp_path}/ran-{i}") for i in range(20)]
    here.kill()
    here.start()
    for i, job in enumerate(jobs):
        assert here.client.wait(job, 20).state == "succeeded"
        assert (tmp_path / f"ran-{i}").read_text() == "x\n", "it ran once"


def test_a_killed_worker_is_retried_from_its_last_durable_step(here: Haibun, tmp_path: Path) -> None:
    job = here.stepper(tmp_path / "out", 120, retries=1)
    until(lambda: len(steps(tmp_path / "out")) > 20, "it makes steps")
    os.kill(steps(tmp_path / "out")[-1][0], signal.SIGKILL)
    view = here.client.wait(job, 20)
    assert (view.state, view.attempts, view.failures) == ("succeeded", 2, 1)
    assert view.why == "ended: succeeded"
    assert_ran_once(tmp_path / "out", 120)
    first = here.client.show(job).attempts[0]
    assert (first.outcome, first.cause) == ("failed", "rank 0 was killed by SIGKILL")


def test_a_stopped_worker_is_noticed_by_its_missing_steps_and_recovered(here: Haibun, tmp_path: Path) -> None:
    job = here.stepper(tmp_path / "out", 80, retries=1, hang_after=0.8)
    until(lambda: len(steps(tmp_path / "out")) > 20, "it makes steps")
    os.kill(steps(tmp_path / "out")[-1][0], signal.SIGSTOP)
    view = here.client.wait(job, 20)
    assert (view.state, view.attempts) == ("succeeded", 2)
    assert "hung at step" in here.client.show(job).attempts[0].cause
    assert_ran_once(tmp_path / "out", 80)


def test_a_killed_agent_leaves_nothing_behind_and_its_jobs_go_on(here: Haibun, tmp_path: Path) -> None:
    jobs = [here.stepper(tmp_path / f"out-{i}", 150) for i in range(2)]
    until(lambda: all(len(steps(tmp_path / f"out-{i}")) > 20 for i in range(2)), "they run")
    former, pids = here.agent(), [p for job in jobs for p in here.pids(job)]
    os.kill(former, signal.SIGKILL)
    for i, job in enumerate(jobs):
        view = here.client.wait(job, 20)
        assert (view.state, view.attempts, view.failures) == ("succeeded", 2, 0)
        assert_ran_once(tmp_path / f"out-{i}", 150)
        assert here.client.show(job).attempts[0].outcome == "lost"
    assert here.agent() != former
    assert not any(alive(p) for p in pids)


def test_controller_and_agent_are_killed_together(here: Haibun, tmp_path: Path) -> None:
    job = here.stepper(tmp_path / "out", 100)
    until(lambda: len(steps(tmp_path / "out")) > 20, "it runs")
    os.kill(here.agent(), signal.SIGKILL)
    here.kill()
    here.start()
    view = here.client.wait(job, 25)
    assert (view.state, view.failures) == ("succeeded", 0)
    assert_ran_once(tmp_path / "out", 100)
