"""What users ask of jobs, in every state that these can be in, on real processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from up_harness import Haibun, assert_ran_once, haibun_up, steps, until

from haibun.client import ClientError

pytestmark = pytest.mark.live

# Takes SIGTERM as a hint only: it is stopping for as long as the test needs.
STUBBORN = "trap '' TERM; echo up; while true; do sleep 0.05; done"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Haibun]:
    with haibun_up(tmp_path_factory.mktemp("verbs"), virtual_devices=2) as h:
        yield h


@pytest.fixture(autouse=True)
def _nothing_is_left(here: Haibun) -> Iterator[None]:
    yield
    for view in here.client.ls():
        here.client.cancel(view.id)
    here.assert_idle()


def test_a_job_is_cancelled_in_every_state(here: Haibun, tmp_path: Path) -> None:
    running = here.shell(STUBBORN, name="running")
    starting = here.shell("true", setup="echo; sleep 600", name="starting")
    queued = here.shell("true", name="queued")
    pending = here.shell("true", depends_on=[queued], name="pending")
    paused = here.shell("true", name="paused")
    here.client.pause(paused)
    here.until(running, "running")
    here.until(starting, "starting")
    assert [here.view(j).state for j in (queued, pending, paused)] == ["queued", "pending", "paused"]
    for job in (pending, queued, paused, starting, running):
        here.client.cancel(job)
        here.until(job, "cancelled")
    assert here.client.show(running).attempts[0].outcome == "cancelled"
    here.client.cancel(running)  # nothing more
    assert here.view(running).why == "cancelled by its user"

    stopping = here.shell(STUBBORN, name="stopping")
    until(lambda: here.log(stopping) == "up\n", "it runs")
    here.client.pause(stopping)
    here.until(stopping, "stopping")
    here.client.cancel(stopping)
    here.until(stopping, "cancelled")

    held = here.shell(STUBBORN, name="held")
    here.until(held, "running")
    here.client.pause(held, hold=True)
    here.until(held, "paused")
    assert len(here.view(held).on) == 1, "a held job keeps its devices"
    here.client.cancel(held)
    here.until(held, "cancelled")

    recovering = here.shell("exit 1", retries=5, name="recovering")
    here.until(recovering, "recovering")
    here.client.cancel(recovering)
    here.until(recovering, "cancelled")


def test_a_job_that_depends_on_a_cancelled_one_is_cancelled_with_the_reason(here: Haibun) -> None:
    first = here.shell("sleep 600", name="first")
    then = here.shell("true", depends_on=["first"], name="then")
    here.until(first, "running")
    here.client.cancel(first)
    assert "did not succeed" in here.until(then, "cancelled").why


def test_jobs_run_after_those_they_depend_on_across_and_within_submissions(
    here: Haibun, tmp_path: Path
) -> None:
    def job(name: str, *needs: str) -> dict[str, object]:
        return {"name": name, "run": f"echo {name} >> {tmp_path}/order", "depends_on": list(needs)}

    here.client.submit(job("c", "b"), job("a"), job("b", "a"))
    d = here.client.submit(job("d", "c"))[0]
    assert here.client.wait(d, 20).state == "succeeded"
    assert (tmp_path / "order").read_text().split() == ["a", "b", "c", "d"]


def test_pause_saves_an_attached_job_and_resume_goes_on_from_there(here: Haibun, tmp_path: Path) -> None:
    job = here.stepper(tmp_path / "out", 80)
    until(lambda: len(steps(tmp_path / "out")) > 10, "it makes steps")
    here.client.pause(job)
    view = here.until(job, "paused")
    assert view.on == ()
    assert view.durable == len(steps(tmp_path / "out"))
    here.client.resume(job)
    view = here.client.wait(job, 20)
    assert (view.state, view.attempts, view.lost) == ("succeeded", 2, 0.0)
    assert_ran_once(tmp_path / "out", 80, durable_every=1)
    assert [a.outcome for a in here.client.show(job).attempts] == ["paused", "succeeded"]


def test_hold_keeps_process_and_devices(here: Haibun, tmp_path: Path) -> None:
    job = here.stepper(tmp_path / "out", 80)
    until(lambda: len(steps(tmp_path / "out")) > 10, "it makes steps")
    here.client.pause(job, hold=True)
    assert len(here.until(job, "paused").on) == 1
    told, pids = steps(tmp_path / "out"), here.pids(job)
    assert pids
    with pytest.raises(ClientError, match="only a running job can be held"):
        here.client.pause(job, hold=True)
    assert steps(tmp_path / "out") == told, "it stands still"
    here.client.resume(job)
    view = here.client.wait(job, 20)
    assert (view.state, view.attempts) == ("succeeded", 1)
    assert_ran_once(tmp_path / "out", 80)


def test_a_job_that_is_not_attached_is_paused_by_ending_it_and_held_by_freezing_it(
    here: Haibun, tmp_path: Path
) -> None:
    job = here.shell(f"while [ ! -e {tmp_path}/go ]; do echo x >> {tmp_path}/out; sleep 0.01; done")
    out = tmp_path / "out"
    until(out.exists, "it runs")
    here.until(job, "running")
    here.client.pause(job, hold=True)
    here.until(job, "paused")
    size = out.stat().st_size
    here.client.resume(job)
    until(lambda: out.stat().st_size > size, "it goes on")
    here.client.pause(job)
    assert here.until(job, "paused").on == ()
    here.client.resume(job)
    here.until(job, "running")
    (tmp_path / "go").touch()
    view = here.client.wait(job, 20)
    assert (view.state, view.attempts) == ("succeeded", 2)
    with pytest.raises(ClientError, match="has succeeded"):
        here.client.pause(job)


def test_a_job_of_higher_priority_takes_the_devices_and_the_other_resumes_where_it_was(
    here: Haibun, tmp_path: Path
) -> None:
    low = here.stepper(tmp_path / "low", 200, devices=2, name="low")
    until(lambda: len(steps(tmp_path / "low")) > 20, "it makes steps")
    high = here.stepper(tmp_path / "high", 20, devices=2, priority=10, name="high")
    assert here.client.wait(high, 20).state == "succeeded"
    view = here.client.wait(low, 20)
    assert (view.state, view.attempts, view.preemptions) == ("succeeded", 2, 1)
    assert_ran_once(tmp_path / "low", 200, durable_every=1)
    assert here.client.show(low).attempts[0].outcome == "preempted"
    assert "needs its devices" in here.client.show(low).attempts[0].cause


def test_walltime_ends_a_job(here: Haibun) -> None:
    job = here.shell("sleep 600", walltime=0.5)
    view = here.client.wait(job, 20)
    assert view.state == "failed"
    assert "walltime" in view.why
    assert here.client.show(job).attempts[0].outcome == "failed"


def test_python_means_the_interpreter_that_runs_haibun_unless_the_job_says_otherwise(here: Haibun) -> None:
    ours = here.shell("python -c 'import sys; print(sys.executable)'")
    theirs = here.shell("python -c 1 || echo none", env={"PATH": "/nowhere"})
    assert here.client.wait(ours, 20).state == "succeeded"
    assert here.log(ours).strip() == sys.executable
    here.client.wait(theirs, 20)
    assert here.log(theirs).splitlines()[-1] == "none"


def test_a_refused_submission_leaves_nothing(here: Haibun) -> None:
    before = here.client.ls()
    with pytest.raises(ClientError, match="can never be placed"):
        here.client.submit({"run": "true"}, {"run": "true", "resources": {"devices": 3}})
    with pytest.raises(ClientError, match="circle"):
        here.client.submit(
            {"run": "true", "name": "x", "depends_on": ["y"]},
            {"run": "true", "name": "y", "depends_on": ["x"]},
        )
    assert here.client.ls() == before


def test_logs_of_a_job_are_read_by_id_and_name(here: Haibun) -> None:
    here.client.wait(here.shell("echo one; echo two", name="talks"), 20)
    assert [line.text for line in here.client.logs("talks")] == ["one", "two"]
