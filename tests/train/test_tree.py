"""Taking state apart for torch.distributed.checkpoint and putting it together again loses no bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from haibun.train.tree import PACK_BELOW, flatten, unflatten


def same(a: Any, b: Any) -> bool:
    """Equal in type, layout, and bits."""
    if isinstance(a, Tensor):
        meta = (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        return meta and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def test_every_kind_of_state_comes_back_as_it_was() -> None:
    tree = {
        "small": torch.randn(3, 4),
        "scalar": torch.tensor(3.0),
        "empty": torch.empty(0, 5),
        "half": torch.randn(5).bfloat16(),
        "whole": torch.arange(7),
        "truth": torch.tensor([True, False]),
        "turned": torch.randn(4, 6).t(),
        "part": torch.randn(10, 10)[2:5],
        "gaps": torch.randn(10, 10)[:, ::2],
        "big": torch.randn(PACK_BELOW // 4 + 1),
        "channels last": torch.randn(2, 8, 4, 4).to(memory_format=torch.channels_last),
        "big channels last": torch.randn(2, 256, 32, 32).to(memory_format=torch.channels_last),
        "numbers": {0: {"step": 1, "betas": (0.9, 0.99)}, 1: [torch.ones(2), None, "text"]},
    }
    assert same(unflatten(flatten(tree, "x"), "x"), tree)


def test_small_tensors_share_one_pack_for_each_type_and_come_back_with_memory_of_their_own() -> None:
    tree = {"a": [torch.ones(5) for _ in range(100)], "b": torch.ones(3, dtype=torch.int64)}
    flat = flatten(tree, "x")
    assert len(flat) == 3  # two packs and the skeleton
    first, second, *_ = unflatten(flat, "x")["a"]
    first.zero_()
    assert second.sum() == 5
    assert first.untyped_storage().nbytes() == 20


def test_a_parameter_is_saved_as_what_it_holds() -> None:
    back = unflatten(flatten({"p": torch.nn.Parameter(torch.ones(2))}, "x"), "x")["p"]
    assert type(back) is Tensor
    assert not back.requires_grad
