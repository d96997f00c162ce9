"""The folder of checkpoints: whole or absent, checked before use, fenced by epoch, and never too many."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from haibun.train import fence, manifest
from haibun.train.checkpoint import Checkpoints
from haibun.train.fence import StaleAttemptError
from haibun.train.group import Group
from haibun.train.tree import flatten, unflatten


def checkpoints(folder: Path, epoch: int = 1) -> Checkpoints:
    return Checkpoints(folder, epoch, Group(0, 1))


def state(step: int) -> Callable[[], dict[str, Any]]:
    return lambda: flatten({"weights": torch.full((1000,), float(step))}, "shared")


def weights(of: Checkpoints, step: int) -> torch.Tensor:
    tensor: torch.Tensor = unflatten(of.read(step, lambda key: True, {}), "shared")["weights"]
    return tensor


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def newest_step(of: Checkpoints) -> int | None:
    found = of.newest()
    return None if found is None else found.step


def test_the_newest_two_are_kept_and_the_newest_is_found(tmp_path: Path) -> None:
    here = checkpoints(tmp_path)
    assert newest_step(here) is None
    for step in (5, 9, 12):
        assert here.save(step, state(step))
    assert names(tmp_path) == ["fence", "step-00000009", "step-00000012"]
    assert newest_step(here) == 12
    assert torch.equal(weights(here, 12), torch.full((1000,), 12.0))


def cut_short(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def flip_a_bit(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, Path.unlink])
@pytest.mark.parametrize("file", ["__0_0.distcp", ".metadata", "manifest.json"])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_used(
    tmp_path: Path, damage: Callable[[Path], None], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (5, 9):
        checkpoints(tmp_path).save(step, state(step))
    damage(tmp_path / "step-00000009" / file)
    after = checkpoints(tmp_path, epoch=2)
    assert newest_step(after) == 5
    assert "step-00000009 is damaged" in capsys.readouterr().err
    assert (tmp_path / "step-00000009.damaged").is_dir()
    for step in (9, 10):  # the same step can be reached again; what was damaged goes when newer ones are safe
        assert after.save(step, state(step))
    assert after.save(11, state(11))
    assert names(tmp_path) == ["fence", "step-00000010", "step-00000011"]


def test_an_attempt_that_was_replaced_commits_nothing(tmp_path: Path) -> None:
    old = checkpoints(tmp_path, epoch=3)
    assert old.save(1, state(1))
    (tmp_path / "fence").write_text("4\n")  # as the agent writes it
    with pytest.raises(StaleAttemptError, match="attempt 4 has taken over"):
        old.save(2, state(2))
    assert names(tmp_path) == ["fence", "step-00000001"]
    with pytest.raises(StaleAttemptError):
        old.newest()
    assert newest_step(checkpoints(tmp_path, epoch=4)) == 1


def test_two_nodes_of_a_gang_may_raise_the_fence_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def other_first(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        fence.advance(tmp_path, 2)
        replace(source, target)

    monkeypatch.setattr(os, "replace", other_first)
    fence.advance(tmp_path, 2)
    assert names(tmp_path) == ["fence"]
    assert fence.read(tmp_path) == 2


def test_a_new_attempt_raises_the_fence_by_itself_and_clears_what_a_dead_one_left(tmp_path: Path) -> None:
    (tmp_path / "step-00000007.e1.tmp").mkdir()
    assert newest_step(checkpoints(tmp_path, epoch=2)) is None
    assert names(tmp_path) == ["fence"]
    assert fence.read(tmp_path) == 2


def test_a_broken_fence_is_an_error_and_not_an_open_door(tmp_path: Path) -> None:
    (tmp_path / "fence").write_text("four")
    with pytest.raises(RuntimeError, match="must hold the epoch"):
        checkpoints(tmp_path).save(1, state(1))


def test_a_checkpoint_of_a_replaced_attempt_at_the_same_step_gives_way(tmp_path: Path) -> None:
    checkpoints(tmp_path, epoch=1).save(5, state(1))
    after = checkpoints(tmp_path, epoch=2)
    assert after.save(5, state(2))
    assert weights(after, 5)[0] == 2
    assert manifest.verify(tmp_path / "step-00000005").epoch == 2
    assert names(tmp_path) == ["step-00000005"]


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "where",
    [
        "haibun.train.checkpoint._Watched.write",
        "haibun.train.manifest.flush",
        "haibun.train.manifest.write",
        "os.replace",
    ],
)
def test_a_full_disk_costs_this_checkpoint_and_no_other(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = checkpoints(tmp_path)
    here.save(5, state(5))
    with monkeypatch.context() as patch:
        patch.setattr(where, full)
        assert not here.save(9, state(9))
    assert "no checkpoint after step 9: [Errno 28] No space left" in capsys.readouterr().err
    assert names(tmp_path) == ["step-00000005"]
    assert here.save(10, state(10))
    assert newest_step(here) == 10


def test_state_that_cannot_be_saved_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"the state of rank 0 cannot be saved: .*lambda"):
        checkpoints(tmp_path).save(1, lambda: flatten({"f": lambda: 1}, "shared"))


def test_ranks_at_different_steps_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = checkpoints(tmp_path)
    monkeypatch.setattr(here.group, "gather", lambda value: [value, (4, None)])
    with pytest.raises(RuntimeError, match="rank 0 after step 3, rank 1 after step 4"):
        here.save(3, state(3))


def test_a_manifest_lists_every_file_with_its_size(tmp_path: Path) -> None:
    checkpoints(tmp_path, epoch=7).save(3, state(3))
    folder = tmp_path / "step-00000003"
    listed = json.loads((folder / "manifest.json").read_text())
    assert (listed["step"], listed["epoch"], listed["world_size"]) == (3, 7, 1)
    assert {n: size for n, (size, _) in listed["files"].items()} == {
        p.name: p.stat().st_size for p in folder.iterdir() if p.name != "manifest.json"
    }
