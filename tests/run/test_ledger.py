"""The ledger: nothing is applied before it is durable, nothing done before its decision is, nothing ever lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from controller_fakes import Bench, FakeAgent, settle, spec

from haibun.core import snapshot
from haibun.core.events import (
    AnyEvent,
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    Decided,
    JobCancelled,
    JobsRetired,
    JobSubmitted,
    Tick,
)
from haibun.run import ledger as ledger_module
from haibun.run.errors import UnavailableError
from haibun.run.timekeeping import Timekeeper
from haibun.store import StoreFullError, StoreUnreachableError
from haibun.store.errors import StoreDamagedError, StoreError, StoreInUseError

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    b = Bench(tmp_path)
    await b.start()
    yield b
    if b.c.error is None:
        stopping = asyncio.create_task(b.c.stop())
        await settle()
        await b.clock.move(3.0)
        await stopping


async def test_nothing_is_applied_before_it_is_durable_and_nothing_done_before_its_decision_is(
    bench: Bench,
) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    seen: dict[type, tuple[str, bool]] = {}

    def gate(events: Sequence[AnyEvent]) -> None:  # in the store's thread, before each append
        state = bench.state("1") if "1" in bench.c.state.jobs.row_of else ""
        seen.update(dict.fromkeys(map(type, events), (state, bool(agent.starts))))

    bench.store.gate = gate
    await bench.submit()
    await settle()
    assert agent.starts == [("1", 1)]
    assert seen == {JobSubmitted: ("", False), Decided: ("queued", False)}
    kinds = [[type(e) for e in events] for events in bench.store.appends[-2:]]
    assert kinds == [[JobSubmitted], [Decided]]
    await settle()
    bench.assert_restores()


async def test_what_gathers_while_a_round_is_under_way_shares_one_append(bench: Bench) -> None:
    before = len(bench.store.appends)
    jobs = [asyncio.create_task(bench.submit()) for _ in range(50)]
    await asyncio.gather(*jobs)
    assert len(bench.store.appends) - before <= 3
    assert sum(isinstance(e, JobSubmitted) for e in bench.store.events_kept) == 50


async def test_a_full_store_refuses_users_and_keeps_nothing_of_theirs_but_all_that_agents_report(
    bench: Bench,
) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await bench.submit()
    await agent.report(AttemptStarted(0.0, job, 1))
    bench.store.fail = StoreFullError("the disk is full")
    refused = asyncio.create_task(bench.submit())
    ended = await agent.report(AttemptSucceeded(0.0, job, 1))
    with pytest.raises(UnavailableError, match="disk is full"):
        await refused
    with pytest.raises(UnavailableError, match="disk is full"):
        await bench.c.cancel(job)
    assert bench.c.specs.get("2") is None
    assert (await bench.c.overview()).degraded == "the disk is full"
    await bench.clock.move(5.0)
    assert ended not in agent.acked, "it is not durable yet"
    assert bench.state(job) == "running"
    bench.store.fail = None
    await bench.clock.move(1.0)
    assert ended in agent.acked
    assert bench.state(job) == "succeeded"
    assert (await bench.c.overview()).degraded is None
    assert await bench.submit() is not None
    assert [e.job.id for e in bench.store.events_kept if isinstance(e, JobSubmitted)] == ["1", "3"]
    await settle()
    bench.assert_restores()


async def test_a_full_store_is_noticed_to_have_space_again_though_nothing_happens(bench: Bench) -> None:
    bench.store.fail = StoreFullError("full")
    with pytest.raises(UnavailableError):
        await bench.submit()
    bench.store.fail = None
    await bench.clock.move(1.0)
    assert bench.c.ledger.degraded is None
    assert isinstance(bench.store.events_kept[-1], Tick)


@pytest.mark.parametrize("error", [StoreUnreachableError("no answer"), StoreError("cannot be written")])
async def test_an_unreachable_store_is_waited_for_and_the_event_is_written_once(
    bench: Bench, error: StoreError
) -> None:
    bench.store.fail = error
    waiting = asyncio.create_task(bench.submit())
    await settle()
    late = [asyncio.create_task(bench.submit()) for _ in range(3)]
    await bench.clock.move(10.0)
    assert not waiting.done(), "it may be in the journal: only the store can tell"
    for task in late:
        with pytest.raises(UnavailableError):
            await task
    bench.store.fail = None
    await bench.clock.move(1.0)
    assert await waiting == "1"
    assert sum(isinstance(e, JobSubmitted) for e in bench.store.events_kept) == 1
    assert bench.c.ledger.degraded is None


async def test_users_who_wait_behind_a_round_that_cannot_be_written_are_refused_too(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await bench.submit()
    bench.store.fail = StoreUnreachableError("no answer")
    await agent.report(AttemptStarted(0.0, job, 1))  # occupies the writer
    bench.c.ledger.degraded = None  # as if the user had come a moment earlier
    user = asyncio.create_task(bench.submit())
    await bench.clock.move(1.0)
    with pytest.raises(UnavailableError, match="no answer"):
        await user


@pytest.mark.parametrize("error", [StoreDamagedError("damaged"), StoreInUseError("taken over")])
async def test_a_journal_that_is_not_ours_to_write_ends_the_controller_and_tells_all_who_wait(
    bench: Bench, error: StoreError
) -> None:
    bench.store.fail = error
    with pytest.raises(UnavailableError):
        await bench.submit()
    assert bench.c.error is error
    assert bench.c.failed.is_set()
    with pytest.raises(UnavailableError):
        await bench.submit()
    await bench.c.stop()
    assert bench.store.snapshots == [], "a State that may not be the journal's is not kept"


async def test_an_event_that_contradicts_the_state_is_passed_over_now_and_at_every_replay(
    bench: Bench,
) -> None:
    await bench.submit()
    await bench.c.ledger.put([JobCancelled(bench.c.ledger.now(), "99"), JobCancelled(0.0, "1")])
    assert bench.state("1") == "cancelled"
    await settle()
    bench.assert_restores()


async def test_a_timer_that_is_due_runs_in_an_event_of_its_own(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await bench.submit(walltime=10.0)
    await agent.report(AttemptStarted(0.0, job, 1))
    bench.clock.time += 11.0
    await bench.c.ledger.put([JobCancelled(bench.c.ledger.now(), "99")])  # raises when applied
    await settle()
    assert agent.stops == [(job, 1, "checkpoint")]
    await settle()
    bench.assert_restores()


async def test_a_policy_that_raises_is_asked_again_and_jobs_go_on(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    policy: Any = bench.c.engine.stages.policy
    sound = type(policy).rank

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    policy.rank = broken
    job = await bench.submit()
    assert bench.state(job) == "queued"
    policy.rank = lambda *args: sound(policy, *args)
    await bench.clock.move(ledger_module.RETRY_POLICY + 1.0)
    assert agent.starts == [(job, 1)]


async def test_no_decisions_are_made_while_closing_and_time_goes_on(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    bench.c.ledger.closing = True
    job = await bench.submit()
    await bench.clock.move(2.0)
    assert (bench.state(job), agent.starts) == ("queued", [])


async def test_stopping_writes_what_was_put_and_a_snapshot_that_restores(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    await b.start()
    submitting = [asyncio.create_task(b.submit()) for _ in range(5)]
    await asyncio.sleep(0)
    await b.c.stop()
    assert all(r is not None for r in await asyncio.gather(*submitting))
    assert b.store.snapshots[-1][0] == b.store.last_seq
    assert b.store.closed
    again = await b.start()
    assert len(again.state.jobs) == 5
    b.assert_restores()
    await b.c.stop()


async def test_a_snapshot_is_taken_now_and_then_and_old_jobs_leave_the_state_but_not_those_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "SNAPSHOT_EVERY", 40)
    monkeypatch.setattr(ledger_module, "KEEP_ENDED", 8)
    needed = await bench.submit(name="needed")
    await bench.submit(depends_on=["needed"])
    for _ in range(20):
        await bench.c.cancel(await bench.submit())
    agent = await FakeAgent("n").connect(bench.c)
    await agent.report(AttemptSucceeded(0.0, needed, 1))
    await bench.clock.move(1.0)
    retired = [job for e in bench.store.events_kept if isinstance(e, JobsRetired) for job in e.jobs]
    assert retired
    assert bench.store.snapshots
    assert needed not in retired or bench.c.state.jobs.row_of.get("2") is None
    for job in retired:
        assert bench.store.job_rows[job].state == "cancelled", "its last row was written before it left"
        assert bench.c.specs.get(job) is None
    await settle()
    bench.assert_restores()


async def test_an_old_job_is_not_retired_under_a_submission_that_names_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "KEEP_ENDED", 0)
    agent = await FakeAgent("n").connect(bench.c)
    job = await bench.submit()
    await agent.report(AttemptSucceeded(0.0, job, 1))
    bench.c.ledger.put([JobSubmitted(bench.c.ledger.now(), spec().to_core("50", [job]))])
    await bench.c.ledger._retire()
    await settle()
    assert job in bench.c.state.jobs.row_of
    assert bench.state("50") != "pending", "nobody would ever wake it"


async def test_a_snapshot_and_its_tail_restore_to_the_same_bytes(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    for i in range(6):
        await bench.submit(retries=2, walltime=50.0, name=f"j{i}", depends_on=["j0"] if i == 5 else [])
    await agent.report(AttemptStarted(0.0, "1", 1))
    await agent.report(AttemptFailed(0.0, "1", 1, "boom", 3.0, 2.0, "n"))
    await bench.c.ledger._snapshot()
    await agent.report(AttemptStarted(0.0, "2", 1))
    await bench.clock.move(20.0)
    await bench.c.pause("3")
    await bench.c.set_priority("4", 7)
    await settle()
    assert bench.store.snapshots
    await settle()
    bench.assert_restores()
    assert snapshot.dump(snapshot.load(snapshot.dump(bench.c.state))) == snapshot.dump(bench.c.state)


async def test_time_never_goes_back_nor_stands_still_when_the_wall_clock_is_set(bench: Bench) -> None:
    class Wall:
        mono, skew = 0.0, 1000.0

        def now(self) -> float:
            return self.mono

        def wall(self) -> float:
            return self.mono + self.skew

    wall: Any = Wall()
    time = Timekeeper(wall, 0.0)
    assert time.now() == 1000.0
    wall.mono, wall.skew = 10.0, 500.0  # set back by 500 s
    assert time.now() == 1009.0
    wall.mono = 20.0
    assert time.now() == 1018.0
    wall.skew = 2000.0  # and forward
    assert time.now() == 2020.0
    assert Timekeeper(wall, 9000.0).now() == 9000.0, "the last controller's clock was ahead"
