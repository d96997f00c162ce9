"""What a checkpoint of a training holds, and how it is put back.

Some of it is *shared*, saved once for all ranks; the rest is each rank's *own*:

| part | one worker, or DDP | sharded (DTensor: FSDP2, TP) | several workers, plain module |
|---|---|---|---|
| model, optimizer | shared | shared, each rank its shards | own: nothing says that they are alike |
| LR scheduler, sampler, ``extra`` | shared | shared | shared |
| order of DDP's buckets | shared | - | - |
| RNG, ``local`` | own | own | own |
| buffers that DDP does not broadcast | own | - | - |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from haibun.train import rng
from haibun.train.buckets import BucketOrder, bucket_order

if TYPE_CHECKING:
    import torch

Layout = Literal["shared", "sharded", "own"]


@runtime_checkable
class Stateful(Protocol):
    """Anything whose state can be saved: a LR scheduler, a GradScaler, averaged weights, ..."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


@dataclass(frozen=True)
class Training:
    """The objects that a script handed to ``attach``."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | None = None
    scheduler: Stateful | None = None
    sampler: Stateful | None = None
    extra: Mapping[str, Stateful] = field(default_factory=dict)
    local: Mapping[str, Stateful] = field(default_factory=dict)
    world_size: int = 1

    def __post_init__(self) -> None:
        named: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer}
        named |= {"scheduler": self.scheduler, "sampler": self.sampler}
        for name, thing in [*named.items(), *self.extra.items(), *self.local.items()]:
            if thing is not None and not isinstance(thing, Stateful):
                raise TypeError(
                    f"{name} cannot be saved: {type(thing).__name__} has no state_dict and load_state_dict"
                )

    @cached_property
    def module(self) -> torch.nn.Module:
        """The model without the wrappers of torch.compile and DDP, which put prefixes before its names."""
        module: Any = self.model
        while True:
            inner = getattr(module, "_orig_mod", None)
            if inner is None and type(module).__name__ == "DistributedDataParallel":
                inner = module.module
            if inner is None:
                return module  # type: ignore[no-any-return]
            module = inner

    @cached_property
    def layout(self) -> Layout:
        """Whether model and optimizer are alike on all ranks, cut up among them, or each rank's own."""
        from haibun.train.tree import is_sharded

        if any(type(m).__name__ == "FullyShardedDataParallel" for m in self.model.modules()):
            raise TypeError(
                "FullyShardedDataParallel cannot be saved: use torch.distributed.fsdp.fully_shard"
            )
        if any(is_sharded(p) for p in self.model.parameters()):
            return "sharded"
        return "shared" if self.world_size == 1 or self._ddp is not None else "own"

    @cached_property
    def buckets(self) -> BucketOrder | None:
        """How DDP's buckets are ordered, where that matters."""
        return bucket_order(self._ddp, self.world_size)

    @cached_property
    def gpus(self) -> list[torch.device]:
        """The GPUs that the model is on, in order."""
        devices = {p.device for p in self.model.parameters() if p.device.type == "cuda"}
        return sorted(devices, key=lambda d: d.index or 0)

    def shared(self) -> dict[str, Any]:
        """State that is saved once."""
        tree: dict[str, Any] = {
            "scheduler": _state(self.scheduler),
            "sampler": _state(self.sampler),
            "buckets": self.buckets.order if self.buckets else None,
            "extra": {name: thing.state_dict() for name, thing in self.extra.items()},
        }
        if self.layout != "own":
            tree |= self._model_and_optimizer()
        return tree

    def own(self) -> dict[str, Any]:
        """State of this rank."""
        tree: dict[str, Any] = {
            "rng": rng.capture(self.gpus),
            "local": {name: thing.state_dict() for name, thing in self.local.items()},
        }
        if self.layout == "own":
            tree |= self._model_and_optimizer()
        elif self._ddp is not None and not self._ddp.broadcast_buffers:
            tree["buffers"] = dict(self._buffers())
        return tree

    def restore(self, shared: dict[str, Any], own: dict[str, Any] | None) -> None:
        """Put everything back but the RNG, which ``rng.restore`` does when the loop begins.

        Args:
            own: None if the checkpoint has nothing of this rank, because it was made by fewer workers.

        Raises:
            RuntimeError: the checkpoint does not fit the model, or was made by another number of workers
                whose models were each their own.
        """
        if self.buckets is not None:
            self.buckets.restore(shared["buckets"])  # first: what hooks of the script do to weights is undone
        self._restore_model(own if self.layout == "own" else shared)
        if self.scheduler is not None and shared["scheduler"] is not None:
            self.scheduler.load_state_dict(shared["scheduler"])
        if self.sampler is not None and shared["sampler"] is not None:
            self.sampler.load_state_dict(shared["sampler"])
        _restore_named(self.extra, shared["extra"])
        if own is not None:
            _restore_named(self.local, own["local"])
            saved = own.get("buffers", {})
            for name, buffer in self._buffers():
                if name in saved:
                    buffer.copy_(saved[name])

    @property
    def _ddp(self) -> Any:
        module: Any = getattr(self.model, "_orig_mod", self.model)
        return module if type(module).__name__ == "DistributedDataParallel" else None

    def _buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        persistent = self.module.state_dict().keys()
        return ((name, b) for name, b in self.module.named_buffers() if name in persistent)

    def _model_and_optimizer(self) -> dict[str, Any]:
        if self.layout == "sharded":
            from torch.distributed.checkpoint import state_dict as sd

            optimizers = [] if self.optimizer is None else [self.optimizer]
            model, optimizer = sd.get_state_dict(self.model, optimizers)
            return {"model": model, "optimizer": optimizer}
        states = self.module.state_dict()
        return {
            "model": states,
            "versions": dict(getattr(states, "_metadata", {})),
            "optimizer": _state(self.optimizer),
        }

    def _restore_model(self, tree: dict[str, Any] | None) -> None:
        if tree is None or "model" not in tree:
            raise RuntimeError(
                "the checkpoint was made by another number of workers, each with a model of its own: "
                "to change their number, wrap the model in DistributedDataParallel or use fully_shard"
            )
        if self.layout == "sharded":
            from torch.distributed.checkpoint import state_dict as sd

            optimizers = [] if self.optimizer is None else [self.optimizer]
            sd.set_state_dict(
                self.model, optimizers, model_state_dict=tree["model"], optim_state_dict=tree["optimizer"]
            )
            return
        states = _WithVersions(tree["model"])
        states._metadata = tree["versions"]
        self.module.load_state_dict(states)
        if self.optimizer is not None and tree["optimizer"] is not None:
            self.optimizer.load_state_dict(tree["optimizer"])
            _undo_casts(self.optimizer, tree["optimizer"])


class _WithVersions(dict[str, Any]):
    """A state dict with the versions of its modules, which ``load_state_dict`` looks for."""

    _metadata: dict[str, Any]

    def copy(self) -> _WithVersions:
        same = _WithVersions(self)
        same._metadata = self._metadata
        return same


def _state(thing: Any) -> Any:
    return None if thing is None else thing.state_dict()


def _restore_named(things: Mapping[str, Stateful], states: Mapping[str, dict[str, Any]]) -> None:
    for name, thing in things.items():
        if name in states:
            thing.load_state_dict(states[name])


def _undo_casts(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Give optimizer state the type back that it was saved in.

    ``Optimizer.load_state_dict`` casts float32 moments of bfloat16 weights to bfloat16, which loses bits.
    """
    import torch

    if type(optimizer).load_state_dict is not torch.optim.Optimizer.load_state_dict:
        return
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    numbers = (n for group in saved["param_groups"] for n in group["params"])
    for parameter, number in zip(parameters, numbers, strict=True):
        for name, value in saved["state"].get(number, {}).items():
            if isinstance(value, torch.Tensor) and value.dtype != optimizer.state[parameter][name].dtype:
                optimizer.state[parameter][name] = value.to(parameter.device)
