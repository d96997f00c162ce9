"""Fixtures of the tests of haibun.train."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the test folders are no packages
from train_place import Place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Not entered yet."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "HAIBUN_BOARD"):
        monkeypatch.delenv(name, raising=False)
    return Place(tmp_path, monkeypatch)
