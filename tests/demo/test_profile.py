"""What is read from the journal of the profiling pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from demo_world import PROFILE

from haibun.core.decision import Decision, Place
from haibun.core.events import AnyEvent, AttemptProgressed, AttemptStopped, Decided
from haibun.core.reasons import Reason, Why
from haibun.demo.errors import DemoError
from haibun.demo.profile import fit, read

RATE, START, RESUME, STOP = 12.5, 1.25, 1.5, 0.5


def attempt(epoch: int, decided: float, start: float, began: float, steps: float) -> list[AnyEvent]:
    """An attempt that behaves as the twin has it."""
    place = Place(("1",), (0,), 0, Reason(Why.PLACED, (0, "fifo", 1, "cpu", "here")))
    halfway, end = began + steps / 2, began + steps
    return [
        Decided(decided, Decision((), (place,))),
        AttemptProgressed(decided + start - 0.1, "1", epoch, began, began),
        AttemptProgressed(decided + start + steps / 2 / RATE, "1", epoch, halfway, halfway, RATE),
        AttemptStopped(decided + start + steps / RATE + STOP, "1", epoch, end, end),
    ]


def test_rate_and_costs_come_out_as_they_went_in() -> None:
    events = [*attempt(1, 100.0, START, 0.0, 50.0), *attempt(2, 110.0, RESUME, 50.0, 25.0)]
    found = fit(events, "1")
    assert found.rate == pytest.approx(RATE)
    assert (found.start, found.resume, found.stop) == pytest.approx((START, RESUME, STOP))
    assert found.costs().checkpoint == found.costs().stop


def test_a_first_start_from_disk_is_not_taken_for_the_usual_one() -> None:
    events = [*attempt(1, 100.0, 4.0, 0.0, 50.0), *attempt(2, 110.0, RESUME, 50.0, 25.0)]
    assert fit(events, "1").start == pytest.approx(RESUME)


def test_other_jobs_are_passed_over() -> None:
    with pytest.raises(DemoError, match="measuring job 2"):
        fit(attempt(1, 100.0, START, 0.0, 50.0), "2")


def test_one_attempt_is_not_enough() -> None:
    with pytest.raises(DemoError, match="twice"):
        fit(attempt(1, 100.0, START, 0.0, 50.0), "1")


def test_a_profile_is_used_again_on_its_machine_only(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    assert read(path, "made up") is None
    PROFILE.write(path)
    assert read(path, "made up") == PROFILE
    assert read(path, "another") is None
    path.write_text("{")
    assert read(path, "made up") is None


def test_slow_first_steps_belong_to_the_start() -> None:
    def report(at: float, step: float, rate: float) -> AttemptProgressed:
        return AttemptProgressed(at, "1", 1, step, step, rate)

    # Ten steps in 2 s, then ten a second; reports bear the rate of all beats so far.
    first = attempt(1, 100.0, 1.0, 0.0, 50.0)
    slow = [first[0], report(103.0, 10.0, 5.0), report(107.0, 50.0, 50.0 / 6.0)]
    slow.append(AttemptStopped(107.5, "1", 1, 50.0, 50.0))
    again = [*slow]
    again[0] = Decided(200.0, again[0].decision)
    again[1] = AttemptProgressed(203.0, "1", 2, 60.0, 60.0, 5.0)
    again[2] = AttemptProgressed(207.0, "1", 2, 100.0, 100.0, 50.0 / 6.0)
    again[3] = AttemptStopped(207.5, "1", 2, 100.0, 100.0)
    found = fit([*slow, *again], "1")
    assert found.rate == pytest.approx(10.0)
    assert found.start == pytest.approx(2.0)
    assert found.stop == pytest.approx(0.5)
