"""The board: a small shared file between a node agent and the workers of one attempt on that node.

The agent writes the header (what it asks), each worker writes its own slot (how far it is). Reading or
writing a field is one aligned 8-byte memory access, so a step costs no system call, the agent polls as
often as it likes, and the file outlives either side: an agent that comes back finds what its workers did
meanwhile.

All numbers are 8 bytes, native order. Times are CLOCK_MONOTONIC seconds, which all processes of a host share.
"""

from __future__ import annotations

import json
import mmap
import os
from enum import IntEnum
from pathlib import Path
from typing import Any

MAGIC = 0x4842_424F_4152_4401  # "HBBOARD", layout 1
HEADER_BYTES = 256
SLOT_BYTES = 2048
METRICS_OFFSET = 256  # within a slot
METRICS_BYTES = SLOT_BYTES - METRICS_OFFSET


class Command(IntEnum):
    """What the agent asks of the attempt."""

    RUN = 0
    YIELD = 1  # save at the next step boundary and end
    HOLD = 2  # stand still at the next step boundary, keeping everything
    SAVE = 3  # save at the next step boundary and go on


class Phase(IntEnum):
    """What a worker is doing."""

    STARTING = 0
    STEPPING = 1
    SAVING = 2
    HELD = 3
    YIELDED = 4  # saved because asked to, and about to exit: this is no success
    BUSY = 5  # outside the step loop (evaluation, say): no beats are due
    FINISHED = 6  # the step loop ran to its end


class _Field:
    """One 8-byte field at ``index`` (counted in 8-byte words) of a part of the board; ``kind`` 'q' or 'd'."""

    def __init__(self, index: int, kind: str) -> None:
        self.index, self.kind = index, kind

    def __get__(self, part: _Part, owner: type) -> Any:
        return (part.ints if self.kind == "q" else part.floats)[part.base + self.index]

    def __set__(self, part: _Part, value: float) -> None:
        if self.kind == "q":
            part.ints[part.base + self.index] = int(value)
        else:
            part.floats[part.base + self.index] = value


class _Part:
    def __init__(self, ints: memoryview[int], floats: memoryview[float], base: int) -> None:
        self.ints, self.floats, self.base = ints, floats, base


class Header(_Part):
    """What is asked. ``command_seq`` is raised last, so that a worker sees ``command`` and ``deadline``."""

    magic = _Field(0, "q")
    slots = _Field(1, "q")
    epoch = _Field(2, "q")
    command = _Field(3, "q")
    command_seq = _Field(4, "q")
    deadline = _Field(5, "d")  # 0: none
    # Written by global rank 0 alone; on other nodes by the agent, which copies these words in this order.
    stop_at = _Field(6, "q")  # the step after which all ranks obey the order; -1: none yet
    stop_seq = _Field(7, "q")  # the latest command_seq that rank 0 has answered with an order
    stop_command = _Field(8, "q")  # what is ordered: a command, or SAVE because a checkpoint was due
    stop_no = _Field(9, "q")  # raised with each order, after the words above


class Slot(_Part):
    """How far one worker is."""

    pid = _Field(0, "q")
    attached = _Field(1, "q")
    phase = _Field(2, "q")
    step = _Field(3, "q")  # steps done, in all attempts together
    durable = _Field(4, "q")  # steps safe in a checkpoint
    total = _Field(5, "q")  # declared steps; -1: not declared
    beat = _Field(6, "d")  # when the last step ended
    first_step = _Field(7, "d")  # when this attempt's first step ended; 0: not yet
    done_seq = _Field(8, "q")  # the last command_seq that was carried out
    restored = _Field(9, "q")  # the step that this attempt began from
    metrics_seq = _Field(10, "q")  # odd while the metrics are being written
    metrics_len = _Field(11, "q")

    def write_metrics(self, metrics: dict[str, float]) -> None:
        """Replace the latest metrics; ValueError if they take more than METRICS_BYTES as JSON."""
        body = json.dumps(metrics).encode()
        if len(body) > METRICS_BYTES:
            raise ValueError(f"metrics take {len(body)} bytes as JSON; the board holds {METRICS_BYTES}")
        raw = self.ints.cast("B")
        at = self.base * 8 + METRICS_OFFSET
        self.metrics_seq += 1
        raw[at : at + len(body)] = body
        self.metrics_len = len(body)
        self.metrics_seq += 1

    def read_metrics(self) -> dict[str, float]:
        """The latest metrics; empty if there are none, or if they are being written just now."""
        seq, n = self.metrics_seq, self.metrics_len
        if seq % 2 or not 0 < n <= METRICS_BYTES:
            return {}
        at = self.base * 8 + METRICS_OFFSET
        body = bytes(self.ints.cast("B")[at : at + n])
        if self.metrics_seq != seq:
            return {}
        metrics: dict[str, float] = json.loads(body)
        return metrics


class Board:
    """An open board. ``Board.create`` on the agent's side, ``Board.open`` on the worker's."""

    def __init__(self, path: Path, mapping: mmap.mmap) -> None:
        self.path = path
        self._map = mapping
        view = memoryview(mapping)
        ints, floats = view.cast("q"), view.cast("d")
        self.header = Header(ints, floats, 0)
        n = int(self.header.slots)
        self.slots = [Slot(ints, floats, (HEADER_BYTES + i * SLOT_BYTES) // 8) for i in range(n)]

    @classmethod
    def create(cls, path: Path, slots: int, epoch: int) -> Board:
        """Make a new board for ``slots`` local workers; the file appears whole or not at all."""
        temporary = path.with_suffix(".new")
        size = HEADER_BYTES + slots * SLOT_BYTES
        with open(temporary, "wb+") as f:
            f.truncate(size)
            mapping = mmap.mmap(f.fileno(), size)
        words = memoryview(mapping).cast("q")
        words[1], words[2], words[6], words[0] = slots, epoch, -1, MAGIC
        for i in range(slots):
            words[(HEADER_BYTES + i * SLOT_BYTES) // 8 + 5] = -1
        os.replace(temporary, path)
        return cls(path, mapping)

    @classmethod
    def open(cls, path: Path) -> Board:
        """Open a board that an agent made.

        Raises:
            ValueError: the file is no board of this layout.
        """
        with open(path, "rb+") as f:
            mapping = mmap.mmap(f.fileno(), 0)
        if len(mapping) < HEADER_BYTES or int.from_bytes(mapping[:8], "little") != MAGIC:
            raise ValueError(f"{path} is not a board that this version of Haibun can read")
        return cls(path, mapping)

    def ask(self, command: Command, deadline: float = 0.0) -> int:
        """Agent: post a command. Returns its number, which workers put into ``done_seq`` once obeyed."""
        h = self.header
        h.command, h.deadline = int(command), deadline
        h.command_seq += 1
        return int(h.command_seq)
