"""Fixtures that many folders share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same cases on every machine and in every run; `--hypothesis-profile=search` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("same")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The public traces: HAIBUN_DATA, or ``shared/data`` beside the repository. Mark its tests ``data``."""
    place = Path(os.environ.get("HAIBUN_DATA") or REPOSITORY.parent / "shared" / "data")
    if not place.is_dir():
        pytest.skip(f"no public traces at {place}: set HAIBUN_DATA to the folder that holds jobs/")
    return place
