"""How an attempt ended, and the event that says so: functions of exit codes, phases and what was asked."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from haibun.core.events import AttemptFailed, AttemptStopped, AttemptSucceeded
from haibun.core.vocabulary import NodeName

EndEvent = AttemptStopped | AttemptSucceeded | AttemptFailed


@dataclass(frozen=True, slots=True)
class Exit:
    """A worker that ended by itself: exit code (negative: a signal) and the last line it wrote."""

    rank: int
    code: int
    last_line: str = ""
    yielded: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What is known of memory: the limit in bytes, kills by the kernel, whether these can be known."""

    limit: int = 0
    kills: int = 0
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """Who it is about, and how far it was."""

    job: str
    epoch: int
    node: NodeName
    step: float
    durable: float
    attached: bool


def first_failure(exits: list[Exit]) -> Exit | None:
    """The exit that the others follow from: the first by a signal, else the first failure, if any."""
    failed = [e for e in exits if e.code != 0]
    return next((e for e in failed if e.code < 0), failed[0] if failed else None)


def cause(exit_: Exit, memory: Memory) -> str:
    """A sentence on why a worker ended, for its user."""
    if exit_.code < 0:
        what = f"rank {exit_.rank} was killed by {_signal_name(-exit_.code)}"
        if exit_.code == -signal.SIGKILL and not memory.kills and not memory.counted:
            what += " (out of memory?)"
    else:
        what = f"rank {exit_.rank} exited with code {exit_.code}"
    if memory.kills:
        what += f" (out of memory: the limit is {size(memory.limit)})"
    if not exit_.last_line:
        return what
    if exit_.code == -signal.SIGKILL:  # it had no last word: the line tells where it was, not why
        return f"{what}; the last line of its log: {exit_.last_line}"
    return f"{what}: {exit_.last_line}"


def size(n: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "kB", "MB"):
        if n < 1000:
            return f"{n:.0f} {unit}"
        n /= 1000
    return f"{n:.1f} GB"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ended(at: float, who: Standing, exits: list[Exit], memory: Memory, asked: bool, forced: bool) -> EndEvent:
    """The event for an attempt whose workers have all ended.

    Args:
        asked: it had been told to stop.
        forced: signals were sent for that; exit codes then say nothing.
    """
    yielded = any(e.yielded for e in exits)
    clean = all(e.code == 0 for e in exits)
    if asked and (forced or yielded or not clean):
        return stopped(at, who)
    if (bad := first_failure(exits)) is not None:
        return failed(at, who, cause(bad, memory))
    if yielded:
        return failed(
            at, who, f"rank {next(e.rank for e in exits if e.yielded)} yielded without being asked to"
        )
    return AttemptSucceeded(at, who.job, who.epoch, step=who.step if who.attached else None)


def stopped(at: float, who: Standing) -> AttemptStopped:
    """It was told to stop and has."""
    return AttemptStopped(at, who.job, who.epoch, step=who.step, durable=who.durable)


def failed(at: float, who: Standing, why: str, fatal: bool = False) -> AttemptFailed:
    """It went wrong on this node."""
    return AttemptFailed(at, who.job, who.epoch, why, who.step, who.durable, node=who.node, fatal=fatal)
