"""Full disks and dead servers: an error that says what to do, nothing half written, all well afterwards."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres_server import Server

from haibun.core.events import Tick
from haibun.store import JobRow, Store, StoreFullError, StoreInUseError, StoreUnreachableError

ROW = JobRow("a", "n", "t", 0, 1, "queued", 1.0)
MANY = [Tick(at=float(i)) for i in range(50_000)]


def holds_out(store: Store, make_space: Callable[[], None]) -> None:
    """Fill the disk, see that nothing was half written, make space, and go on."""
    store.append(MANY[:5], {"a": "{}"}, jobs=[ROW])
    with pytest.raises(StoreFullError, match="disk is full; free some space"):
        store.append(MANY, {"b": "{}"})
    assert [seq for seq, _ in store.events()] == [1, 2, 3, 4, 5]
    assert store.spec("b") is None
    make_space()
    assert store.append(MANY, {"b": "{}"}) == 50_005
    assert sum(1 for _ in store.events()) == 50_005
    assert store.spec("b") == "{}"


def test_a_database_at_its_limit_loses_nothing(sqlite_url: str) -> None:
    def limit(pages: int) -> None:
        with store._writing() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    with Store.open(sqlite_url) as store:
        limit(40)
        holds_out(store, lambda: limit(1 << 30))


def test_a_write_lock_held_by_a_shell_is_waited_out_by_the_caller(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haibun.store.database.BUSY_TIMEOUT_S", 0)
    with Store.open(sqlite_url) as store:
        shell = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnreachableError, match="sqlite3 shell"):
            store.append(MANY[:2])
        shell.execute("ROLLBACK")
        shell.close()
        assert store.append(MANY[:2]) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "haibun-test", str(tmp_path)],
        check=False,
        capture_output=True,
    )
    if not mounted or mounted.returncode:
        pytest.skip("a small disk can be mounted by root alone")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.live
def test_a_full_disk_loses_nothing(small_disk: Path) -> None:
    def make_space() -> None:
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)

    with Store.open(f"sqlite:///{small_disk}/j.db") as store:
        holds_out(store, make_space)


@pytest.mark.live
def test_a_restarted_server_is_found_again_and_the_lock_with_it(postgres: Server, postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        store.append(MANY[:2])
        postgres.stop()
        with pytest.raises(StoreUnreachableError, match=r"does not answer.*check that it runs"):
            store.append(MANY[2:4])
        with pytest.raises(StoreUnreachableError):
            store.jobs()
        postgres.start()
        assert store.append(MANY[2:6]) == 6
        postgres.stop()
        postgres.start()
        assert store.append(MANY[6:7]) == 7  # without an error in between
        assert [e for _, e in store.events()] == MANY[:7]
        with pytest.raises(StoreInUseError):
            Store.open(postgres_url)


@pytest.mark.live
def test_a_controller_that_was_cut_off_cannot_write_into_its_successors_journal(
    postgres: Server, postgres_url: str
) -> None:
    with Store.open(postgres_url) as old:
        old.append(MANY[:1])
        assert old._writer is not None
        postgres.sql(f"SELECT pg_terminate_backend({old._writer._session}, 5000)")
        with Store.open(postgres_url) as new:
            new.append(MANY[1:2])
            with pytest.raises(StoreInUseError, match="stop it first"):
                old.append(MANY[2:3])
            assert new.append(MANY[3:4]) == 3


@pytest.mark.live
def test_a_session_of_ours_that_outlived_its_connection_is_ended(postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        store.append(MANY[:1])
        assert store._writer is not None
        half_dead, store._writer._connection = store._writer._connection, None  # the server does not know yet
        assert store.append(MANY[1:2]) == 2
        assert half_dead is not None
        half_dead.invalidate()
