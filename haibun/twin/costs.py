"""What changing a job's place costs in the twin: a stated model, in seconds of a gang's time."""

from __future__ import annotations

from msgspec import Struct


class Costs(Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds. Zero throughout is the ideal cluster of most published simulations, and the default.

    Attributes:
        start: from the decision to the first step, for the first attempt of a job.
        resume: the same for later attempts: start, load the checkpoint; what "move" costs where devices differ.
        move: on top of ``resume``, where the attempt runs on other devices than the last.
        checkpoint: from the notice to the release of the devices: finish the step, save, end. No step is lost.
        stop: from the last step of a job that ends by itself to the release of its devices.
    """

    start: float = 0.0
    resume: float = 0.0
    move: float = 0.0
    checkpoint: float = 0.0
    stop: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not 0.0 <= value < float("inf"):
                raise ValueError(f"cost {name} must be a number of seconds, 0 or more, not {value}")
