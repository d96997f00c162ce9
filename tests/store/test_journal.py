"""What was appended is there, in order, exactly once, whatever happens in between."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haibun.core.events import AnyEvent, AttemptProgressed, JobSubmitted, Tick
from haibun.core.vocabulary import Job, Shape
from haibun.store import JobRow, Store, StoreDamagedError, StoreError, StoreUnreachableError

Open = Callable[[], Store]


def ticks(*times: float) -> list[AnyEvent]:
    return [Tick(at=t) for t in times]


def submitted(job: str) -> JobSubmitted:
    return JobSubmitted(at=1.0, job=Job(id=job, shapes=(Shape(2),)))


def content(store: Store) -> list[tuple[int, AnyEvent]]:
    return list(store.events())


def test_events_come_back_in_order_after_reopening(opened: Open) -> None:
    events = [submitted("a"), AttemptProgressed(2.0, "a", 1, 3.0, rate=1 / 3), *ticks(3.0)]
    assert opened().append(events) == 3
    store = opened()
    assert store.last_seq == 3
    assert content(store) == list(enumerate(events, 1))
    assert [e for _, e in store.events(after=1, kinds=["tick", "job-submitted"])] == events[2:]


def test_an_append_of_nothing_changes_nothing(store: Store) -> None:
    assert store.append([]) == 0
    assert content(store) == []


def test_specs_are_written_with_their_events(opened: Open) -> None:
    opened().append([submitted("a")], {"a": '{"run": "é"}'})
    store = opened()
    assert store.spec("a") == '{"run": "é"}'
    assert store.spec("b") is None


def test_long_journals_are_read_page_by_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haibun.store.store.PAGE_EVENTS", 3)
    events = ticks(*range(10))
    store.append(events)
    assert [e for _, e in store.events()] == events
    assert [seq for seq, _ in store.events(after=4, kinds=["tick"])] == [5, 6, 7, 8, 9, 10]


def test_what_is_appended_while_reading_is_read_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haibun.store.store.PAGE_EVENTS", 2)
    store.append(ticks(1, 2, 3))
    reader = store.events()
    next(reader)
    store.append(ticks(4))
    assert [seq for seq, _ in reader] == [2, 3, 4]


class Saboteur:
    """Makes the next commit fail, before or after it took hold; ``cut`` also cuts the connection."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fail: str | None = None
        self.cut = False
        dialect = store._engine.dialect
        commit = dialect.do_commit
        error: type[Exception] = dialect.loaded_dbapi.OperationalError

        def do_commit(connection: Any) -> None:
            how, self.fail = self.fail, None
            if how == "after":
                commit(connection)
            if how and self.cut and dialect.name == "postgresql":
                connection.dbapi_connection.close()
            if how:
                raise error("disk I/O error" if error is sqlite3.OperationalError else "server closed")
            commit(connection)

        monkeypatch.setattr(dialect, "do_commit", do_commit)


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("cut", [False, True])
def test_an_append_that_is_tried_again_is_there_exactly_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch, how: str, cut: bool
) -> None:
    store = opened()
    store.append(ticks(1))
    saboteur = Saboteur(store, monkeypatch)
    saboteur.fail, saboteur.cut = how, cut
    batch = ticks(2, 3)
    try:
        last = store.append(batch, {"j": "{}"})
    except StoreError:
        last = store.append([*batch, *ticks(4)], {"j": "{}"})
        batch = ticks(2, 3, 4)
    assert last == store.last_seq == 1 + len(batch)
    assert [e for _, e in opened().events()] == ticks(1) + batch


def test_other_events_after_a_commit_that_held_unseen_are_refused(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(sqlite_url) as store:
        Saboteur(store, monkeypatch).fail = "after"
        with pytest.raises(StoreError, match="disk fails"):
            store.append(ticks(1))
        with pytest.raises(StoreDamagedError, match="restart the controller"):
            store.append(ticks(7))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([None, "before", "after"])), max_size=12))
def test_whatever_commits_fail_each_event_is_there_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[int, str | None]]
) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('journal')}/j.db"
    expected: list[AnyEvent] = []
    with Store.open(url) as store, pytest.MonkeyPatch.context() as patch:
        saboteur = Saboteur(store, patch)
        waiting: list[AnyEvent] = []
        for number, (count, fail) in enumerate(script):
            waiting += ticks(*(number + i / 10 for i in range(count)))
            saboteur.fail = fail
            try:
                store.append(waiting)
            except StoreError:
                continue
            expected += waiting
            waiting = []
        saboteur.fail = None
        store.append(waiting)
        assert [e for _, e in store.events()] == expected + waiting


def test_a_transaction_is_written_whole_or_not_at_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    row = JobRow("a", "n", "t", 0, 1, "queued", 1.0)
    saboteur = Saboteur(store, monkeypatch)
    saboteur.fail = "before"
    try:
        store.append(ticks(1), {"a": "{}"}, jobs=[row])
    except StoreUnreachableError:
        pytest.fail("a server that is there is reached at the second try")
    except StoreError:
        assert (content(store), store.spec("a"), store.jobs()) == ([], None, [])
    else:
        assert (len(content(store)), store.spec("a"), store.jobs()) == (1, "{}", [row])


def test_rows_can_be_written_while_an_append_is_open_to_doubt(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = JobRow("a", "n", "t", 0, 1, "queued", 1.0)
    with Store.open(sqlite_url) as store:
        Saboteur(store, monkeypatch).fail = "after"
        with pytest.raises(StoreError):
            store.append(ticks(1))
        store.record_jobs([row])
        assert store.append(ticks(1, 2)) == 2
        assert (len(content(store)), store.jobs()) == (2, [row])


def test_a_missing_event_is_noticed(store: Store) -> None:
    store.append(ticks(1, 2, 3))
    with store._writing() as connection:
        connection.exec_driver_sql("DELETE FROM journal WHERE seq = 2")
    with pytest.raises(StoreDamagedError, match="lacks events 2 to 2"):
        content(store)


def test_an_event_of_a_newer_haibun_is_named(store: Store) -> None:
    store.append(ticks(1))
    with store._writing() as connection:
        connection.exec_driver_sql("UPDATE journal SET version = 99")
    with pytest.raises(StoreDamagedError, match=r"event 1 .*version 99.*upgrade"):
        content(store)


def test_a_damaged_event_is_named(store: Store) -> None:
    store.append(ticks(1, 2))
    with store._writing() as connection:
        connection.exec_driver_sql("UPDATE journal SET body = substr(body, 2) WHERE seq = 2")
    with pytest.raises(StoreDamagedError, match="event 2 cannot be read"):
        content(store)
