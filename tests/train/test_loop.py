"""The step loop: nothing outside Haibun; within, what the board says and what the agent asks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from train_place import Place

import haibun.train
from haibun.train.board import METRICS_BYTES, Command, Phase
from haibun.train.loop import METRICS_EVERY


def attach(total: int | None = 10, **more: Any) -> haibun.train.Run:
    model = nn.Linear(2, 2)
    return haibun.train.attach(
        model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), total_steps=total, **more
    )


def test_importing_it_imports_neither_torch_nor_what_only_the_scheduler_needs() -> None:
    heavy = ("torch", "numba", "sqlalchemy", "fastapi", "pydantic")
    code = f"import sys, haibun.train; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_outside_haibun_the_steps_are_counted_and_nothing_else_happens(place: Place) -> None:
    run = attach(total=3)
    steps = []
    for step in run.steps():
        with run.busy():
            run.metrics(loss="not even a number")
        run.save()
        steps.append(step)
    assert steps == [0, 1, 2]
    assert (run.attached, run.restored, run.notice) == (False, 0, None)
    assert list(place.folder.iterdir()) == []


def test_each_step_shows_on_the_board_and_the_end_is_saved(place: Place) -> None:
    place.enter()
    run = attach(total=4)
    assert (place.slot.pid, place.slot.total, place.slot.attached) == (os.getpid(), 4, 1)
    seen, beats = [], []
    for _ in run.steps():
        seen.append(place.slot.step)
        beats.append(place.slot.beat)
        assert place.slot.phase == Phase.STEPPING
    assert seen == [0, 1, 2, 3]
    assert sorted(beats) == beats
    assert (place.slot.phase, place.slot.step, place.slot.durable) == (Phase.FINISHED, 4, 4)
    assert beats[0] < place.slot.first_step <= beats[1]


def test_a_run_without_a_total_goes_on_until_the_script_breaks_off(place: Place) -> None:
    place.enter()
    for step in attach(total=None).steps():
        if step == 20:
            break
    assert (place.slot.total, place.slot.step, place.slot.phase) == (-1, 20, Phase.BUSY)


def test_asked_to_yield_it_saves_and_ends_with_code_0_and_the_next_attempt_goes_on_there(
    place: Place,
) -> None:
    place.enter(epoch=1)
    run = attach()
    with pytest.raises(haibun.train.Preempted) as ended:  # noqa: PT012
        for step in run.steps():
            if step == 3:
                place.board.ask(Command.YIELD, deadline=place.slot.beat + 60)
                assert run.notice is not None
                assert 0 < run.notice <= 60
    assert ended.value.code == 0
    assert (place.slot.phase, place.slot.durable, place.slot.done_seq) == (Phase.YIELDED, 4, 1)

    place.enter(epoch=2)
    again = attach()
    assert (again.restored, place.slot.restored, place.slot.durable) == (4, 4, 4)
    assert list(again.steps()) == [4, 5, 6, 7, 8, 9]


def test_asked_before_its_first_step_it_ends_without_one(place: Place) -> None:
    place.enter()
    place.board.ask(Command.YIELD)
    with pytest.raises(haibun.train.Preempted):
        next(attach().steps())
    assert (place.slot.phase, place.slot.step, place.slot.durable) == (Phase.YIELDED, 0, 0)


def test_a_finished_run_that_is_started_again_has_no_steps_left(place: Place) -> None:
    place.enter(epoch=1)
    assert len(list(attach(total=5).steps())) == 5
    place.enter(epoch=2)
    assert list(attach(total=5).steps()) == []
    assert place.slot.phase == Phase.FINISHED


def test_held_it_stands_until_told_to_go_on(place: Place) -> None:
    board = place.enter()
    run = attach(total=6)
    board.ask(Command.HOLD)

    def agent() -> None:
        while place.slot.phase != Phase.HELD:
            pass
        assert place.slot.done_seq == 1
        board.ask(Command.RUN)

    other = threading.Thread(target=agent)
    other.start()
    assert list(run.steps()) == [0, 1, 2, 3, 4, 5]
    other.join()
    assert (place.slot.done_seq, place.slot.phase) == (2, Phase.FINISHED)


def test_asked_to_save_it_saves_and_goes_on(place: Place) -> None:
    board = place.enter()
    run = attach()
    for step in run.steps():
        if step == 2:
            board.ask(Command.SAVE)
        if step == 3:
            assert (place.slot.durable, place.slot.done_seq) == (3, 1)
        if step == 5:
            run.save()
        if step == 6:
            assert place.slot.durable == 6


def test_it_saves_every_so_many_steps_and_every_so_many_seconds(place: Place) -> None:
    place.enter(epoch=1)
    durable = [place.slot.durable for _ in attach(total=7, checkpoint_steps=3).steps()]
    assert durable == [0, 0, 0, 3, 3, 3, 6]
    place.enter(epoch=2, HAIBUN_CHECKPOINT_EVERY="1e-9")
    durable = [place.slot.durable for _ in attach(total=10).steps()]
    assert durable == [7, 8, 9]


def test_a_full_disk_does_not_end_the_run_not_even_when_it_was_to_yield(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    place.enter()
    run = attach(total=8, checkpoint_steps=2)
    for step in run.steps():
        if step == 3:
            monkeypatch.setattr("haibun.train.checkpoint._Watched.write", full)
        if step == 4:
            place.board.ask(Command.YIELD)
    assert (place.slot.step, place.slot.durable, place.slot.done_seq) == (8, 2, 0)
    assert place.slot.phase == Phase.FINISHED
    assert "Training goes on" in capsys.readouterr().err


def test_metrics_are_looked_at_twice_a_second_and_the_last_ones_are_shown(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loss:
        looked = 0

        def __float__(self) -> float:
            self.looked += 1
            return 1.5

    place.enter()
    clock = iter(range(10**6))
    monkeypatch.setattr("time.monotonic", lambda: next(clock) * METRICS_EVERY / 100)
    run, loss = attach(total=1000), Loss()
    for step in run.steps():
        run.metrics(loss=loss, step=step)
    assert place.slot.read_metrics() == {"loss": 1.5, "step": 999.0}
    assert 1000 / 100 <= loss.looked <= 1000 / 20


def test_metrics_that_do_not_fit_are_dropped_with_a_warning(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.enter()
    attach().metrics(**{"x" * METRICS_BYTES: 1.0})
    assert "they are not shown" in capsys.readouterr().err
    assert place.slot.read_metrics() == {}


def test_while_busy_no_beats_are_due(place: Place) -> None:
    place.enter()
    run = attach()
    for _ in run.steps():
        before = place.slot.beat
        with run.busy():
            assert place.slot.phase == Phase.BUSY
        assert place.slot.phase == Phase.STEPPING
        assert place.slot.beat > before


def test_batches_go_on_through_epochs_and_leave_the_random_numbers_alone(place: Place) -> None:
    from torch.utils.data import DataLoader

    sampler = haibun.train.Sampler(6, per_step=2)
    loader = DataLoader(list(range(6)), 2, sampler=sampler)
    run = attach(total=7, sampler=sampler)
    before = torch.get_rng_state()
    seen = [batch.tolist() for _, batch in run.batches(loader)]
    assert torch.equal(torch.get_rng_state(), before)
    assert sorted(sum(seen[:3], [])) == sorted(sum(seen[3:6], [])) == list(range(6))  # noqa: RUF017
    assert (sampler.epoch, sampler.consumed) == (2, 2)


def test_a_loader_without_batches_is_an_error() -> None:
    with pytest.raises(ValueError, match="no batches"):
        list(attach().batches([]))


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"HAIBUN_CHECKPOINTS": ""}, "HAIBUN_CHECKPOINTS is not"),
        ({"HAIBUN_EPOCH": "two"}, "HAIBUN_EPOCH must be a whole number, not 'two'"),
        ({"HAIBUN_EPOCH": "2"}, "belongs to attempt 1, and this worker to attempt 2"),
        ({"HAIBUN_SLOT": "1", "LOCAL_RANK": "1"}, "has 1 slots"),
        ({"HAIBUN_CHECKPOINT_EVERY": "-1"}, "number of seconds"),
        ({"HAIBUN_CHECKPOINT_EVERY": "often"}, "number of seconds"),
        ({"WORLD_SIZE": "2"}, "init_process_group"),
    ],
)
def test_an_environment_that_cannot_be_right_is_refused(
    place: Place, environ: dict[str, str], message: str
) -> None:
    place.enter(**environ)
    with pytest.raises(RuntimeError, match=message):
        attach()


def test_a_second_loop_in_one_process_is_refused(place: Place) -> None:
    place.enter()
    attach()
    with pytest.raises(RuntimeError, match="called twice"):
        attach()


def test_another_process_of_the_job_leaves_the_board_alone(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.enter()
    place.slot.pid, place.slot.attached = os.getppid(), 1
    assert not attach().attached
    assert "as if outside Haibun" in capsys.readouterr().err
    assert place.slot.pid == os.getppid()


def test_a_worker_that_a_launcher_in_the_job_started_has_no_slot_of_its_own(place: Place) -> None:
    place.enter(LOCAL_RANK="1")
    assert len(list(attach().steps())) == 10
    assert (place.slot.attached, place.slot.step) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"total": -1}, ValueError, "must not be negative"),
        ({"checkpoint_steps": 0}, ValueError, "at least 1"),
        ({"extra": {"ema": 3}}, TypeError, "ema cannot be saved: int has no state_dict"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    place: Place, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    place.enter()
    with pytest.raises(error, match=message):
        attach(**arguments)


def test_a_model_that_the_checkpoint_does_not_fit_is_refused_with_its_path(place: Place) -> None:
    place.enter(epoch=1)
    list(attach().steps())
    place.enter(epoch=2)
    with pytest.raises(RuntimeError, match=r"(?s)step-00000010 does not fit.*size mismatch.*another folder"):
        haibun.train.attach(model=nn.Linear(2, 3), total_steps=10)


def test_a_board_of_another_kind_is_refused(place: Place, tmp_path: Path) -> None:
    place.enter(HAIBUN_BOARD=str(tmp_path / "other"))
    (tmp_path / "other").write_bytes(b"x" * 5000)
    with pytest.raises(ValueError, match="is not a board"):
        attach()
