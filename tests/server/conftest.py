"""Makes ``fake_controller`` importable to the tests beside it, and gives them one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_controller import FakeController


@pytest.fixture
def controller(tmp_path: Path) -> FakeController:
    return FakeController(tmp_path / "logs")
