"""``--set POLICY.param=value``: parameters of policies from the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from haibun.spec.problems import did_you_mean

Value = bool | int | float | str | None | list[Any]

_FORM = re.compile(r"\s*([A-Za-z][\w-]*)\.([A-Za-z_]\w*)\s*=(.*)", re.DOTALL)
_INT = re.compile(r"[-+]?\d+")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None, "null": None}
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    tuple: "a list",
}


class ParamError(ValueError):
    """A parameter that cannot be understood, or does not exist."""


def parse_params(
    items: Iterable[str], policies: Collection[str] | None = None
) -> dict[str, dict[str, Value]]:
    """Read ``POLICY.param=value`` items into a dict for each policy.

    Values: ``true``, ``false``, ``none``, whole numbers, numbers, lists (``1,2`` or ``[1, 2]``; ``[]`` is
    empty), and text, in quotes where it would be read as something else.

    Args:
        items: as given on the command line.
        policies: names of those in use; None: any name will do.

    Raises:
        ParamError: an item has another form, names another policy, or repeats a parameter.
    """
    result: dict[str, dict[str, Value]] = {}
    for item in items:
        match = _FORM.fullmatch(item)
        if not match:
            raise ParamError(
                f"--set {item!r}: write POLICY.param=value, for instance tiresias.queues=3600,36000"
            )
        policy, name, text = match.groups()
        if policies is not None and policy not in policies:
            raise ParamError(
                f"--set {item!r}: no policy in use is called {policy!r}; {did_you_mean(policy, policies)}"
            )
        params = result.setdefault(policy, {})
        if name in params:
            raise ParamError(f"--set {item!r}: {policy}.{name} is given twice")
        params[name] = parse_value(text, item)
    return result


def parse_value(text: str, item: str = "") -> Value:
    """One value, by its look; see `parse_params`.

    Raises:
        ParamError: nothing, a bracket left open, or a number that is not finite.
    """
    text = text.strip()
    bracket = text.startswith("[")
    if bracket != text.endswith("]"):
        raise ParamError(f"--set {item or text!r}: a list is written [1, 2] or 1,2")
    if bracket or ("," in text and not _QUOTED.fullmatch(text)):
        inner = text[1:-1] if bracket else text
        parts = [p.strip() for p in inner.split(",")]
        return [] if parts == [""] else [_scalar(p, item) for p in parts if p or not bracket]
    return _scalar(text, item)


def _scalar(text: str, item: str) -> Value:
    if not text:
        raise ParamError(f"--set {item!r}: a value is missing; for empty text write ''")
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        return quoted[1] if quoted[1] is not None else quoted[2]
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INT.fullmatch(text) and len(text) < 400:
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        raise ParamError(f"--set {item or text!r}: {text} is not a finite number")
    return number


def check_params(policy: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` with the types of a policy's ``defaults``: a whole number becomes a float where one is
    wanted, a single value a list. A default of None takes anything.

    Raises:
        ParamError: the policy has no such parameter, or the value is of another type.
    """
    return {name: _fit(policy, name, value, defaults) for name, value in given.items()}


def _fit(policy: str, name: str, value: Any, defaults: Mapping[str, Any]) -> Any:
    if name not in defaults:
        hint = did_you_mean(name, defaults) if defaults else "it has none"
        raise ParamError(f"{policy} has no parameter {name!r}; {hint}")
    default = defaults[name]
    kind = type(default)
    if default is None or (type(value) is kind and kind is not list):
        return value
    if kind is float and type(value) is int:
        return float(value)
    if kind in (list, tuple):
        items = list(value) if isinstance(value, list | tuple) else [value]
        floats = bool(default) and all(type(x) is float for x in default)
        return kind(float(x) if floats and type(x) is int else x for x in items)
    raise ParamError(f"{policy}.{name} must be {_KINDS.get(kind, kind.__name__)}, not {value!r}")
