"""Numbers as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haibun.report import scales, units


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.25, "0.25 s"), (42.3, "42 s"), (59.7, "1 min 00 s"), (185, "3 min 05 s"), (3599.7, "1 h 00 min"),
        (18_720, "5 h 12 min"), (86_399, "1 d 0 h"), (1_047_600, "12 d 3 h"), (-90, "-1 min 30 s"),
        (None, "–"), (math.nan, "–"), (math.inf, "–"),
    ],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds: float | None, words: str) -> None:
    assert units.duration(seconds) == words


def test_counts_shares_ratios_and_changes() -> None:
    assert [units.count(v) for v in (82247, 12.34, 2.5, 0, None)] == ["82,247", "12", "2.5", "0", "–"]
    assert (units.share(0.8336), units.ratio(1.268), units.change(-0.034)) == ("83.4 %", "1.27×", "-3.4 %")
    assert (units.moment(90.0), units.moment(48_600), units.moment(3 * 86_400 + 1800)) == (
        "1.5 min",
        "13:30 h",
        "3 d 00:30",
    )


@given(st.floats(1e-3, 1e9), st.floats(1e-3, 1e8))
def test_time_ticks_are_few_and_lie_within(low: float, width: float) -> None:
    ticks = scales.time_ticks(low, low + width)
    assert 1 <= len(ticks) <= 10
    assert all(low - 1e-6 <= t <= (low + width) * (1 + 1e-9) for t in ticks)


@given(st.floats(1e-3, 1e9))
def test_the_last_tick_of_a_count_is_not_below_the_data(high: float) -> None:
    ticks = scales.nice_ticks(high)
    assert 2 <= len(ticks) <= 7
    assert ticks[-1] >= high * (1 - 1e-9)


@given(st.floats(0.011, 1e7))
def test_a_scale_keeps_to_its_pixels(value: float) -> None:
    for log in (False, True):
        scale = scales.Scale(0.01, 1e6, 10.0, 20.0, (), str, log)
        assert 10.0 <= scale(value) <= 20.0
