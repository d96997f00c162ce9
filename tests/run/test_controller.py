"""What users ask of the controller, over a store in memory and agents made of queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from controller_fakes import Bench, FakeAgent, settle, spec, status

from haibun.core.admission import AdmissionError
from haibun.core.events import (
    AttemptProgressed,
    AttemptStarted,
    AttemptSucceeded,
    JobReprioritised,
    JobSubmitted,
)
from haibun.run import ledger as ledger_module
from haibun.run.errors import AmbiguousError, ConflictError, NotFoundError

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    b = Bench(tmp_path)
    await b.start()
    b.agent = await FakeAgent("n").connect(b.c)  # type: ignore[attr-defined]
    yield b
    await settle()
    b.assert_restores()
    stopping = asyncio.create_task(b.c.stop())
    await b.clock.move(3.0)
    await stopping


async def retire(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that has ended leaves the State."""
    monkeypatch.setattr(ledger_module, "KEEP_ENDED", 0)
    await settle()
    await b.c.ledger._retire()
    await settle()


async def test_a_submission_is_accepted_whole_or_not_at_all(bench: Bench) -> None:
    with pytest.raises(AdmissionError, match=r"job 'big': .* can never be placed"):
        await bench.c.submit([spec(name="ok"), spec(99, name="big")], "/w")
    await bench.submit(name="first")
    with pytest.raises(NotFoundError, match="did you mean 'first'"):
        await bench.c.submit([spec(name="second"), spec(depends_on=["frist"])], "/w")
    assert sum(isinstance(e, JobSubmitted) for e in bench.store.events_kept) == 1


async def test_an_array_is_one_job_for_each_index_and_others_wait_for_all_of_it(bench: Bench) -> None:
    ids = await bench.c.submit([spec(name="a", array="0-2"), spec(depends_on=["a"])], "/w")
    assert [bench.c.state.jobs.job(bench.c.state.jobs.row_of[i]).name for i in ids] == [
        "a[0]",
        "a[1]",
        "a[2]",
        "",
    ]
    assert (await bench.c.job(ids[3])).depends_on == tuple(ids[:3])
    assert bench.state(ids[3]) == "pending"


async def test_names_stand_for_the_one_job_that_has_not_ended_else_the_latest(bench: Bench) -> None:
    await bench.c.drain("n")  # nothing starts
    first = await bench.submit(name="x")
    assert bench.c.resolve("x") == first
    second = await bench.submit(name="x")
    with pytest.raises(AmbiguousError, match=f"{first}, {second}"):
        bench.c.resolve("x")
    await bench.c.cancel(first)
    assert bench.c.resolve("x") == second
    await bench.c.cancel(second)
    assert bench.c.resolve("x") == second
    assert bench.c.resolve(first) == first
    with pytest.raises(NotFoundError):
        bench.c.resolve("")


@pytest.mark.parametrize("priority", [1_000_001, -1_000_001, 2**63, -(2**63), 10**30])
async def test_a_priority_outside_its_bounds_is_refused_and_harms_nobody(bench: Bench, priority: int) -> None:
    job = await bench.submit()
    with pytest.raises(AdmissionError, match="a priority lies between"):
        await bench.c.set_priority(job, priority)
    await bench.c.set_priority(job, -1_000_000)
    assert bench.c.state.jobs.columns.priority[bench.c.state.jobs.row_of[job]] == -1_000_000


async def test_what_cannot_be_written_is_refused_before_it_reaches_the_journal(bench: Bench) -> None:
    job = await bench.submit()
    for event in (JobReprioritised(1.0, job, 10**30), JobReprioritised(1.0, "\ud800", 1)):
        with pytest.raises(AdmissionError, match="cannot be written"):
            bench.c.ledger.put([event], droppable=True)
    await bench.c.set_priority(job, 1)


async def test_a_new_journal_gives_no_job_the_folder_of_an_old_one(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "41" / "checkpoints").mkdir(parents=True)
    (tmp_path / "jobs" / "notes").mkdir()
    b = Bench(tmp_path)
    await b.start()
    await FakeAgent("n").connect(b.c)
    assert await b.submit() == "42"
    stopping = asyncio.create_task(b.c.stop())
    await b.clock.move(3.0)
    await stopping


async def test_what_cannot_be_asked_of_a_job_is_refused_with_its_state(bench: Bench) -> None:
    await bench.c.drain("n")
    job = await bench.submit()
    with pytest.raises(ConflictError, match="only a running job can be held"):
        await bench.c.pause(job, hold=True)
    await bench.c.cancel(job)
    for ask in (bench.c.pause(job), bench.c.resume(job), bench.c.set_priority(job, 3)):
        with pytest.raises(ConflictError, match="has been cancelled"):
            await ask
    await bench.c.cancel(job)
    with pytest.raises(NotFoundError, match="no node 'm'"):
        await bench.c.drain("m")


async def test_jobs_that_have_left_the_state_are_still_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = await bench.submit(name="good", labels={"k": "v"}), await bench.submit(name="bad")
    await settle()
    await bench.agent.report(AttemptSucceeded(0.0, good, 1))  # type: ignore[attr-defined]
    await bench.c.cancel(bad)
    await bench.agent.report(AttemptSucceeded(0.0, bad, 1))  # type: ignore[attr-defined]
    await retire(bench, monkeypatch)
    assert not bench.c.state.jobs.row_of
    assert bench.c.specs.get(good) is None
    for name in (good, "good"):
        detail = await bench.c.job(name)
        assert (detail.job.id, detail.job.state, detail.job.attempts) == (good, "succeeded", 1)
        assert detail.job.labels == {"k": "v"}
    assert (await bench.c.explain(good)).reasons == ("ended: succeeded",)
    assert (await bench.c.wait(good)).state == "succeeded"
    await bench.c.cancel(good)
    with pytest.raises(ConflictError, match="has succeeded"):
        await bench.c.pause("good")
    log = bench.home / "jobs" / good / "logs" / "epoch-1"
    log.mkdir(parents=True)
    (log / "rank-0.log").write_text("words\n")
    assert [(f.epoch, f.rank) for f in bench.c.log_files(good)] == [(1, 0)]
    with pytest.raises(NotFoundError):
        bench.c.log_files("../../etc")
    later = await bench.submit(depends_on=["good"])
    assert bench.state(later) != "pending", "it need not wait"


async def test_what_depends_on_a_failed_job_that_has_left_the_state_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.c.drain("n")
    bad = await bench.submit(name="bad")
    await bench.c.cancel(bad)
    await retire(bench, monkeypatch)
    for name in (bad, "bad"):
        with pytest.raises(AdmissionError, match="has been cancelled: it could never start"):
            await bench.submit(depends_on=[name])


async def test_pages_hold_each_job_once_newest_page_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        await bench.c.cancel(await bench.submit(2))
    await settle()
    for job, epoch in list(bench.agent.starts):  # type: ignore[attr-defined]
        await bench.agent.report(AttemptSucceeded(0.0, job, epoch))  # type: ignore[attr-defined]
    await retire(bench, monkeypatch)
    await bench.clock.move(1.0)
    for _ in range(6):
        await bench.submit(2)
    seen: list[list[str]] = []
    after = None
    while page := await bench.c.jobs(limit=5, after=after):
        seen.append([view.id for view in page])
        after = page[0].id
    assert seen == [["8", "9", "10", "11", "12"], ["3", "4", "5", "6", "7"], ["1", "2"]]
    with pytest.raises(NotFoundError):
        await bench.c.jobs(after="99")


async def test_a_stream_tells_events_with_their_journal_numbers_and_ends_with_the_controller(
    bench: Bench,
) -> None:
    told: list[tuple[int, str]] = []

    async def read() -> None:
        async for event in bench.c.stream():
            told.append((event["seq"], event["kind"]))  # noqa: PERF401 - looked at while it grows

    reader = asyncio.create_task(read())
    await settle()
    await bench.submit()
    await settle()
    last = bench.store.last_seq
    assert told == [(last - 1, "job-submitted"), (last, "decided")]
    await bench.c.shutdown(keep_jobs=True)
    await settle()
    assert reader.done()


async def test_a_slow_reader_of_the_stream_is_cut_off_and_told_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haibun.run.controller.STREAM_BACKLOG", 3)
    stream = bench.c.stream()
    first = asyncio.ensure_future(anext(stream))
    await settle()
    for _ in range(4):
        await bench.submit()
    await settle()
    assert (await first)["kind"] == "job-submitted"
    assert len([event async for event in stream]) <= 3


async def test_waiting_ends_with_the_job_or_the_time(bench: Bench) -> None:
    job = await bench.submit()
    waiting = asyncio.create_task(bench.c.wait(job))
    await settle()
    assert not waiting.done()
    await bench.agent.report(AttemptSucceeded(0.0, job, 1))  # type: ignore[attr-defined]
    assert (await waiting).state == "succeeded"
    with pytest.raises(TimeoutError):
        await bench.c.wait(await bench.submit(), 0.0)


async def test_launch_specs_are_there_after_a_restart_before_the_first_order(bench: Bench) -> None:
    await bench.agent.disconnect()  # type: ignore[attr-defined]
    job = await bench.submit(env={"A": "1"})
    await bench.crash()
    await bench.start()
    assert bench.c.specs.get(job) is not None
    bench.agent = await FakeAgent("n").connect(bench.c)  # type: ignore[attr-defined]
    assert bench.agent.starts == [(job, 1)]  # type: ignore[attr-defined]
    assert (await bench.submit()) == "2", "ids go on"


async def test_views_show_telemetry_and_what_nodes_hold(bench: Bench) -> None:
    job = await bench.submit(total_steps=100)
    await settle()
    await bench.agent.report(AttemptStarted(0.0, job, 1))  # type: ignore[attr-defined]
    await bench.agent.report(AttemptProgressed(0.0, job, 1, 10.0, 5.0, 2.0))  # type: ignore[attr-defined]
    await bench.agent.beat(status(job, step=12.0))  # type: ignore[attr-defined]
    view = (await bench.c.job(job)).job
    assert (view.state, view.step, view.durable, view.total, view.rate) == ("running", 12.0, 5.0, 100.0, 2.0)
    assert view.on == ("n/0",)
    (node,) = await bench.c.nodes()
    assert (node.holders, node.free, node.connected) == ((job, None), 1, True)
    over = await bench.c.overview()
    assert (over.counts, over.degraded) == ({"running": 1}, None)
