"""Opening: one controller a journal, tables lifted, and an answer to everything that can be wrong."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from postgres_server import Server

from haibun.core.events import Tick
from haibun.store import (
    Store,
    StoreDamagedError,
    StoreError,
    StoreInUseError,
    StoreVersionError,
    migrate,
    schema,
)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("journal.db", "no database URL"),
        ("", "no database URL"),
        ("mysql://u:secret@h/d", "not in 'mysql'"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:////no/such/folder/j.db", "folder /no/such/folder does not exist"),
    ],
)
def test_a_wrong_url_is_explained(url: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        Store.open(url)
    assert "secret" not in str(caught.value)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"haibun\[postgres\]"):
        Store.open("postgres://u:secret@localhost/d")


def test_a_database_that_is_down_is_named_without_its_password() -> None:
    with pytest.raises(
        StoreError, match=r"localhost:1/d: the database does not answer.*check that it runs"
    ) as e:
        Store.open("postgresql://u:secret@localhost:1/d")
    assert "secret" not in str(e.value)


@pytest.mark.live
def test_a_database_that_does_not_exist_is_said_to_be_missing(postgres: Server) -> None:
    with pytest.raises(StoreError, match="createdb"):
        Store.open(f"postgresql://haibun@/nowhere?host={postgres.folder}")


@pytest.mark.live
def test_an_unknown_user_is_told_so(postgres: Server) -> None:
    with pytest.raises(StoreError, match="refuses this user"):
        Store.open(f"postgresql://stranger@/postgres?host={postgres.folder}")


@pytest.mark.live
def test_a_user_without_rights_is_told_so(postgres: Server) -> None:
    url = postgres.url("not_mine", user="guest")
    postgres.sql("CREATE USER guest")
    with pytest.raises(StoreError, match="rights"):
        Store.open(url)


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.write_bytes(b"my thesis " * 1000)
    with pytest.raises(StoreDamagedError, match="not a sound SQLite database"):
        Store.open(f"sqlite:///{path}")
    assert path.read_bytes() == b"my thesis " * 1000


def test_a_file_damaged_in_the_middle_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with Store.open(f"sqlite:///{path}") as store:
        store.append([Tick(at=float(i)) for i in range(10_000)])
    with path.open("r+b") as file:
        file.seek(100_000)
        file.write(b"\xff" * 50_000)
    with Store.open(f"sqlite:///{path}") as store, pytest.raises(StoreDamagedError, match="restore a backup"):
        list(store.events())


@contextmanager
def unprivileged() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("existing", [False, True])
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, existing: bool) -> None:
    path = tmp_path / "j.db"
    if existing:
        Store.open(f"sqlite:///{path}").close()
        path.chmod(0o444)
        Path(f"{path}.lock").chmod(0o666)
    for folder in (*reversed(tmp_path.parents[:3]), tmp_path):
        folder.chmod(folder.stat().st_mode | 0o055)
    tmp_path.chmod(0o555)
    with unprivileged(), pytest.raises(StoreError, match=r"j\.db.*check that"):
        Store.open(f"sqlite:///{path}")
    tmp_path.chmod(0o755)


def test_only_the_owner_may_read_the_journal(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/j.db") as store:
        store.append([Tick(at=1.0)])
        for path in tmp_path.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_journal_in_use_is_refused_and_its_holder_named(url: str) -> None:
    with Store.open(url), pytest.raises(StoreInUseError, match=f"pid {os.getpid()} on .*uses this journal"):
        Store.open(url)
    Store.open(url).close()


def test_the_lock_ends_with_its_process(sqlite_url: str) -> None:
    script = f"import os; from haibun.store import Store; Store.open({sqlite_url!r}); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    Store.open(sqlite_url).close()


def test_a_forked_child_does_not_keep_the_lock(sqlite_url: str) -> None:
    reading, writing = os.pipe()
    script = (
        "import os; from haibun.store import Store\n"
        f"store = Store.open({sqlite_url!r})\n"
        f"child = os.fork()\nif not child: os.read({reading}, 1)\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, pass_fds=(reading,))
    Store.open(sqlite_url).close()  # while the child still waits
    os.close(writing)
    os.close(reading)


def test_a_reader_needs_no_lock_and_writes_nothing(url: str) -> None:
    with Store.open(url) as store:
        store.append([Tick(at=1.0)])
        with Store.open(url, read_only=True) as reader:
            assert len(list(reader.events())) == 1
            store.append([Tick(at=2.0)])
            assert len(list(reader.events())) == 2
            with pytest.raises(StoreError, match="reading only"):
                reader.append([Tick(at=3.0)])


def test_a_reader_does_not_create_a_journal(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no journal"):
        Store.open(f"sqlite:///{tmp_path}/j.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_tables_newer_than_the_code_are_refused(url: str) -> None:
    with Store.open(url) as store, store._writing() as connection:
        connection.exec_driver_sql(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    for read_only in (False, True):
        with pytest.raises(StoreVersionError, match=r"'9999'.*upgrade Haibun"):
            Store.open(url, read_only=read_only)


def test_the_migrations_make_the_tables_that_the_code_expects(url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with Store.open(url) as store, store._reading() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": schema.VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, schema.metadata) == []


def test_the_code_knows_exactly_the_revisions_that_lie_beside_it() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(Path(migrate.__file__).parent / "migrations"))
    assert tuple(s.revision for s in reversed(list(scripts.walk_revisions()))) == schema.REVISIONS


def test_a_migration_that_fails_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = migrate.upgrade

    def fails_late(connection: sa.Connection) -> None:
        whole(connection)
        raise StoreError("no more power")

    with monkeypatch.context() as patch:
        patch.setattr(migrate, "upgrade", fails_late)
        with pytest.raises(StoreError, match="no more power"):
            Store.open(url)
    with Store.open(url) as store:
        assert store.last_seq == 0


def test_opening_an_existing_store_does_not_import_alembic(sqlite_url: str) -> None:
    Store.open(sqlite_url).close()
    script = (
        "import sys; from haibun.store import Store\n"
        f"Store.open({sqlite_url!r}).close(); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
