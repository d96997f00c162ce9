"""Job arrays: ``0-9``, ``0-9%2``, ``0-8:2,11`` or a list of numbers, to indices and a limit."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, model_validator

from haibun.spec.validate import Spec

MAX_TASKS = 10_000
MAX_INDEX = 1_000_000
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


class Array(Spec):
    """Indices of the tasks, rising; ``limit``: how many may run at once, None: all."""

    indices: list[int] = Field(min_length=1)
    limit: int | None = Field(default=None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, dict):
            value = {"indices": value.get("indices"), "limit": value.get("limit")}
            return {**value, "indices": _checked(value["indices"])}
        if isinstance(value, str):
            ranges, percent, limit = value.replace(" ", "").partition("%")
            if percent and not (limit.isdecimal() and int(limit)):
                raise ValueError(
                    f"has {limit!r} after '%'; it must be the number of tasks that may run at once"
                )
            return {"indices": _checked(_expand(ranges)), "limit": int(limit) if percent else None}
        if isinstance(value, int) and not isinstance(value, bool):
            return {"indices": _checked([value]), "limit": None}
        return {"indices": _checked(value), "limit": None}


def _expand(ranges: str) -> list[int]:
    indices: list[int] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if not match or len(part) > 40:
            raise ValueError(
                f"has {part[:40]!r}, which is no index and no range; write for instance 0-9, 0-9%2 or 1,3,5-7"
            )
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        step = int(match[3]) if match[3] else 1
        if last < first:
            raise ValueError(f"has the range {part}, which runs backwards; write {last}-{first}")
        if step < 1:
            raise ValueError(f"has the range {part}, whose step is 0")
        if last > MAX_INDEX:
            raise ValueError(f"has index {last}; the largest is {MAX_INDEX:,}")
        indices += range(first, last + 1, step)
        _bounded(len(indices))
    return indices


def _checked(indices: Any) -> list[int]:
    if not isinstance(indices, list) or any(isinstance(i, bool) or not isinstance(i, int) for i in indices):
        raise ValueError("must be a range such as 0-9, or a list of whole numbers")
    if not indices:
        raise ValueError("must not be empty")
    _bounded(len(indices))
    if min(indices) < 0 or max(indices) > MAX_INDEX:
        raise ValueError(f"has an index outside of 0 to {MAX_INDEX:,}")
    if len(set(indices)) < len(indices):
        twice = next(i for i in indices if indices.count(i) > 1)
        raise ValueError(f"has index {twice} twice")
    return sorted(indices)


def _bounded(tasks: int) -> None:
    if tasks > MAX_TASKS:
        raise ValueError(f"has {tasks:,} tasks or more; at most {MAX_TASKS:,} are possible")
