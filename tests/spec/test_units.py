"""Quantities with units."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haibun.spec import (
    UnitError,
    format_bytes,
    format_duration,
    format_rate,
    parse_bytes,
    parse_duration,
    parse_rate,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4GiB", 4 << 30),
        ("4Gi", 4 << 30),
        ("4GB", 4_000_000_000),
        ("4gb", 4_000_000_000),
        ("512M", 512_000_000),
        ("1.5 TiB", 3 << 39),
        ("100", 100),
        ("100B", 100),
        (" 1kB ", 1000),
        (0, 0),
        (1 << 40, 1 << 40),
    ],
)
def test_bytes(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h30m", 9000.0),
        ("1d 12h", 129_600.0),
        ("90", 90.0),
        (90, 90.0),
        (1.5, 1.5),
        ("1.5h", 5400.0),
        ("30 min", 1800.0),
        ("500ms", 0.5),
        ("0.5ms", 0.0005),
        ("1:30:00", 5400.0),
        ("2-00:00:00", 172_800.0),
        ("1w", 604_800.0),
        ("2 Hours 5 minutes", 7500.0),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10GB/s", 1e10),
        ("25Gbit/s", 25e9 / 8),
        ("25Gbps", 25e9 / 8),
        ("100Gb/s", 100e9 / 8),
        ("1GiB/s", float(1 << 30)),
        (125, 125.0),
        ("8bit/s", 1.0),
    ],
)
def test_rates(text: str | int, rate: float) -> None:
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (parse_bytes, "4Gb", "reads as bits; write GB"),
        (parse_bytes, "4 parsecs", "no unit is called 'parsecs'"),
        (parse_bytes, "-4GiB", "negative"),
        (parse_bytes, "lots", "write for instance 4GiB"),
        (parse_bytes, "", "write for instance 4GiB"),
        (parse_bytes, math.nan, "not a number"),
        (parse_bytes, math.inf, "more than 1 EiB"),
        (parse_bytes, "1e40GB", "more than 1 EiB"),
        (parse_bytes, True, "is not a quantity"),
        (parse_bytes, [4], "is not a quantity"),
        (parse_duration, "2h30", "write for instance 2h30m"),
        (parse_duration, "2x", "no unit of time is called 'x'"),
        (parse_duration, "1:30", "minutes or hours"),
        (parse_duration, "-5m", "negative"),
        (parse_duration, -5, "negative"),
        (parse_duration, "soon", "write for instance 2h30m"),
        (parse_duration, "", "write for instance 2h30m"),
        (parse_duration, "99999999d", "a hundred years"),
        (parse_duration, math.nan, "not a number"),
        (parse_duration, False, "is not a duration"),
        (parse_duration, None, "is not a duration"),
        (parse_rate, "10GB", "an amount, not a rate; write for instance 10GB/s"),
        (parse_rate, "10GBps", "bits or bytes"),
        (parse_rate, "10 knots/s", "no unit is called"),
        (parse_rate, "fast", "write for instance 10GB/s"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_a_way_out(parse: object, text: object, words: str) -> None:
    with pytest.raises(UnitError, match=words):
        parse(text)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.35, "350ms"),
        (2.5, "2.5s"),
        (45, "45s"),
        (59.9, "1m 00s"),
        (62, "1m 02s"),
        (3720, "1h 02m"),
        (97_200, "1d 03h"),
        (-62, "-1m 02s"),
        (math.nan, "-"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_bytes_and_rates_for_people() -> None:
    assert format_bytes(3.5 * 2**30) == "3.5 GiB"
    assert format_bytes(1023) == "1023 B"
    assert format_bytes(1024**2 - 1) == "1 MiB"
    assert format_rate(1.25e9) == "1.25 GB/s"
    assert format_rate(math.inf) == "-"


@given(st.floats(1e-6, 3e9))
def test_a_formatted_duration_parses_back_to_within_its_last_unit(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.05)


@given(st.integers(0, 1 << 59))
def test_formatted_bytes_parse_back_to_three_digits(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.006)


@given(st.floats(1, 9e14))
def test_a_formatted_rate_parses_back_to_three_digits(rate: float) -> None:
    assert parse_rate(format_rate(rate)) == pytest.approx(rate, rel=0.006)


@given(st.text(max_size=30))
def test_no_text_raises_anything_but_a_unit_error(text: str) -> None:
    for parse in (parse_bytes, parse_duration, parse_rate):
        with contextlib.suppress(UnitError):
            assert parse(text) >= 0  # type: ignore[operator]
