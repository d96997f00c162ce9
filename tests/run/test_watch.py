"""Hangs are found within a few step times; what merely takes long is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haibun.run import watch
from haibun.run.watch import GangWatch, Sight
from haibun.train.board import Phase


def steps(gang: GangWatch, times: list[float], took: float = 0.1, start: float = 0.0) -> float:
    """Let each rank make steps of ``took`` times its factor; returns the time of the last."""
    now = start
    for n in range(1, 21):
        for w, factor in zip(gang.workers, times, strict=True):
            now = start + n * took * factor
            w.see(Sight(Phase.STEPPING, n, now), now)
    return max(start + 20 * took * f for f in times)


def look(
    gang: GangWatch, now: float, cpu: list[float], stopped: tuple[int, ...] = (), step: int = 20
) -> None:
    for w, used in zip(gang.workers, cpu, strict=True):
        w.see(Sight(w.phase, w.step, w.beat, used, w.rank in stopped), now)


def test_an_idle_gang_hangs_after_ten_of_its_steps_and_the_floor() -> None:
    gang = GangWatch([0, 1], None, 0.0)
    last = steps(gang, [1, 1])
    look(gang, last + 2, [5.0, 5.0])
    look(gang, last + 9.9, [5.0, 5.0])
    assert gang.verdict(last + 9.9) is None
    assert gang.verdict(last + 12) == "rank 0 hung at step 20: no step for 12 s (its steps take 0.1 s)"


def test_the_rank_that_is_behind_is_blamed() -> None:
    gang = GangWatch([0, 1], None, 0.0)
    last = steps(gang, [1, 1])
    gang.workers[0].see(Sight(Phase.STEPPING, 21, last + 0.1), last + 0.1)
    look(gang, last + 2, [5.0, 5.0])
    look(gang, last + 12, [5.0, 5.0])
    assert (gang.verdict(last + 12) or "").startswith("rank 1 hung at step 20")


def test_a_stopped_process_is_blamed_though_all_are_late() -> None:
    gang = GangWatch([0, 1], None, 0.0)
    last = steps(gang, [1, 1])
    look(gang, last + 1, [5.0, 5.0], stopped=(1,))
    look(gang, last + 5, [5.0, 5.0], stopped=(1,))
    assert gang.verdict(last + 5) is None
    cause = gang.verdict(last + 6.5)
    assert (
        cause == "rank 1 hung at step 20: no step for 6.5 s (its steps take 0.1 s); it is stopped (SIGSTOP)"
    )


def test_a_rank_that_works_is_given_more_time() -> None:
    gang = GangWatch([0, 1], None, 0.0)
    last = steps(gang, [1, 1])
    look(gang, last + 2, [5.0, 5.0])
    look(gang, last + 30, [33.0, 5.0])  # rank 0 evaluates, rank 1 waits for it
    assert gang.verdict(last + 30) is None
    look(gang, last + 61, [64.0, 5.0])
    assert gang.verdict(last + 61) is not None


def test_a_gap_seen_before_is_no_hang() -> None:
    gang = GangWatch([0], None, 0.0)
    last = steps(gang, [1])
    now = last + 8.0  # below the floor: it passed
    gang.workers[0].see(Sight(Phase.STEPPING, 21, now), now)
    look(gang, now + 1, [5.0])
    look(gang, now + 20, [5.0])
    assert gang.verdict(now + 20) is None
    assert gang.verdict(now + 25) is not None


def test_a_limit_given_by_the_user_is_kept_to() -> None:
    gang = GangWatch([0], 3.0, 0.0)
    last = steps(gang, [1])
    assert gang.verdict(last + 2.9) is None
    assert gang.verdict(last + 3.2) == "rank 0 hung at step 20: no step for 3.2 s (its steps take 0.1 s)"


@pytest.mark.parametrize("phase", [p for p in Phase if p not in (Phase.STEPPING, Phase.HELD)])
def test_phases_without_beats_have_limits_of_their_own(phase: Phase) -> None:
    gang = GangWatch([0], 1.0, 0.0)
    last = steps(gang, [1])
    gang.workers[0].see(Sight(phase, 20, last), last)
    limit = watch.PHASE_LIMITS[phase]
    assert gang.verdict(last + limit - 1) is None
    assert gang.verdict(last + limit + 1) == (
        f"rank 0 hung at step 20: no news for {limit + 1:.0f} s while {phase.name.lower()}"
    )


def test_before_its_steps_are_known_a_worker_has_ten_minutes() -> None:
    gang = GangWatch([0], None, 0.0)
    gang.workers[0].see(Sight(Phase.STEPPING, 0, 0.0), 0.0)
    assert gang.verdict(watch.UNLEARNT - 1) is None
    assert gang.verdict(watch.UNLEARNT + 1) is not None


def test_time_in_a_hold_or_a_save_is_no_step_time() -> None:
    gang = GangWatch([0], None, 0.0)
    last = steps(gang, [1])
    w = gang.workers[0]
    w.see(Sight(Phase.SAVING, 20, last), last + 0.1)
    w.see(Sight(Phase.STEPPING, 20, last), last + 50.0)
    w.see(Sight(Phase.STEPPING, 21, last + 50.1), last + 50.1)
    gang.resume(last + 60)
    w.see(Sight(Phase.STEPPING, 22, last + 300), last + 300)
    assert w.longest < 0.2


@given(st.floats(0.001, 50), st.floats(0, 0.99))
def test_no_gang_is_called_hung_within_its_own_limit(took: float, part: float) -> None:
    gang = GangWatch([0], None, 0.0)
    last = steps(gang, [1], took)
    now = last + part * gang.workers[0].limit(None)
    look(gang, now, [1.0])
    assert gang.verdict(now) is None


def test_a_straggler_is_one_whose_steps_take_half_as_long_again() -> None:
    gang = GangWatch([4, 5, 6], None, 0.0)
    steps(gang, [1, 1.1, 2])
    assert gang.stragglers() == (6,)
    alone = GangWatch([0], None, 0.0)
    steps(alone, [1])
    assert alone.stragglers() == ()
