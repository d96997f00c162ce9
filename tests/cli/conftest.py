"""A server over a fake controller, found by the environment; see tests/server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from fake_controller import TOKEN, FakeController
from live_server import Live, serving


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    with serving(FakeController(tmp_path / "logs")) as server:
        monkeypatch.setenv("HAIBUN_URL", server.url)
        monkeypatch.setenv("HAIBUN_TOKEN", TOKEN)
        yield server


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the user's own server."""
    for name in ("HAIBUN_URL", "HAIBUN_TOKEN", "HAIBUN_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HAIBUN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
