"""What is left out of a picture does not change what it says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haibun.report import sampling

some_times = st.lists(st.floats(0, 1e6), min_size=1, max_size=60)


@given(some_times, st.integers(0, 5))
def test_a_distribution_ends_at_the_share_that_finished(values: list[float], never: int) -> None:
    x, y = sampling.cdf(np.array(values + [np.nan] * never), len(values) + never, points=20)
    assert len(x) <= 20
    assert y[-1] == len(values) / (len(values) + never)
    assert x[-1] == max(values)
    for at, part in zip(x, y, strict=True):  # ties may be counted in part, never over
        assert part <= np.mean(np.array(values) <= at) + 1e-12


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 99)), min_size=1, max_size=40), st.integers(1, 30)
)
def test_averages_over_bins_keep_the_area(steps: list[tuple[float, int]], bins: int) -> None:
    times = np.unique([t for t, _ in steps])
    values = np.array([v for _, v in steps][: len(times)])
    end = times[-1] + 10.0
    edges = np.linspace(times[0], end, bins + 1)
    area = float(np.sum(np.diff(np.append(times, end)) * values))
    means = sampling.averaged(times, values, edges)
    assert np.isclose(np.nansum(means * np.diff(edges)), area, rtol=1e-6, atol=1e-6)


def test_before_the_first_value_nothing_is_known() -> None:
    means = sampling.averaged(np.array([10.0]), np.array([3]), np.array([0.0, 5.0, 10.0, 15.0]))
    assert np.isnan(means[:2]).all()
    assert means[2] == 3.0


def test_nothing_to_draw_gives_nothing() -> None:
    assert len(sampling.cdf(np.array([np.nan]), 1)[0]) == 0
    assert np.isnan(sampling.averaged(np.empty(0), np.empty(0), np.array([0.0, 1.0]))).all()
    assert sampling.span_of([]) == (0.0, 1.0)
