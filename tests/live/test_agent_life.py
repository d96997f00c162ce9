"""Attempts under a real agent: gangs, exit codes, stops, holds, failures. The test plays the controller."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator

import pytest
from agent_harness import Bench, alive, bench, cgroups_left, marked_left, until

from haibun.core.events import (
    AttemptFailed,
    AttemptHeld,
    AttemptProgressed,
    AttemptStarted,
    AttemptStopped,
    AttemptSucceeded,
)
from haibun.core.vocabulary import StopMode
from haibun.run.logs import MOST_BYTES
from haibun.run.protocol import Continue, Hold

pytestmark = [pytest.mark.live, pytest.mark.anyio]

# An attached worker without torch: it writes its slot of the board as haibun.train does.
ATTACHED = """
import os, sys, time
from pathlib import Path
from haibun.train.board import Board, Command, Phase
board = Board.open(Path(os.environ["HAIBUN_BOARD"]))
slot, h = board.slots[int(os.environ["HAIBUN_SLOT"])], board.header
slot.pid, slot.total, slot.attached = os.getpid(), 1000, 1
slot.phase = Phase.STEPPING
print("up", flush=True)
while slot.step < 1000:
    time.sleep(0.02)
    slot.step += 1
    slot.beat = time.monotonic()
    slot.first_step = slot.first_step or slot.beat
    if h.command_seq != slot.done_seq:
        slot.done_seq = h.command_seq
        slot.phase = {Command.HOLD: Phase.HELD, Command.YIELD: Phase.YIELDED}.get(h.command, Phase.STEPPING)
        if h.command == Command.YIELD:
            slot.durable = slot.step
            sys.exit(0)
        while slot.phase == Phase.HELD and h.command_seq == slot.done_seq:
            time.sleep(0.005)
        slot.phase = Phase.STEPPING
"""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """An agent with cold starts only, for all tests of this file; afterwards nothing of it may be left."""
    async with bench(tmp_path_factory.mktemp("life"), "--no-warm") as b:
        b.script("attached.py", ATTACHED)
        yield b
    assert marked_left(b.state) == []
    assert cgroups_left(b.state) == []


def python(script: str) -> tuple[str, ...]:
    import sys

    return (sys.executable, script)


async def test_a_gang_has_torchruns_environment_and_succeeds(here: Bench) -> None:
    await here.start(
        "gang",
        devices=(1, 2),
        run='echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE [$CUDA_VISIBLE_DEVICES] $MINE"',
        setup="echo once >> $HOME_OF_TEST/setups",
        env={"MINE": "x y", "HOME_OF_TEST": str(here.folder)},
    )
    await here.controller.event("gang", AttemptSucceeded)
    kinds = [type(e) for e in here.controller.events("gang")]
    assert kinds == [AttemptStarted, AttemptSucceeded]
    assert here.log("gang", 0) == "0 2 0 2 [] x y\n"
    assert here.log("gang", 1) == "1 2 1 2 [] x y\n"
    assert (here.folder / "setups").read_text() == "once\n"
    assert (here.folder / "gang/checkpoints/fence").read_text().strip() == "1"


async def test_one_ranks_failure_ends_the_gang_and_names_the_cause(here: Bench) -> None:
    script = here.script(
        "bad.py", "import os,sys,time\nif os.environ['RANK']=='1': sys.exit('no data')\ntime.sleep(600)"
    )
    await here.start("bad", devices=(0, 1), argv=python(script))
    failed = await here.controller.event("bad", AttemptFailed)
    assert (failed.cause, failed.node, failed.fatal) == ("rank 1 exited with code 1: no data", "here", False)


async def test_a_killed_worker_fails_the_attempt_and_nothing_is_left(here: Bench) -> None:
    await here.start("killed", devices=(0, 1), run="sleep 600")
    status = await until(lambda: here.controller.status("killed"), "a beat tells of the job")
    status = await until(lambda: (s := here.controller.status("killed")) and s.pids and s, "its processes")
    os.kill(status.pids[1], signal.SIGKILL)
    failed = await here.controller.event("killed", AttemptFailed)
    assert failed.cause == "rank 1 was killed by SIGKILL"
    assert not any(alive(p) for p in status.pids)


async def test_a_stopped_process_is_a_hang_and_the_job_is_killed(here: Bench) -> None:
    await here.start("hung", devices=(0, 1), argv=python("attached.py"), hang_after=1.0)
    status = await until(
        lambda: (s := here.controller.status("hung")) and s.step > 5 and s, "the job makes steps"
    )
    assert status.first_step_after is not None
    os.kill(status.pids[1], signal.SIGSTOP)
    failed = await here.controller.event("hung", AttemptFailed, within=5.0)
    assert failed.cause.startswith("rank 1 hung at step ")
    assert not any(alive(p) for p in status.pids)


async def test_a_script_that_ignores_sigterm_is_killed_when_its_grace_is_over(here: Bench) -> None:
    await here.start("deaf", run="trap '' TERM; echo up; while :; do sleep 0.1; done")
    await until(lambda: "up" in here.log("deaf"), "the script runs")
    await here.stop("deaf", grace=0.3)
    await here.controller.event("deaf", AttemptStopped, within=3.0)


async def test_a_script_that_heeds_sigterm_stops_without_waiting_for_its_grace(here: Bench) -> None:
    await here.start("heeds", run="trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    await until(lambda: "up" in here.log("heeds"), "the script runs")
    await here.stop("heeds", grace=60.0)
    await here.controller.event("heeds", AttemptStopped, within=5.0)
    assert here.log("heeds").endswith("bye\n")


async def test_an_attached_job_yields_with_its_work_saved(here: Bench) -> None:
    await here.start("yields", argv=python("attached.py"))
    await until(lambda: (s := here.controller.status("yields")) and s.step > 3, "the job makes steps")
    await here.stop("yields", grace=30.0)
    stopped = await here.controller.event("yields", AttemptStopped)
    assert stopped.durable == stopped.step > 3
    assert any(isinstance(e, AttemptProgressed) for e in here.controller.events("yields"))


async def test_a_yield_that_nobody_asked_for_is_a_failure(here: Bench) -> None:
    here.script(
        "quits.py",
        ATTACHED.replace("while slot.step", "slot.phase = Phase.YIELDED; sys.exit(0)\nwhile slot.step"),
    )
    await here.start("quits", argv=python("quits.py"))
    failed = await here.controller.event("quits", AttemptFailed)
    assert failed.cause == "rank 0 yielded without being asked to"


@pytest.mark.parametrize("attached", [True, False])
async def test_a_held_job_stands_still_and_goes_on(here: Bench, attached: bool) -> None:
    job = f"held-{attached}"
    argv = python("attached.py") if attached else ("sh", "-c", "while :; do echo .; sleep 0.02; done")
    await here.start(job, argv=argv, hang_after=0.5 if attached else None)
    await until(lambda: here.log(job), "the script runs")
    await here.controller.send(Hold(job, 1))
    await here.controller.event(job, AttemptHeld)
    before = here.log(job)
    beats = len(here.controller.beats)
    await until(
        lambda: len(here.controller.beats) > beats + 4, "five beats"
    )  # a second: longer than hang_after
    assert here.log(job) == before
    assert here.controller.status(job).state == "held"  # type: ignore[union-attr]
    await here.controller.send(Continue(job, 1))
    await until(lambda: len(here.controller.events(job)) > 2, "it is started again")
    await until(lambda: (s := here.controller.status(job)) and s.state == "running", "it runs")
    if not attached:
        await until(lambda: len(here.log(job)) > len(before), "it writes again")
    await here.controller.send(Hold(job, 1))  # a held job can be stopped too
    await here.stop(job, grace=10.0)
    await here.controller.event(job, AttemptStopped)


async def test_a_daemon_with_a_clean_environment_is_ended_with_its_job(here: Bench) -> None:
    script = here.script("daemon.py", DAEMON)
    await here.start("daemon", argv=python(script), env={"NOTE": str(here.folder / "daemon.pid")})
    await here.controller.event("daemon", AttemptSucceeded)
    assert not alive(int((here.folder / "daemon.pid").read_text()))


DAEMON = """
import os, sys
note = os.environ["NOTE"]
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    with open(note, "w") as f:
        f.write(str(os.getpid()))
    os.set_inheritable(w, True)
    os.execve("/bin/sh", ["sh", "-c", f"echo x >&{w}; exec {w}>&-; sleep 600"], {})
os.close(w)
os.wait()
os.read(r, 1)
"""


async def test_a_job_that_takes_too_much_memory_fails_and_says_so(here: Bench) -> None:
    await here.start("greedy", argv=(*python("-c"), "x = bytearray(400 << 20)"), memory=100 << 20)
    failed = await here.controller.event("greedy", AttemptFailed)
    assert failed.cause.startswith("rank 0 was killed by SIGKILL (out of memory: the limit is 105 MB)")


@pytest.mark.parametrize(
    ("job", "lines", "kept"),
    [
        pytest.param("chatty", 5_000_000, 11 * 5_000_000, id="within the bound, nothing is lost"),
        pytest.param(
            "torrent", 12_000_000, None, id="beyond it, the end is kept and what is left out is said"
        ),
    ],
)
async def test_a_big_log_is_rotated_under_its_writer(
    here: Bench, job: str, lines: int, kept: int | None
) -> None:
    await here.start(job, run=f"yes 0123456789 | head -n {lines}; touch said-{job}; sleep 600")
    folder = here.folder / job / "logs/epoch-1"
    await until((here.folder / f"said-{job}").exists, "all is written")
    await until((folder / "rank-0.log.1").exists, "the log is rotated")
    await here.stop(job, mode=StopMode.KILL)
    await here.controller.event(job, AttemptStopped)
    parts = list(folder.glob("rank-0.log*"))
    there = sum(p.stat().st_size for p in parts)
    assert max(p.stat().st_size for p in parts) <= MOST_BYTES
    if kept is not None:
        assert there == kept
    elif there < 11 * lines:  # the writer was faster than the looks at its log
        assert any(b"bytes left out here" in p.open("rb").read(200) for p in parts)
    for part in parts:
        part.unlink()


async def test_what_no_retry_can_help_is_fatal(here: Bench) -> None:
    await here.start("nothing", argv=("no-such-program",))
    await here.start("nowhere", run="true", cwd="/no/such/folder")
    await here.start("no-device", run="true", devices=(9,))
    causes = [await here.controller.event(j, AttemptFailed) for j in ("nothing", "nowhere", "no-device")]
    assert all(c.fatal for c in causes)
    assert [c.cause for c in causes] == [
        "no-such-program: No such file or directory",
        "the folder /no/such/folder does not exist on node here",
        "node here has devices 0 to 3, not [9]",
    ]


async def test_a_failed_setup_starts_no_worker(here: Bench) -> None:
    await here.start("unset", setup="echo broken; exit 7", run="touch should-not-exist")
    failed = await here.controller.event("unset", AttemptFailed)
    assert failed.cause == "setup exited with code 7: broken"
    assert not (here.folder / "should-not-exist").exists()


async def test_a_stop_during_setup_starts_no_worker(here: Bench) -> None:
    await here.start("slow", setup="sleep 600", run="true")
    await until(lambda: here.controller.status("slow"), "it is setting up")
    await here.stop("slow", mode=StopMode.KILL)
    await here.controller.event("slow", AttemptStopped)
    assert [type(e) for e in here.controller.events("slow")] == [AttemptStopped]


async def test_a_stale_epoch_changes_nothing_and_a_later_one_takes_over(here: Bench) -> None:
    await here.start("twice", epoch=3, run="sleep 600")
    await here.controller.event("twice", AttemptStarted)
    pids = (await until(lambda: (s := here.controller.status("twice")) and s.pids and s, "running")).pids
    await here.start("twice", epoch=2, run="touch stale")  # dropped
    await here.stop("twice", epoch=2, mode=StopMode.KILL)  # dropped
    await here.start("twice", epoch=3, run="touch stale")  # a repeat
    await here.start("twice", epoch=4, run="sleep 600")
    await until(
        lambda: (s := here.controller.status("twice")) and s.epoch == 4 and s.state == "running", "epoch 4"
    )
    assert not any(alive(p) for p in pids)
    assert not (here.folder / "stale").exists()
    await here.stop("twice", epoch=4, mode=StopMode.KILL)
    await until(
        lambda: AttemptStopped in [type(e) for e in here.controller.events("twice") if e.epoch == 4], "end"
    )  # type: ignore[union-attr]


async def test_a_stop_for_an_attempt_that_is_not_here_is_answered(here: Bench) -> None:
    await here.stop("unknown", epoch=7)
    assert (await here.controller.event("unknown", AttemptStopped)).epoch == 7
