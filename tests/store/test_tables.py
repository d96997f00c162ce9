"""The tables for people say what happened, newest first, page by page."""

from __future__ import annotations

import threading

import msgspec
import pytest

from haibun.core.events import Tick
from haibun.store import AttemptRow, JobFilter, JobRow, Store


def job(number: int, **fields: object) -> JobRow:
    row = JobRow(
        id=f"job-{number:02}",
        name=f"n{number % 3}",
        tenant="ab"[number % 2],
        priority=number,
        devices=2,
        state="queued",
        submitted=float(number // 2),  # two jobs share each time
    )
    return msgspec.structs.replace(row, **fields)


def test_rows_come_back_as_they_were(store: Store) -> None:
    full = job(
        1,
        state="succeeded",
        first_start=2.5,
        finished=9.0,
        preemptions=1,
        failures=2,
        steps=100.0,
        total_steps=100.0,
        service=13.0,
        model="gpt",
        reason="ended: succeeded",
    )
    lives = [
        AttemptRow("job-01", 1, 2.5, 4.0, ("n1", "n2"), (0, 9), "preempted", "it was due", 40.0, 30.0),
        AttemptRow("job-01", 2, 5.0),
    ]
    store.append([Tick(at=1.0)], jobs=[full, job(2)], attempts=reversed(lives))
    assert store.jobs(JobFilter(ids=("job-01",))) == [full]
    assert store.attempts("job-01") == lives
    assert store.attempts("job-02") == []


def test_the_last_row_of_a_job_wins(store: Store) -> None:
    store.record_jobs([job(1), job(1, state="running")])
    assert [r.state for r in store.jobs()] == ["running"]
    store.record_jobs([job(1, state="failed")])
    assert [r.state for r in store.jobs()] == ["failed"]
    store.record_attempts([AttemptRow("a", 1, 0.0), AttemptRow("a", 1, 0.0, ended=1.0)])
    assert [r.ended for r in store.attempts("a")] == [1.0]


def test_pages_hold_each_job_once_newest_first(store: Store) -> None:
    store.record_jobs(job(n) for n in range(9))
    seen: list[str] = []
    after = None
    while page := store.jobs(limit=2, after=after):
        seen += [r.id for r in page]
        after = page[-1].id
    assert seen == [f"job-{n:02}" for n in reversed(range(9))]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (JobFilter(states=("running", "failed")), [5, 3]),
        (JobFilter(tenant="a"), [4, 2, 0]),
        (JobFilter(name="n1"), [4, 1]),
        (JobFilter(since=1.0, before=2.0), [3, 2]),
        (JobFilter(ids=("job-00", "job-05"), tenant="b"), [5]),
        (JobFilter(tenant="nobody"), []),
    ],
)
def test_filters_select(store: Store, wanted: JobFilter, numbers: list[int]) -> None:
    store.record_jobs(job(n, state={3: "running", 5: "failed"}.get(n, "queued")) for n in range(6))
    assert [r.priority for r in store.jobs(wanted)] == numbers


def test_other_threads_may_read_while_one_writes(store: Store) -> None:
    store.append([Tick(at=0.0)], jobs=[job(1)])
    seen: list[int] = []

    def read() -> None:
        seen.extend(len(store.jobs()) for _ in range(20))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(20):
        store.append([Tick(at=float(n))], jobs=[job(n)])
    for thread in threads:
        thread.join()
    assert len(seen) == 60
    assert set(seen) <= set(range(1, 21))
