"""The sampler: an epoch is cut among steps and ranks without loss, and continued where steps ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from haibun.train import Sampler

sizes = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 60)).map(
    lambda t: (t[0], t[1], t[0] * t[1] + t[2])
)


def step(samplers: list[Sampler]) -> None:
    for s in samplers:
        s.advance()


@given(sizes, st.integers(0, 2**31))
def test_the_ranks_cut_an_epoch_among_them_without_overlap(size: tuple[int, int, int], seed: int) -> None:
    per_step, world, length = size
    parts = [list(Sampler(length, per_step, seed=seed, rank=r, world_size=world)) for r in range(world)]
    assert len({len(p) for p in parts}) == 1
    together = [i for p in parts for i in p]
    assert len(together) == len(set(together)) == length // (per_step * world) * per_step * world
    assert set(together) <= set(range(length))


@given(sizes, st.integers(0, 40))
def test_a_restart_after_any_step_continues_with_the_sample_that_was_next(
    size: tuple[int, int, int], steps: int
) -> None:
    per_step, world, length = size
    sampler = Sampler(length, per_step, rank=world - 1, world_size=world)
    every = [i for _ in range(50) for i in sampler]
    for _ in range(steps):
        sampler.advance()
    again = Sampler(length, per_step, rank=world - 1, world_size=world)
    again.load_state_dict(sampler.state_dict())
    assert len(again) == len(rest := list(again))
    assert (rest + list(again))[: len(rest)] == every[steps * per_step :][: len(rest)]


@given(sizes, st.integers(1, 4), st.data())
def test_after_a_resize_no_sample_is_seen_twice_in_an_epoch(
    size: tuple[int, int, int], other: int, data: st.DataObject
) -> None:
    per_step, world, length = size
    if length < per_step * other:
        return
    before = [Sampler(length, per_step, rank=r, world_size=world) for r in range(world)]
    steps = data.draw(st.integers(0, len(before[0]) // per_step - 1))
    seen = [i for s in before for i in list(s)[: steps * per_step]]
    step([s for s in before for _ in range(steps)])
    after = [Sampler(length, per_step, rank=r, world_size=other) for r in range(other)]
    for s in after:
        s.load_state_dict(before[0].state_dict())
    if len(after[0]):
        seen += [i for s in after for i in s]
    assert len(seen) == len(set(seen))


def test_what_a_loader_fetched_ahead_does_not_count() -> None:
    sampler = Sampler(100, per_step=4, seed=1)
    loader = DataLoader(list(range(100)), 4, sampler=sampler, num_workers=1, prefetch_factor=8)
    batches = iter(loader)
    first = [next(batches).tolist() for _ in range(2)]
    step([sampler, sampler])
    again = Sampler(100, per_step=4, seed=1)
    again.load_state_dict(sampler.state_dict())
    assert sampler.state_dict()["consumed"] == 8
    whole = list(Sampler(100, per_step=4, seed=1))
    assert first[0] + first[1] + list(again) == whole


def test_epochs_differ_and_follow_each_other_however_often_the_loader_is_started() -> None:
    ahead = Sampler(20, per_step=5)
    drawn = [list(ahead) for _ in range(3)]  # three times, before a single step has ended
    assert sorted(drawn[0]) == sorted(drawn[1]) == list(range(20))
    assert drawn[0] != drawn[1] != drawn[2]
    keeping_pace = Sampler(20, per_step=5)
    epochs = []
    for _ in range(3):
        epochs.append(list(keeping_pace))
        step([keeping_pace] * 4)
    assert epochs == drawn


def test_set_epoch_keeps_a_restored_position_and_moves_to_another_epoch() -> None:
    sampler = Sampler(20, per_step=5)
    step([sampler] * 5)
    sampler.set_epoch(1)
    assert (sampler.epoch, sampler.consumed) == (1, 5)
    sampler.set_epoch(4)
    assert (sampler.epoch, sampler.consumed) == (4, 0)


def test_without_shuffling_the_order_is_that_of_the_data() -> None:
    assert list(Sampler([0] * 7, per_step=2, shuffle=False, rank=1, world_size=3)) == [1, 4]


def test_rank_and_world_size_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    sampler = Sampler(30, per_step=1)
    assert (sampler.rank, sampler.world_size) == (2, 3)


def test_a_position_in_other_data_is_refused() -> None:
    with pytest.raises(ValueError, match="length 100, this one has 90"):
        Sampler(90, per_step=1).load_state_dict(Sampler(100, per_step=1).state_dict())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": 3, "per_step": 4}, "a step takes 4 samples"),
        ({"data": 3, "per_step": 0}, "at least 1"),
        ({"data": 3, "per_step": 1, "rank": 2, "world_size": 2}, "rank 2 is not among 2"),
        ({"data": 3, "per_step": 1, "seed": -1}, "seed"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampler(**arguments)  # type: ignore[arg-type]
