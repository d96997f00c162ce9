"""What the engine asks of an executor. An executor that obeys them makes the plan true."""

from __future__ import annotations

from msgspec import Struct

from haibun.core.vocabulary import JobId, StopMode


class Action(Struct, frozen=True, tag_field="kind", gc=False):
    """Every action names a job and the epoch of the attempt that it is about."""

    job: JobId
    epoch: int


class StartAttempt(Action, frozen=True, tag="start", gc=False):
    """Launch the job's workers on ``devices`` (device numbers of the State), from its last durable step.

    All the devices are free: nothing of an earlier attempt is left on them.
    ``rate`` is the profiled steps/s for this allocation, 0 if unknown; the twin moves the job by it.
    """

    devices: tuple[int, ...]
    durable: float = 0.0
    rate: float = 0.0
    moved: bool = False


class StopAttempt(Action, frozen=True, tag="stop", gc=False):
    """Take the attempt off its devices; answer with ``AttemptStopped`` once nothing of it is left there."""

    mode: StopMode


class HoldAttempt(Action, frozen=True, tag="hold", gc=False):
    """Stand still with process and devices kept; answer with ``AttemptHeld``."""


class ContinueAttempt(Action, frozen=True, tag="continue", gc=False):
    """Go on after a hold; answer with ``AttemptStarted``."""


AnyAction = StartAttempt | StopAttempt | HoldAttempt | ContinueAttempt
