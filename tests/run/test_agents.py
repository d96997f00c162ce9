"""Agents that come, go, come back, fall silent and lie; gangs on several of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from controller_fakes import Bench, FakeAgent, settle, status

from haibun.core.events import (
    AttemptFailed,
    AttemptHeld,
    AttemptProgressed,
    AttemptStarted,
    AttemptStopped,
    AttemptSucceeded,
    JobSubmitted,
    NodeJoined,
    NodeLost,
)
from haibun.core.vocabulary import Job, Shape
from haibun.run.agents import LEASE, LEASES_MISSED
from haibun.run.protocol import AttemptStatus, Continue, Hold, Order, Refused, Shutdown, Start
from haibun.run.reconcile import GRACE

pytestmark = pytest.mark.anyio
LOST_AFTER = LEASE * LEASES_MISSED + 2.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    b = Bench(tmp_path)
    await b.start()
    yield b
    await settle()
    b.assert_restores()
    stopping = asyncio.create_task(b.c.stop())
    await b.clock.move(3.0)
    await stopping


async def running(b: Bench, agent: FakeAgent, **fields: object) -> str:
    job = await b.submit(**fields)  # type: ignore[arg-type]
    await settle()
    assert agent.starts[-1] == (job, 1)
    await agent.report(AttemptStarted(0.0, job, 1))
    assert b.state(job) == "running"
    return job


def count(b: Bench, kind: type) -> int:
    return sum(isinstance(e, kind) for e in b.store.events_kept)


# --- hello, against what should be -----------------------------------------------------------------------------------


async def test_starting_and_the_order_was_lost_it_is_given_again(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    await agent.disconnect()
    job = await bench.submit()
    await settle()
    assert bench.state(job) == "starting"
    back = await FakeAgent("n").connect(bench.c)
    assert back.keep == ((job, 1),)
    assert back.starts == [(job, 1)]


async def test_starting_and_it_runs_already_that_is_noted(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await bench.submit()
    await settle()
    await agent.disconnect()
    back = await FakeAgent("n").connect(bench.c, status(job))
    assert (bench.state(job), back.starts) == ("running", [])


async def test_running_on_both_sides_it_is_kept_whoever_restarted(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    await agent.disconnect()
    back = await FakeAgent("n").connect(bench.c, status(job))
    assert (back.keep, back.starts, back.stops) == (((job, 1),), [], [])
    await bench.crash()
    await bench.start()
    back = await FakeAgent("n").connect(bench.c, status(job))
    assert (back.keep, back.starts, back.stops) == (((job, 1),), [], [])
    assert bench.state(job) == "running"


async def test_running_and_the_agent_has_it_no_more_it_is_asked_how_that_ended(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    await agent.report(AttemptProgressed(0.0, job, 1, 20.0, 10.0))
    await agent.disconnect()
    await bench.crash()
    await bench.start()
    back = await FakeAgent("n").connect(bench.c)
    assert back.stops == [(job, 1, "kill")]
    await back.report(AttemptStopped(0.0, job, 1, 0.0, 0.0))
    assert back.starts == [(job, 2)]
    assert back.got(Start)[-1].launch.durable == 10.0


async def test_running_and_it_vanishes_from_the_beats_the_agent_is_asked(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    await agent.beat()
    await bench.clock.move(GRACE - 2.0)
    assert agent.stops == [], "its end may be on its way"
    await agent.beat()
    await bench.clock.move(4.0)
    assert agent.stops == [(job, 1, "kill")]
    await agent.report(AttemptSucceeded(0.0, job, 1))
    assert bench.state(job) == "succeeded"


async def test_stopping_it_is_stopped_again_as_it_was_asked_before(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    cancelled, paused = await running(bench, agent), await bench.submit()
    await settle()
    await agent.report(AttemptStarted(0.0, paused, 1))
    await agent.disconnect()
    await bench.c.cancel(cancelled)
    await bench.c.pause(paused)
    back = await FakeAgent("n").connect(bench.c, status(paused))
    assert set(back.stops) == {(cancelled, 1, "kill"), (paused, 1, "checkpoint")}
    await back.report(AttemptStopped(0.0, cancelled, 1, 0.0, 0.0))
    assert bench.state(cancelled) == "cancelled"


async def test_what_the_state_does_not_have_may_not_be_kept(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    await agent.disconnect()
    back = await FakeAgent("n").connect(bench.c, status("77"), status(job, 4))
    assert back.keep == ((job, 1),)


async def test_a_held_job_stays_held_over_a_lost_connection_and_a_missed_order_to_go_on_is_given_later(
    bench: Bench,
) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    await bench.c.pause(job, hold=True)
    assert agent.got(Hold)
    await agent.report(AttemptHeld(0.0, job, 1, 5.0))
    await agent.disconnect()
    await bench.c.resume(job)
    back = await FakeAgent("n").connect(bench.c, status(job, state="held"))
    assert [m.job for m in back.got(Continue)] == [job]
    await back.report(AttemptStarted(0.0, job, 1))
    assert bench.state(job) == "running"


async def test_an_agent_that_is_held_and_whose_word_was_not_heard_is_not_let_go(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    await bench.c.pause(job, hold=True)
    await agent.disconnect()
    back = await FakeAgent("n").connect(bench.c, status(job, state="held"))
    assert back.got(Continue) == []
    await back.report(AttemptHeld(0.0, job, 1, 5.0))
    assert bench.state(job) == "paused"


# --- boots and names -------------------------------------------------------------------------------------------------


async def test_a_new_boot_means_that_all_that_ran_there_is_over(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    await agent.disconnect()
    back = await FakeAgent("n", boot="boot-2").connect(bench.c)
    assert count(bench, NodeLost) == 1
    assert back.starts == [(job, 2)]
    assert (await bench.c.job(job)).attempts[0].outcome == "lost"


async def test_a_second_agent_by_one_name_is_refused_until_the_first_has_fallen_silent(bench: Bench) -> None:
    first = await FakeAgent("n").connect(bench.c)
    other = await FakeAgent("n", boot="boot-2").connect(bench.c)
    assert "connected already" in other.got(Refused)[0].why
    assert other.closed
    await bench.clock.move(LEASE + 1.0)
    other = await FakeAgent("n", boot="boot-2").connect(bench.c)
    assert other.got(Refused) == []
    assert first.closed


async def test_a_node_with_other_devices_is_refused_with_both_told(bench: Bench) -> None:
    await (await FakeAgent("n").connect(bench.c)).disconnect()
    other = await FakeAgent("n", devices=3).connect(bench.c)
    assert "2 cpu; now 3 cpu" in other.got(Refused)[0].why


async def test_the_same_boot_on_a_new_connection_replaces_the_old_one(bench: Bench) -> None:
    first = await FakeAgent("n").connect(bench.c)
    second = await FakeAgent("n").connect(bench.c)
    assert first.closed
    job = await bench.submit()
    await settle()
    assert (first.starts, second.starts) == ([], [(job, 1)])
    assert bench.c.agents.connected == 1


# --- reports ---------------------------------------------------------------------------------------------------------


async def test_a_report_sent_twice_counts_once(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent, retries=3)
    seq = await agent.report(AttemptFailed(0.0, job, 1, "boom", node="n"))
    await agent.report(AttemptFailed(0.0, job, 1, "boom", node="n"), seq)
    assert agent.acked.count(seq) == 2
    assert (await bench.c.job(job)).job.failures == 1
    assert count(bench, AttemptFailed) == 1


async def test_a_stale_epoch_changes_nothing_is_not_journalled_and_is_stopped_where_it_lives(
    bench: Bench,
) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    before = len(bench.store.events_kept)
    seq = await agent.report(AttemptProgressed(0.0, job, 7, 99.0))
    await agent.report(AttemptSucceeded(0.0, "55", 1))
    assert agent.stops == [(job, 7, "kill")]
    assert seq in agent.acked
    assert len(bench.store.events_kept) == before
    assert bench.state(job) == "running"


async def test_a_report_bears_the_controllers_time_whatever_the_node_thinks(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await bench.submit()
    await settle()
    await agent.report(AttemptStarted(4e9, job, 1))
    assert bench.c.state.now < 2e9


async def test_an_agent_may_report_attempts_only(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    seq = await agent.report(JobSubmitted(0.0, Job("9", (Shape(1),))))
    assert seq in agent.acked
    assert "9" not in bench.c.state.jobs.row_of


# --- leases ----------------------------------------------------------------------------------------------------------


async def test_a_node_is_lost_after_three_missed_leases_and_its_jobs_queue_anew(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    await agent.disconnect()
    await bench.clock.move(LEASE * LEASES_MISSED - 1.0)
    assert bench.state(job) == "running"
    await bench.clock.move(3.0)
    assert bench.state(job) == "queued"
    assert (await bench.c.nodes())[0].health == "lost"


async def test_silence_on_an_open_connection_is_silence(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    await bench.clock.move(LOST_AFTER)
    assert bench.state(job) == "queued"
    assert agent.closed


async def test_a_lost_node_that_kept_its_attempts_takes_work_again_once_it_has_ended_them(
    bench: Bench,
) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    await agent.disconnect()
    await bench.clock.move(LOST_AFTER)
    back = await FakeAgent("n").connect(bench.c, status(job))
    assert (back.keep, back.starts) == ((), [])
    await back.beat(status(job, state="stopping"))
    assert count(bench, NodeJoined) == 1
    await back.beat()
    await back.beat()
    assert count(bench, NodeJoined) == 2
    assert back.starts == [(job, 2)]


async def test_if_it_was_the_controller_that_slept_no_node_is_lost(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    await bench.clock.move(1.0)
    bench.clock.time += 500.0
    await bench.clock.move(2.0)
    await agent.beat(status(job))
    await bench.clock.move(2.0)
    assert bench.state(job) == "running"


# --- gangs on several nodes ------------------------------------------------------------------------------------------


async def pair(b: Bench) -> tuple[FakeAgent, FakeAgent, str]:
    one, two = await FakeAgent("a").connect(b.c), await FakeAgent("b").connect(b.c)
    job = await b.submit(4, retries=2)
    await settle()
    assert one.starts == two.starts == [(job, 1)]
    return one, two, job


async def test_a_gangs_parts_agree_on_where_they_meet_and_it_runs_when_both_do(bench: Bench) -> None:
    one, two, job = await pair(bench)
    first, second = one.got(Start)[0].launch, two.got(Start)[0].launch
    assert (first.node_rank, second.node_rank, first.first_rank, second.first_rank) == (0, 1, 0, 2)
    assert first.master_port == second.master_port != 0
    assert first.world_size == second.world_size == 4
    await one.report(AttemptStarted(0.0, job, 1))
    assert bench.state(job) == "starting"
    await two.report(AttemptStarted(0.0, job, 1))
    assert bench.state(job) == "running"


async def test_when_one_part_fails_the_rest_is_ended_and_the_end_is_owed_until_all_have(bench: Bench) -> None:
    one, two, job = await pair(bench)
    for agent in (one, two):
        await agent.report(AttemptStarted(0.0, job, 1))
    failed = await two.report(AttemptFailed(0.0, job, 1, "boom", node="b"))
    assert one.stops == [(job, 1, "kill")]
    assert bench.state(job) == "running", "its devices are not free yet"
    assert failed not in two.acked, "should this controller die, the next must hear of it"
    ended = await one.report(AttemptStopped(0.0, job, 1, 0.0, 0.0))
    assert (failed in two.acked, ended in one.acked) == (True, True)
    assert bench.state(job) == "recovering"
    assert count(bench, AttemptFailed) == 1
    assert count(bench, AttemptStopped) == 0


async def test_a_failure_told_before_a_crash_is_still_one_after_it(bench: Bench) -> None:
    one, two, job = await pair(bench)
    for agent in (one, two):
        await agent.report(AttemptStarted(0.0, job, 1))
    await two.report(AttemptFailed(0.0, job, 1, "boom", node="b"))
    for agent in (one, two):
        await agent.disconnect()
    await bench.crash()
    await bench.start()
    one = await FakeAgent("a").connect(bench.c, status(job))
    two = await FakeAgent("b").connect(bench.c)
    await two.report(AttemptFailed(0.0, job, 1, "boom", node="b"))
    assert (job, 1, "kill") in one.stops
    await one.report(AttemptStopped(0.0, job, 1, 0.0, 0.0))
    assert (await bench.c.job(job)).attempts[0].cause == "boom"


async def test_a_start_that_one_part_missed_is_given_again_with_the_same_meeting_place(bench: Bench) -> None:
    one, two = await FakeAgent("a").connect(bench.c), await FakeAgent("b").connect(bench.c)
    await two.disconnect()
    job = await bench.submit(4)
    await settle()
    two = await FakeAgent("b").connect(bench.c)
    assert two.starts == [(job, 1)]
    assert two.got(Start)[0].launch.master_port == one.got(Start)[0].launch.master_port


async def test_a_start_given_by_a_former_controller_is_taken_back_where_a_part_missed_it(
    bench: Bench,
) -> None:
    one, two, job = await pair(bench)
    for agent in (one, two):
        await agent.disconnect()
    await bench.crash()
    await bench.start()
    one = await FakeAgent("a").connect(bench.c, status(job))
    two = await FakeAgent("b").connect(bench.c)
    assert one.stops == two.stops == [(job, 1, "kill")]
    await two.report(AttemptStopped(0.0, job, 1, 0.0, 0.0))
    await one.report(AttemptStopped(0.0, job, 1, 0.0, 0.0))
    assert one.starts == two.starts == [(job, 2)]


async def test_a_lost_node_takes_its_gang_down_and_no_device_of_the_rest_is_forgotten(bench: Bench) -> None:
    one, two, job = await pair(bench)
    for agent in (one, two):
        await agent.report(AttemptStarted(0.0, job, 1))
    await one.report(AttemptSucceeded(0.0, job, 1, 9.0))  # its part is over
    await two.disconnect()
    for _ in range(int(LOST_AFTER)):
        await one.beat()
        await bench.clock.move(1.0)
    view = next(n for n in await bench.c.nodes() if n.name == "a")
    assert view.free == 2
    assert bench.state(job) == "queued", "half a success is none"


async def test_a_gang_is_held_when_all_parts_are(bench: Bench) -> None:
    one, two, job = await pair(bench)
    for agent in (one, two):
        await agent.report(AttemptStarted(0.0, job, 1))
    await bench.c.pause(job, hold=True)
    await one.report(AttemptHeld(0.0, job, 1, 5.0))
    assert bench.state(job) == "running"
    await two.report(AttemptHeld(0.0, job, 1, 5.0))
    assert bench.state(job) == "paused"


async def test_rank_0s_orders_reach_the_other_nodes_once_and_again_after_a_lost_connection(
    bench: Bench,
) -> None:
    one, two, job = await pair(bench)
    order = Order(job, 1, number=3, command=1, at=50, seq=2)
    leader = AttemptStatus(job, 1, "running", order=order)
    await one.beat(leader)
    await one.beat(leader)
    assert two.got(Order) == [order]
    assert one.got(Order) == []
    await two.disconnect()
    two = await FakeAgent("b").connect(bench.c, status(job))
    assert two.got(Order) == [order]


async def test_going_down_all_agents_are_told_and_waited_for(bench: Bench) -> None:
    agent = await FakeAgent("n").connect(bench.c)
    job = await running(bench, agent)
    down = asyncio.create_task(bench.c.shutdown(keep_jobs=False))
    await settle()
    assert agent.got(Shutdown)
    await agent.report(AttemptStopped(0.0, job, 1, 5.0, 5.0))
    assert not down.done()
    await agent.disconnect()
    await bench.clock.move(1.0)
    assert down.done()
    assert (bench.state(job), agent.starts) == ("queued", [(job, 1)])
