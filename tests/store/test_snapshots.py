"""A start needs the newest sound snapshot and what came after it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from haibun.core.events import Tick
from haibun.store import Store, StoreDamagedError

Open = Callable[[], Store]


def filled(store: Store, events: int) -> Store:
    store.append([Tick(at=float(i)) for i in range(1, events + 1)])
    return store


def damage(store: Store, seq: int) -> None:
    with store._writing() as connection:
        connection.exec_driver_sql(f"UPDATE snapshots SET blob = substr(blob, 2) WHERE seq = {seq}")


def loaded(store: Store) -> tuple[int, bytes | None, list[float]]:
    seq, blob, events = store.load()
    return seq, blob, [e.at for e in events]


def test_a_new_store_is_empty(store: Store) -> None:
    assert loaded(store) == (0, None, [])


def test_load_gives_the_newest_snapshot_and_the_events_after_it(opened: Open) -> None:
    store = filled(opened(), 5)
    store.snapshot(2, b"two")
    store.snapshot(3, b"three")
    assert loaded(opened()) == (3, b"three", [4.0, 5.0])


def test_a_damaged_snapshot_costs_a_longer_replay_and_a_warning(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(opened(), 5)
    store.snapshot(2, b"two")
    store.snapshot(4, b"four")
    damage(store, 4)
    with caplog.at_level(logging.WARNING):
        assert loaded(opened()) == (2, b"two", [3.0, 4.0, 5.0])
    assert "event 4 is damaged" in caplog.text


def test_without_any_sound_snapshot_the_whole_journal_is_replayed(store: Store) -> None:
    filled(store, 3).snapshot(2, b"two")
    damage(store, 2)
    assert loaded(store) == (0, None, [1.0, 2.0, 3.0])


def test_a_sound_snapshot_is_never_dropped_for_a_damaged_one(store: Store) -> None:
    filled(store, 9).snapshot(2, b"two")
    store.snapshot(4, b"four")
    damage(store, 4)
    store.snapshot(6, b"six")
    damage(store, 6)
    assert loaded(store)[:2] == (2, b"two")


def test_two_snapshots_are_kept(store: Store) -> None:
    filled(store, 9)
    for seq in (2, 4, 6, 6):
        store.snapshot(seq, b"%d" % seq)
    with store._reading() as connection:
        assert connection.exec_driver_sql("SELECT seq FROM snapshots ORDER BY seq").fetchall() == [(4,), (6,)]


def test_a_snapshot_of_what_is_not_journalled_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="the journal ends at 1"):
        filled(store, 1).snapshot(2, b"")


def test_compaction_keeps_the_journal_unless_told(store: Store) -> None:
    filled(store, 5).snapshot(3, b"three")
    store.snapshot(4, b"four")
    assert store.compact() == 0
    assert [seq for seq, _ in store.events()] == [1, 2, 3, 4, 5]


def test_compaction_keeps_what_the_older_snapshot_needs(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haibun.store.store.DELETED_AT_ONCE", 2)
    store = filled(opened(), 8)
    store.snapshot(5, b"five")
    assert store.compact(keep_journal=False) == 0
    store.snapshot(7, b"seven")
    assert store.compact(keep_journal=False) == 5
    damage(store, 7)
    store = opened()
    assert loaded(store) == (5, b"five", [6.0, 7.0, 8.0])
    assert store.append([Tick(at=9.0)]) == 9
    with pytest.raises(StoreDamagedError, match="lacks events 1 to 5"):
        list(store.events())


def test_compaction_deletes_nothing_that_a_damaged_snapshot_leaves_needed(store: Store) -> None:
    filled(store, 8).snapshot(5, b"five")
    store.snapshot(7, b"seven")
    damage(store, 5)
    assert store.compact(keep_journal=False) == 0


def test_compaction_gives_space_back(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with Store.open(f"sqlite:///{path}") as store:
        filled(store, 20_000).snapshot(19_998, b"")
        store.snapshot(19_999, b"")
        store.compact()
        before = path.stat().st_size
        store.compact(keep_journal=False)
        assert path.stat().st_size < before / 10
