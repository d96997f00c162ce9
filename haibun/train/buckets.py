"""Makes DistributedDataParallel add gradients in the same order after a restart.

DDP lays its buckets out anew after the first step, in the order in which gradients became ready. A process
that resumes would take its first step with the first layout again. A ring all-reduce adds each element in
an order that depends on its place in the bucket; with three ranks or more another order means other last
bits (two numbers can be added either way). So the order of the first step is recorded and saved, and when a
training is resumed, a step on zeros brings DDP to where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

ORDER_MATTERS_FROM = 3  # ranks


class BucketOrder:
    """The order in which the parameters' gradients become ready in DDP's first step.

    Nothing is recorded where DDP keeps its first layout (``find_unused_parameters``), nor with
    ``static_graph``, whose first step must be the real one.

    Attributes:
        order: numbers of parameters among those that require a gradient; None: not known (yet).
    """

    def __init__(self, ddp: Any) -> None:
        self.order: list[int] | None = None
        self._ddp = ddp
        self._parameters = [p for p in ddp.module.parameters() if p.requires_grad]
        self._hooks: list[Any] = []

    def record(self) -> None:
        """Watch the first backward pass."""
        order: list[int] = []

        def ready(number: int) -> None:
            order.append(number)
            if len(order) == len(self._parameters):
                self.order = order
                for hook in self._hooks:
                    hook.remove()

        for number, parameter in enumerate(self._parameters):
            self._hooks.append(parameter.register_post_accumulate_grad_hook(lambda _, n=number: ready(n)))

    def restore(self, order: list[int] | None) -> None:
        """Bring DDP to where it was after a first step in ``order``; None: that is not known. Collective."""
        if order is None:
            self.record()
        elif sorted(order) == list(range(len(self._parameters))):  # else: another model, as others will say
            self._step_on_zeros(order)
            self.order = order

    def _step_on_zeros(self, order: list[int]) -> None:
        """Let gradients become ready in ``order``, and leave none. Touches no weight and no random number."""
        ddp = self._ddp
        modules, module, synchronise = ddp._modules, ddp.module, ddp.require_forward_param_sync
        ddp.require_forward_param_sync = False  # there are no buffers to send
        modules["module"] = _zeros([self._parameters[n] for n in order])
        try:
            ddp.forward().backward()
        finally:
            modules["module"], ddp.require_forward_param_sync = module, synchronise
        for parameter in self._parameters:
            parameter.grad = None


def bucket_order(ddp: Any, world_size: int) -> BucketOrder | None:
    """The recorder for a DDP model; None where the order makes no difference or does not change."""
    if ddp is None or world_size < ORDER_MATTERS_FROM or ddp.find_unused_parameters or ddp.static_graph:
        return None
    return BucketOrder(ddp)


def _zeros(parameters: list[torch.nn.Parameter]) -> torch.nn.Module:
    """A module whose backward pass makes zero gradients ready in the order of ``parameters``."""
    import torch

    class Zeros(torch.nn.Module):
        def forward(self) -> torch.Tensor:
            # Autograd goes through the graph from its newest node to its oldest.
            total = torch.zeros((), device=parameters[0].device)
            for parameter in reversed(parameters):
                total = total + (parameter * 0).sum()
            return total

    return Zeros()
