"""A real server for the pages that start none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the test folders are no packages
from docs_desk import Desk

from haibun.app import prepare_kernels


@pytest.fixture(scope="session")
def compiled() -> None:
    """The kernels are compiled before anybody looks at the clock."""
    prepare_kernels()


@pytest.fixture(scope="session")
def shared_home(compiled: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of a server with four virtual devices, for all pages that start none."""
    home = tmp_path_factory.mktemp("docs-home")
    desk = Desk(tmp_path_factory.mktemp("docs-server"), home)
    code, said = desk.run("haibun up --detach --virtual-devices 4 --port 0")
    assert code == 0, said
    yield home
    desk.close()
