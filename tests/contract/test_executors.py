"""What every executor must do: the same sequences of actions lead to the same events, in the twin and for real."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from agent_harness import bench
from executor_stands import AgentStand, Stand, TwinStand

from haibun.core.events import (
    AttemptHeld,
    AttemptProgressed,
    AttemptStarted,
    AttemptStopped,
    AttemptSucceeded,
)
from haibun.core.vocabulary import StopMode

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def agent(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentStand]:
    """One agent for all live cases."""
    async with bench(tmp_path_factory.mktemp("contract"), "--no-warm") as b:
        yield AgentStand(b)


@pytest.fixture(params=["twin", pytest.param("agent", marks=pytest.mark.live)])
def stand(request: pytest.FixtureRequest) -> Stand:
    if request.param == "twin":
        return TwinStand()
    live: AgentStand = request.getfixturevalue("agent")
    return live


async def test_an_attempt_starts_and_succeeds_with_all_its_steps(stand: Stand) -> None:
    await stand.start("a", 1, 10)
    assert (await stand.event("a", AttemptStarted)).epoch == 1
    end = await stand.event("a", AttemptSucceeded)
    assert (end.epoch, end.step) == (1, 10)


async def test_a_stop_with_checkpoint_loses_no_step_and_the_next_attempt_goes_on_from_there(
    stand: Stand,
) -> None:
    await stand.start("b", 1, 100)
    await stand.event("b", AttemptStarted)
    await stand.some_steps("b")
    await stand.stop("b", 1, StopMode.CHECKPOINT)
    stopped = await stand.event("b", AttemptStopped)
    assert 0 < stopped.durable == stopped.step < 100
    await stand.start("b", 2, 100, durable=stopped.durable)
    assert (await stand.event("b", AttemptStarted)).epoch == 2
    end = await stand.event("b", AttemptSucceeded)
    assert (end.epoch, end.step) == (2, 100)


async def test_a_killed_attempt_answers_that_it_has_stopped(stand: Stand) -> None:
    await stand.start("c", 1, 10_000)
    await stand.event("c", AttemptStarted)
    await stand.stop("c", 1, StopMode.KILL)
    assert (await stand.event("c", AttemptStopped)).epoch == 1


async def test_a_held_attempt_makes_no_step_until_it_goes_on(stand: Stand) -> None:
    await stand.start("d", 1, 60)
    await stand.event("d", AttemptStarted)
    await stand.some_steps("d")
    await stand.hold("d", 1)
    held = await stand.event("d", AttemptHeld)
    assert 0 < held.step < 60
    more = [e for e in await stand.nothing_more("d") if not isinstance(e, AttemptProgressed)]
    assert more == []
    await stand.resume("d", 1)
    await stand.event("d", AttemptStarted)
    assert (await stand.event("d", AttemptSucceeded)).step == 60


async def test_a_command_of_a_past_epoch_touches_nothing(stand: Stand) -> None:
    await stand.start("e", 1, 10_000)
    await stand.event("e", AttemptStarted)
    await stand.stop("e", 1, StopMode.KILL)
    await stand.event("e", AttemptStopped)
    await stand.start("e", 2, 40)
    await stand.event("e", AttemptStarted)
    await stand.stop("e", 1, StopMode.KILL)
    end = await stand.event("e", AttemptSucceeded)
    assert (end.epoch, end.step) == (2, 40)
