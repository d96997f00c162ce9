"""Real processes, with the test in the agent's place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from train_agent import Attempt, Workers

from haibun.train.board import Command, Phase

EXAMPLES = Path(__file__).parents[2] / "examples" / "scripts"

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that workers are forked from starts with the first of them, and takes this on."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def started() -> Iterator[list[Workers]]:
    """Whatever a test puts in here is dead when it ends."""
    workers: list[Workers] = []
    yield workers
    for w in workers:
        w.kill()


def results(out: Path, world: int) -> list[str]:
    """Digest of the weights, the next random number, and the sampler's position, of each rank."""
    return [out.with_suffix(f".{rank}").read_text() for rank in range(world)]


def undisturbed(folder: Path, world: int, *arguments: str) -> list[str]:
    """What the script gives outside Haibun."""
    workers = Workers(folder / "log", world, [str(folder / "calm"), *arguments])
    assert workers.wait() == [0] * world, workers.log.read_text()
    return results(folder / "calm", world)


@pytest.mark.parametrize(
    ("world", "arguments"),
    [(1, ["50", "workers"]), (2, ["300"]), (3, ["200"]), (2, ["100", "sharded"]), (2, ["300", "plain"])],
    ids=["one worker", "two with DDP", "three with DDP", "two with fully_shard", "two with a plain module"],
)
def test_a_run_preempted_and_resumed_ends_bit_for_bit_like_an_undisturbed_one(
    tmp_path: Path, started: list[Workers], world: int, arguments: list[str]
) -> None:
    calm = undisturbed(tmp_path, world, *arguments)

    first = Attempt(tmp_path, 1, world, [str(tmp_path / "moved"), *arguments])
    started.append(first)
    first.until(lambda s: s.step >= 17, "step 17")
    first.ask(Command.YIELD)
    assert first.wait() == [0] * world
    assert first.phases() == [Phase.YIELDED] * world
    at = first.slots[0].durable
    assert [(s.step, s.durable) for s in first.slots] == [(at, at)] * world
    assert 17 <= at < int(arguments[0])

    second = Attempt(tmp_path, 2, world, [str(tmp_path / "moved"), *arguments])
    started.append(second)
    assert second.wait() == [0] * world, second.log.read_text()
    assert [s.restored for s in second.slots] == [at] * world
    assert second.phases() == [Phase.FINISHED] * world
    assert results(tmp_path / "moved", world) == calm


def test_a_gang_holds_after_one_step_goes_on_and_yields_while_held(
    tmp_path: Path, started: list[Workers]
) -> None:
    attempt = Attempt(tmp_path, 1, 2, [str(tmp_path / "out"), "1000000"])
    started.append(attempt)
    attempt.until(lambda s: s.step >= 5, "step 5")
    attempt.ask(Command.HOLD)
    held = attempt.slots[0].step
    assert [(s.phase, s.step) for s in attempt.slots] == [(Phase.HELD, held)] * 2
    attempt.ask(Command.RUN)
    attempt.until(lambda s: s.step >= held + 5, "five more steps")
    attempt.ask(Command.SAVE)
    saved = attempt.slots[0].durable
    assert saved > held
    attempt.ask(Command.HOLD)
    attempt.ask(Command.YIELD)
    assert attempt.wait() == [0, 0]
    assert attempt.phases() == [Phase.YIELDED] * 2
    assert attempt.slots[0].durable == attempt.slots[1].durable >= saved


def test_a_worker_killed_in_the_middle_loses_no_durable_step(tmp_path: Path, started: list[Workers]) -> None:
    calm = undisturbed(tmp_path, 1, "1000")
    first = Attempt(tmp_path, 1, 1, [str(tmp_path / "moved"), "1000"], SAVE_STEPS="20")
    started.append(first)
    first.until(lambda s: s.durable >= 40, "two checkpoints")
    first.kill()
    durable = first.slots[0].durable

    second = Attempt(tmp_path, 2, 1, [str(tmp_path / "moved"), "1000"])
    started.append(second)
    assert second.wait() == [0], second.log.read_text()
    assert second.slots[0].restored >= durable
    assert results(tmp_path / "moved", 1) == calm


def test_checkpoints_are_made_when_due_by_all_ranks_and_metrics_are_shown(
    tmp_path: Path, started: list[Workers]
) -> None:
    attempt = Attempt(tmp_path, 1, 2, [str(tmp_path / "out"), "1000000"], HAIBUN_CHECKPOINT_EVERY="0.1")
    started.append(attempt)
    attempt.until(lambda s: s.durable > 0, "a checkpoint")
    before = max(s.durable for s in attempt.slots)
    attempt.until(lambda s: s.durable > before, "the next one")
    attempt.until(lambda s: s.read_metrics().get("step", 0) > before, "metrics")
    attempt.ask(Command.YIELD)
    newest = tmp_path / "checkpoints" / f"step-{attempt.slots[0].durable:08d}"
    assert json.loads((newest / "manifest.json").read_text())["world_size"] == 2


def test_a_full_disk_under_one_rank_costs_the_gang_a_checkpoint_and_not_its_training(
    tmp_path: Path, started: list[Workers]
) -> None:
    attempt = Attempt(
        tmp_path, 1, 2, [str(tmp_path / "out"), "30"], SAVE_STEPS="20", FULL_DISK_ON="1"
    )  # fmt: skip
    started.append(attempt)
    assert attempt.wait() == [0, 0]
    assert [(s.step, s.durable, s.phase) for s in attempt.slots] == [(30, 0, Phase.FINISHED)] * 2
    assert attempt.log.read_text().count("No space left on device. Training goes on") == 2  # steps 20 and 30
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["fence"]


@pytest.mark.parametrize(
    ("name", "world"), [("gpt_bytes", 1), ("cnn_synthetic", 1), ("ddp_mlp", 2), ("plain", 2)]
)
def test_the_examples_run_under_haibun_and_write_their_weights(
    tmp_path: Path, started: list[Workers], name: str, world: int
) -> None:
    out = tmp_path / "weights.pt"
    script = EXAMPLES / f"{name}.py"
    attempt = Attempt(tmp_path, 1, world, ["--steps", "3", "--out", str(out)], script=script)
    started.append(attempt)
    assert attempt.wait() == [0] * world, attempt.log.read_text()
    assert "step 3/3" in attempt.log.read_text()
    assert out.stat().st_size > 10_000
    expected = (0, 0) if name == "plain" else (3, 3)
    assert [(s.step, s.durable) for s in attempt.slots] == [expected] * world
