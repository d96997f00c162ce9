"""Progress is told at a bounded rate, and at once when a checkpoint is safe."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from agent_fakes import FakeClock

from haibun.run.progress import PROGRESS_EVERY, Progress, Rate
from haibun.run.protocol import Launch
from haibun.train.board import Board, Command, Phase


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def progress(tmp_path: Path, clock: FakeClock) -> Progress:
    launch = Launch("j", 2, "j", (0, 1), 2, "/", "/", "/", durable=30.0)
    return Progress(Board.create(tmp_path / "b", 2, 2), launch, clock, received=clock.now())


def step(progress: Progress, clock: FakeClock, *numbers: int) -> None:
    for slot, n in zip(progress.board.slots, numbers, strict=True):
        slot.attached, slot.phase, slot.step, slot.beat = 1, Phase.STEPPING, n, clock.now()
        slot.first_step = slot.first_step or clock.now()


def test_a_job_that_is_not_attached_tells_nothing(progress: Progress) -> None:
    assert progress.look() is None
    assert (progress.step, progress.durable, progress.total, progress.first_step_after) == (
        0.0,
        30.0,
        None,
        None,
    )


def test_progress_is_that_of_the_slowest_worker(progress: Progress, clock: FakeClock) -> None:
    step(progress, clock, 41, 40)
    assert progress.step == 40.0


def test_steps_are_told_every_few_seconds_only(progress: Progress, clock: FakeClock) -> None:
    told = []
    for n in range(31, 231):
        clock.time += 0.1
        step(progress, clock, n, n)
        if (event := progress.look()) is not None:
            told.append((clock.now(), event.step))
    assert len(told) == 4
    assert all(b - a >= PROGRESS_EVERY for (a, _), (b, _) in itertools.pairwise(told))
    assert progress.event().rate == pytest.approx(10.0)


def test_a_safe_checkpoint_is_told_at_once(progress: Progress, clock: FakeClock) -> None:
    step(progress, clock, 31, 31)
    assert progress.look() is not None
    progress.board.slots[0].durable = 31
    event = progress.look()
    assert event is not None
    assert (event.durable, event.epoch) == (31.0, 2)
    assert progress.look() is None


def test_the_first_step_is_that_of_the_last_worker_to_make_it(progress: Progress, clock: FakeClock) -> None:
    step(progress, clock, 1, 1)
    clock.time += 0.5
    progress.board.slots[1].first_step = clock.now()
    assert progress.first_step_after == pytest.approx(0.5)


def test_a_command_is_obeyed_when_all_workers_have_answered_it(progress: Progress, clock: FakeClock) -> None:
    step(progress, clock, 1, 1)
    seq = progress.ask(Command.HOLD, grace=3.0)
    assert progress.board.header.deadline == clock.now() + 3.0
    for slot in progress.board.slots:
        assert not progress.obeyed(seq, Phase.HELD)
        slot.done_seq, slot.phase = seq, Phase.HELD
    assert progress.obeyed(seq, Phase.HELD)


def test_the_rate_follows_the_last_half_minute() -> None:
    rate = Rate()
    assert rate.value is None
    for n in range(100):
        rate.add(n * 1.0, n)
    for n in range(100, 300):
        rate.add(99 + (n - 99) * 0.5, n)
    assert rate.value == pytest.approx(2.0)


def test_a_restored_step_is_no_speed(progress: Progress, clock: FakeClock) -> None:
    for slot in progress.board.slots:
        slot.attached, slot.beat = 1, clock.now()
    progress.look()
    for slot in progress.board.slots:
        slot.step = slot.restored = slot.durable = 1000
    for step in (1001, 1002, 1003):
        clock.time += 0.5
        for slot in progress.board.slots:
            slot.step, slot.beat = step, clock.now()
            slot.first_step = slot.first_step or clock.now()
        progress.look()
    assert progress.rate.value == pytest.approx(2.0)
