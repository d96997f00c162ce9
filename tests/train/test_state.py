"""What a checkpoint holds comes back as it was, in one process."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from train_place import Place

import haibun.train
from haibun.train.state import Training


class Counter:
    """Something stateful of the script's own."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def draw() -> list[float]:
    return [random.random(), float(np.random.random()), float(torch.rand(()))]


def test_random_numbers_go_on_where_they_were_whatever_the_script_drew_before_the_loop(place: Place) -> None:
    place.enter(epoch=1)
    run = haibun.train.attach(model=nn.Linear(2, 2), total_steps=2, checkpoint_steps=1)
    steps = run.steps()
    next(steps)
    draw()
    next(steps)  # saves after step 1
    expected = draw()

    place.enter(epoch=2)
    torch.manual_seed(99)
    again = haibun.train.attach(model=nn.Linear(2, 2), total_steps=2)
    draw()
    assert next(again.steps()) == 1
    assert draw() == expected


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "LBFGS"])
def test_any_optimizer_goes_on_bit_for_bit(place: Place, optimizer: str) -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        model[0].bias.requires_grad_(False)  # a parameter without optimizer state
        return model, getattr(torch.optim, optimizer)(model.parameters(), lr=0.01)

    def advance(model: nn.Module, opt: torch.optim.Optimizer, step: int) -> None:
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))

        def loss() -> torch.Tensor:
            opt.zero_grad()
            value = model(x).square().mean()
            value.backward()
            return value

        opt.step(loss)

    calm, opt = build()
    for step in range(6):
        advance(calm, opt, step)
    moved = calm
    for epoch, stop in ((1, 3), (2, 6)):
        place.enter(epoch=epoch)
        moved, opt = build()
        for step in haibun.train.attach(model=moved, optimizer=opt, total_steps=stop).steps():
            advance(moved, opt, step)
    for name, value in calm.state_dict().items():
        assert torch.equal(value, moved.state_dict()[name]), name


def test_optimizer_state_keeps_its_own_type(place: Place) -> None:
    class Precise(torch.optim.Optimizer):
        """Keeps a float32 copy of bfloat16 weights."""

        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})

        def step(self, closure: Any = None) -> None:
            for p in self.param_groups[0]["params"]:
                self.state[p].setdefault("master", p.detach().float() + 1e-5)

    def build() -> tuple[nn.Module, Precise]:
        model = nn.Linear(3, 3).bfloat16()
        return model, Precise(model.parameters())

    place.enter(epoch=1)
    model, optimizer = build()
    optimizer.step()
    list(haibun.train.attach(model=model, optimizer=optimizer, total_steps=1).steps())
    masters = [optimizer.state[p]["master"] for p in model.parameters()]
    place.enter(epoch=2)
    model, optimizer = build()
    haibun.train.attach(model=model, optimizer=optimizer, total_steps=1)
    again = [optimizer.state[p]["master"] for p in model.parameters()]
    assert all(a.dtype == torch.float32 and torch.equal(a, b) for a, b in zip(masters, again, strict=True))


def test_schedule_extras_and_local_state_come_back(place: Place) -> None:
    def attach(ema: Counter, reader: Counter) -> tuple[Any, haibun.train.Run]:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        run = haibun.train.attach(
            model=model, optimizer=optimizer, scheduler=schedule, total_steps=3,
            extra={"ema": ema}, local={"reader": reader},
        )  # fmt: skip
        return schedule, run

    place.enter(epoch=1)
    schedule, run = attach(Counter(5), Counter(6))
    for _ in run.steps():
        schedule.optimizer.step()
        schedule.step()
    place.enter(epoch=2)
    ema, reader = Counter(), Counter()
    schedule, _ = attach(ema, reader)
    assert (ema.value, reader.value) == (5, 6)
    assert schedule.get_last_lr() == [0.125]
    assert schedule.optimizer.param_groups[0]["lr"] == 0.125


def test_a_compiled_model_and_a_plain_one_share_checkpoints(place: Place) -> None:
    place.enter(epoch=1)
    plain = nn.Linear(2, 2)
    list(haibun.train.attach(model=plain, total_steps=1).steps())
    place.enter(epoch=2)
    compiled = torch.compile(nn.Linear(2, 2))
    haibun.train.attach(model=compiled, total_steps=1)
    assert torch.equal(compiled._orig_mod.weight, plain.weight)


def test_weights_that_lie_channels_last_come_back_so(place: Place) -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        return model, torch.optim.Adam(model.parameters())

    place.enter(epoch=1)
    model, optimizer = build()
    model(torch.randn(1, 3, 8, 8)).sum().backward()
    optimizer.step()
    list(haibun.train.attach(model=model, optimizer=optimizer, total_steps=1).steps())
    saved = optimizer.state[model.weight]["exp_avg"]  # type: ignore[index]
    place.enter(epoch=2)
    model, optimizer = build()
    haibun.train.attach(model=model, optimizer=optimizer, total_steps=1)
    back = optimizer.state[model.weight]["exp_avg"]  # type: ignore[index]
    assert back.stride() == saved.stride()
    assert torch.equal(back, saved)


def test_several_workers_with_plain_models_save_each_their_own() -> None:
    assert Training(nn.Linear(1, 1), world_size=1).layout == "shared"
    alone = Training(nn.Linear(1, 1), world_size=2)
    assert alone.layout == "own"
    assert "model" in alone.own()
    assert "model" not in alone.shared()
    with pytest.raises(RuntimeError, match="another number of workers"):
        alone.restore({"scheduler": None, "sampler": None, "extra": {}, "buckets": None}, None)
