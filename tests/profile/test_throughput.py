"""The rule of lookup, and the mean of what is measured."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haibun.core.demand import Rates
from haibun.core.events import ThroughputMeasured
from haibun.profile import ThroughputTable, UnknownProfileError
from haibun.profile.throughput import Missing


def table(missing: Missing = "scale", scaling: float = 1.0) -> ThroughputTable:
    t = ThroughputTable(missing, scaling)
    t.set("resnet", "v100", 1, 10.0)
    t.set("resnet", "v100", 4, 32.0)
    t.set("resnet", "v100", 4, 20.0, consolidated=False)
    t.set("resnet", "k80", 2, 0.0)
    t.set("lm", "k80", 2, 6.0)
    return t


@pytest.mark.parametrize(
    ("devices", "consolidated", "rate"),
    [
        (1, True, 10.0),  # the entry
        (4, True, 32.0),
        (4, False, 20.0),
        (1, False, 10.0),  # one device is always consolidated
        (2, True, 20.0),  # from 1, twice
        (3, True, 30.0),
        (8, True, 64.0),  # from 4, twice
        (8, False, 40.0),
        (2, False, 10.0),  # unconsolidated: no smaller count, so from 4 down
        (100, True, 800.0),
    ],
)
def test_an_entry_comes_first_then_the_nearest_smaller_count_scaled(
    devices: int, consolidated: bool, rate: float
) -> None:
    assert table().rate("resnet", "v100", devices, consolidated) == pytest.approx(rate)


def test_the_other_consolidation_of_the_same_count_comes_before_another_count() -> None:
    t = table()
    t.set("resnet", "v100", 8, 50.0)
    assert t.rate("resnet", "v100", 8, consolidated=False) == 50.0


def test_the_rule_for_a_missing_count_is_a_parameter() -> None:
    assert table(scaling=0.5).rate("resnet", "v100", 8) == pytest.approx(32 * 2**0.5)
    assert table("nearest").rate("resnet", "v100", 8) == 32.0
    assert table("nearest").rate("lm", "k80", 1) == 6.0
    assert math.isnan(table("nan").rate("resnet", "v100", 8))
    assert table("nan").rate("lm", "k80", 2, consolidated=False) == 6.0


def test_a_rate_of_zero_is_an_answer_and_stays_zero_at_other_counts() -> None:
    assert table().rate("resnet", "k80", 2) == 0.0
    assert table().rate("resnet", "k80", 8) == 0.0


def test_no_entry_on_a_known_type_is_nan() -> None:
    assert math.isnan(table().rate("lm", "v100", 2))


def test_an_unknown_name_is_refused_with_the_closest_ones() -> None:
    with pytest.raises(UnknownProfileError, match="knows no model 'resnte'; the closest are 'resnet'"):
        table().require([None, "lm", "resnte"])
    with pytest.raises(UnknownProfileError, match="device type 'v10'; the closest are 'v100'"):
        table().require(["lm"], ["k80", "v10"])
    assert math.isnan(table().rate("resnte", "v100", 1))
    assert math.isnan(table().rate("lm", "v10", 1))


def test_it_serves_the_core_as_rates() -> None:
    rates: Rates = ThroughputTable(unmodelled=1.0)
    assert rates.rate(None, "v100", 4, True) == 1.0
    assert math.isnan(ThroughputTable().rate(None, "v100", 4))


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"), st.sampled_from("xy"), st.integers(1, 70), st.booleans(), st.floats(0, 1e6)
        ),
        max_size=12,
    ),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 90), st.booleans()), max_size=20),
    st.sampled_from(["scale", "nearest", "nan"]),
)
def test_many_lookups_at_once_equal_one_by_one(
    entries: list[tuple[str, str, int, bool, float]], asked: list[tuple[str, int, bool]], missing: Missing
) -> None:
    t = ThroughputTable(missing)
    for model, kind, devices, consolidated, rate in entries:
        t.set(model, kind, devices, rate, consolidated)
        t.rates(t.model_codes(["a"]), 0, np.array([1]))  # between updates, so that a stale answer would show
    got = t.rates(
        t.model_codes(m for m, _, _ in asked),
        t.type_code("x"),
        np.array([n for _, n, _ in asked], dtype=np.int64),
        np.array([c for _, _, c in asked], dtype=np.bool_),
    )
    for (model, devices, consolidated), rate in zip(asked, got.tolist(), strict=True):
        want = t.rate(model, "x", devices, consolidated)
        assert rate == want or (math.isnan(rate) and math.isnan(want))


def test_unknown_codes_and_no_devices_give_nan() -> None:
    t = table()
    assert np.isnan(t.rates(np.array([-1, 0, 0]), np.array([0, -1, 0]), np.array([1, 1, 0]))).all()
    assert np.isnan(t.rates(np.array([0, 0]), 0, np.array([10**6, -1]))).all()
    assert math.isnan(t.rate("resnet", "v100", 10**6))
    assert np.isnan(ThroughputTable().rates(np.array([-1, -1]), -1, np.array([1, 2]))).all()


def test_the_first_measurements_make_a_plain_mean_and_later_ones_weigh_alike() -> None:
    t = ThroughputTable(smoothing=0.25)
    for rate in (8.0, 4.0, 3.0, 5.0):
        t.observe("m", "gpu", 2, True, rate)
    assert t.rate("m", "gpu", 2) == pytest.approx(5.0)
    t.observe("m", "gpu", 2, True, 9.0)
    assert t.samples("m", "gpu", 2) == 5
    assert t.rate("m", "gpu", 2) == pytest.approx(6.0)


def test_a_value_from_a_file_gives_way_to_the_first_measurement() -> None:
    t = table()
    t.apply(ThroughputMeasured(0.0, "resnet", "v100", 4, 11.0))
    assert t.rate("resnet", "v100", 4) == 11.0
    assert t.rate("resnet", "v100", 8) == 22.0


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_the_mean_stays_within_what_was_measured(rates: list[float]) -> None:
    t = ThroughputTable()
    for rate in rates:
        t.observe("m", "gpu", 1, True, rate)
    assert min(rates) * (1 - 1e-9) <= t.rate("m", "gpu", 1) <= max(rates) * (1 + 1e-9)


def test_rows_survive_json_with_codes_and_answers_the_same() -> None:
    t = table()
    t.observe("new", "h100", 2, False, 7.0)
    back = ThroughputTable.from_rows(json.loads(json.dumps(t.to_rows())))
    assert back == t
    assert (back.models, back.device_types) == (t.models, t.device_types)
    assert back.to_rows() == t.to_rows()


def test_a_copy_is_independent() -> None:
    t = table()
    fork = t.copy()
    fork.observe("resnet", "v100", 4, True, 1.0)
    assert (t.rate("resnet", "v100", 4), fork.rate("resnet", "v100", 4)) == (32.0, 1.0)


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf])
def test_an_impossible_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="must be finite, and 0 or more"):
        ThroughputTable().observe("m", "gpu", 1, True, rate)


@pytest.mark.parametrize(
    "row", [("m", "gpu", 1, True, 1.0), ("m", "gpu", 0, True, 1.0, 0), ("m", "gpu", "x", True, 1.0, 0), 5]
)
def test_a_malformed_row_is_refused(row: object) -> None:
    with pytest.raises(ValueError, match="not a row of a throughput table"):
        ThroughputTable.from_rows([row])  # type: ignore[list-item]
