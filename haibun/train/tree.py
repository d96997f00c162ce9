"""Nested state to flat tensors and back, for torch.distributed.checkpoint.

torch.distributed.checkpoint spends 0.3 ms on each tensor, however small; a model and its AdamW state have
hundreds. So plain tensors below PACK_BELOW are laid end to end, one *pack* for each type and device, and
everything that is no tensor goes into one pickle, the *skeleton*, which says where each tensor is. Strides
are kept: a channels-last tensor that came back in another layout would take other kernels, and end with
other bits.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

PACK_BELOW = 1 << 20  # bytes; above it, writing takes longer than the 0.3 ms, and the copy costs memory

Flat = dict[str, Any]  # key: a tensor, or the bytes of the skeleton


class InPack(NamedTuple):
    """A tensor within a pack: from element ``start`` of ``key``."""

    key: str
    start: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Alone(NamedTuple):
    """A tensor of its own under ``key``. ``stride`` is None for a sharded one."""

    key: str
    stride: tuple[int, ...] | None


def flatten(tree: Any, prefix: str, *, sharded_only: bool = False) -> Flat:
    """Tensors and skeleton of ``tree``, under keys that start with ``prefix``.

    Args:
        sharded_only: leave out what is no sharded tensor: on ranks whose plain tensors another rank saves.
    """
    packing = _Packing(prefix, sharded_only)
    skeleton = packing.visit(tree, prefix)
    flat = packing.finish()
    if not sharded_only:
        flat[f"{prefix}/skeleton"] = pickle.dumps(skeleton)
    return flat


def unflatten(flat: Mapping[str, Any], prefix: str) -> Any:
    """The tree that ``flatten`` took apart; plain tensors come back on the CPU, each with its own memory."""
    return _rebuild(pickle.loads(flat[f"{prefix}/skeleton"]), flat)


def is_sharded(value: Any) -> bool:
    """Whether ``value`` is a tensor of which each rank holds a part."""
    return isinstance(value, Tensor) and hasattr(value, "device_mesh")


class _Packing:
    def __init__(self, prefix: str, sharded_only: bool) -> None:
        self._prefix, self._sharded_only = prefix, sharded_only
        self._alone: Flat = {}
        self._packs: dict[str, list[Tensor]] = {}
        self._lengths: dict[str, int] = {}

    def visit(self, node: Any, key: str) -> Any:
        if type(node) is dict or type(node).__name__ == "OrderedDict":
            return {k: self.visit(v, f"{key}/{k}") for k, v in node.items()}
        if type(node) in (list, tuple):
            return type(node)(self.visit(v, f"{key}/{i}") for i, v in enumerate(node))
        if is_sharded(node):
            self._alone[key] = node.detach()
            return Alone(key, None)
        if type(node) in (Tensor, torch.nn.Parameter) and _is_dense(node):
            return None if self._sharded_only else self._plain(node.detach(), key)
        return node

    def _plain(self, tensor: Tensor, key: str) -> InPack | Alone:
        shape, stride = tuple(tensor.shape), tensor.stride()
        if tensor.nbytes >= PACK_BELOW:
            self._alone[key] = tensor
            return Alone(key, stride)
        pack = f"{self._prefix}/pack/{tensor.dtype}/{tensor.device}".replace("torch.", "")
        start = self._lengths.get(pack, 0)
        self._packs.setdefault(pack, []).append(tensor.as_strided((tensor.numel(),), (1,)))
        self._lengths[pack] = start + tensor.numel()
        return InPack(pack, start, shape, stride)

    def finish(self) -> Flat:
        return self._alone | {key: torch.cat(parts) for key, parts in self._packs.items()}


def _is_dense(tensor: Tensor) -> bool:
    """Whether the elements lie in memory without gap or overlap, in whatever order of dimensions."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return False
    expected = 1
    for stride, size in sorted((st, n) for st, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _rebuild(node: Any, flat: Mapping[str, Any]) -> Any:
    if isinstance(node, InPack):
        n = 1
        for size in node.shape:
            n *= size
        part: Tensor = flat[node.key][node.start : node.start + n].clone()
        return part.as_strided(node.shape, node.stride)
    if isinstance(node, Alone):
        whole: Tensor = flat[node.key]
        if node.stride is None or node.stride == whole.stride():
            return whole
        return torch.empty_strided(whole.shape, node.stride, dtype=whole.dtype).copy_(whole)
    if isinstance(node, dict):
        return {k: _rebuild(v, flat) for k, v in node.items()}
    if type(node) in (list, tuple):
        return type(node)(_rebuild(v, flat) for v in node)
    return node
