"""A test's own process as a worker: a board, and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from haibun.train.board import Board, Slot


class Place:
    """Where a test's own process is a worker. ``enter`` begins an attempt."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, patch
        self.checkpoints = folder / "checkpoints"

    def enter(self, epoch: int = 1, **environ: str) -> Board:
        """Make a board, and set the environment that an agent would."""
        self.board = Board.create(self.folder / f"board.{epoch}", 1, epoch)
        own = {
            "HAIBUN_BOARD": str(self.board.path),
            "HAIBUN_SLOT": "0",
            "HAIBUN_JOB": "1",
            "HAIBUN_EPOCH": str(epoch),
            "HAIBUN_CHECKPOINTS": str(self.checkpoints),
        }
        for name, value in (own | environ).items():
            self._patch.setenv(name, value)
        return self.board

    @property
    def slot(self) -> Slot:
        return self.board.slots[0]
