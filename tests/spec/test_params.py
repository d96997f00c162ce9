"""--set POLICY.param=value."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haibun.spec import ParamError, check_params, parse_params


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("3.0", 3.0),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("none", None),
        ("3600,36000", [3600, 36000]),
        ("[1, 2.5]", [1, 2.5]),
        ("[]", []),
        ("[7]", [7]),
        ("las", "las"),
        ("'3'", "3"),
        ("''", ""),
        ("a=b", "a=b"),
        ('"a,b"', "a,b"),
    ],
)
def test_values_have_the_type_they_look_like(text: str, value: object) -> None:
    got = parse_params([f"gavel-max-min.p={text}"])["gavel-max-min"]["p"]
    assert got == value
    assert type(got) is type(value)


def test_each_policy_gets_its_own() -> None:
    items = ["tiresias.queues=1,2", "fifo.x=1", "tiresias.promote=8"]
    assert parse_params(items, ["tiresias", "fifo"]) == {
        "tiresias": {"queues": [1, 2], "promote": 8},
        "fifo": {"x": 1},
    }


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("queues=1", "write POLICY.param=value"),
        ("tiresias.queues", "write POLICY.param=value"),
        ("tiresias.=1", "write POLICY.param=value"),
        ("", "write POLICY.param=value"),
        ("tiresis.queues=1", "no policy in use is called 'tiresis'; did you mean 'tiresias'"),
        ("tiresias.queues=", "a value is missing"),
        ("tiresias.queues=[1,2", r"written \[1, 2\]"),
        ("tiresias.queues=1,,2", "a value is missing"),
        ("tiresias.queues=nan", "not a finite number"),
        ("tiresias.queues=1e999", "not a finite number"),
    ],
)
def test_a_malformed_item_is_refused(item: str, words: str) -> None:
    with pytest.raises(ParamError, match=words):
        parse_params([item], ["tiresias", "fifo"])


def test_a_parameter_given_twice_is_refused() -> None:
    with pytest.raises(ParamError, match="given twice"):
        parse_params(["p.a=1", "p.a=2"])


def test_values_take_the_type_of_the_default() -> None:
    defaults = {"rate": 1.0, "queues": (3600.0,), "n": 2, "on": True, "kind": "x", "any": None}
    given = {"rate": 2, "queues": 5, "n": 3, "on": False, "kind": "y", "any": [1]}
    got = check_params("p", given, defaults)
    assert got == {"rate": 2.0, "queues": (5.0,), "n": 3, "on": False, "kind": "y", "any": [1]}
    assert type(got["rate"]) is float
    assert type(got["queues"][0]) is float


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rat": 1}, "p has no parameter 'rat'; did you mean 'rate'"),
        ({"rate": "fast"}, "p.rate must be a number, not 'fast'"),
        ({"n": 1.5}, "p.n must be a whole number, not 1.5"),
        ({"n": True}, "p.n must be a whole number, not True"),
        ({"on": 1}, "p.on must be true or false, not 1"),
    ],
)
def test_an_unknown_or_ill_typed_parameter_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(ParamError, match=words):
        check_params("p", given, {"rate": 1.0, "n": 2, "on": True})


@given(st.text(max_size=40))
def test_no_text_raises_anything_but_a_param_error(text: str) -> None:
    with contextlib.suppress(ParamError):
        assert list(parse_params([f"p.x={text}"])) == ["p"]
