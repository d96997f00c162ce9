"""Any CSV with a header, by naming which column holds what.

For instance ``csv:submit=timestamp,duration=duration,devices=num_gpus``.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from haibun.trace.csvrows import csv_rows
from haibun.trace.problems import TraceError
from haibun.trace.rows import MAX_SECONDS, Rows
from haibun.trace.table import Floats, Trace

PREFIX = "csv:"
ROLES = ("submit", "duration", "devices", "steps", "model", "tenant", "id", "priority")
UNITS = {"s": 1.0, "ms": 1e-3, "iso": 1.0}
MAX_PRIORITY = 1e9
EXAMPLE = "csv:submit=timestamp,duration=duration,devices=num_gpus"


@dataclass(frozen=True, slots=True)
class Mapping:
    """Which column holds what.

    ``time_unit`` is that of ``submit`` and ``duration``: s, ms, or iso (dates; durations then in s).
    """

    columns: dict[str, str]
    time_unit: str = "s"

    @staticmethod
    def parse(text: str) -> Mapping:
        """Read ``csv:ROLE=COLUMN,...[,time_unit=s|ms|iso]``.

        Raises:
            TraceError: a role is unknown, given twice or missing: submit, devices, and duration or steps are
            needed.
        """
        columns: dict[str, str] = {}
        for part in filter(None, text.removeprefix(PREFIX).split(",")):
            role, equals, column = (piece.strip() for piece in part.partition("="))
            if not (equals and role and column):
                raise TraceError(f"--format: {part!r} is not ROLE=COLUMN; write for instance {EXAMPLE}")
            if role not in (*ROLES, "time_unit"):
                close = get_close_matches(role, (*ROLES, "time_unit"), n=1)
                hint = (
                    f": did you mean {close[0]!r}?" if close else f"; there are {', '.join(ROLES)}, time_unit"
                )
                raise TraceError(f"--format: no role is called {role!r}{hint}")
            if role in columns:
                raise TraceError(f"--format: {role!r} is given twice")
            columns[role] = column
        unit = columns.pop("time_unit", "s")
        if unit not in UNITS:
            raise TraceError(f"--format: time_unit is {unit!r}; it must be s, ms or iso")
        for role in ("submit", "devices"):
            if role not in columns:
                raise TraceError(f"--format: which column holds {role!r}? Write for instance {EXAMPLE}")
        if not {"duration", "steps"} & columns.keys():
            raise TraceError(f"--format: name a column for 'duration' or 'steps'; for instance {EXAMPLE}")
        return Mapping(columns, unit)


def read_columns(path: Path, text: str, mapping: str, *, strict: bool = False) -> Trace:
    """Read a CSV by a mapping. A row may lack its duration if it has steps, and the other way round.

    Raises:
        TraceError: see `Mapping.parse` and `haibun.trace.read`.
    """
    plan = Mapping.parse(mapping)
    of = plan.columns
    rows = csv_rows(path, text, tuple(of.values()), strict=strict)
    submit = _submit(rows, of["submit"], plan.time_unit)
    duration, steps = _length(rows, of, UNITS[plan.time_unit])
    priority = (
        rows.numbers(of["priority"], whole=True, least=-MAX_PRIORITY, most=MAX_PRIORITY)
        if "priority" in of
        else None
    )
    return rows.trace(
        format=mapping,
        submit=submit,
        duration=duration,
        total_steps=steps,
        devices=rows.devices(of["devices"]),
        ids=rows.unique(of["id"]) if "id" in of else None,
        model=rows.codes(of["model"]) if "model" in of else None,
        tenant=rows.codes(of["tenant"]) if "tenant" in of else None,
        priority=None if priority is None else np.nan_to_num(priority).astype(np.int64),
    )


def _submit(rows: Rows, column: str, unit: str) -> Floats:
    if unit == "iso":
        return rows.dates(column)
    return rows.numbers(column, least=-np.inf, most=MAX_SECONDS / UNITS[unit]) * UNITS[unit]


def _length(rows: Rows, of: dict[str, str], scale: float) -> tuple[Floats | None, Floats | None]:
    both = "duration" in of and "steps" in of
    duration = steps = None
    if "duration" in of:
        duration = (
            rows.numbers(of["duration"], positive=True, most=MAX_SECONDS / scale, optional=both) * scale
        )
    if "steps" in of:
        steps = rows.numbers(of["steps"], positive=True, most=1e15, optional=both)
    if duration is not None and steps is not None:
        for i in np.flatnonzero(rows.good & np.isnan(duration) & np.isnan(steps)).tolist():
            rows.reject(i, of["duration"], "is empty, and so are the steps: how long is this job?")
    return duration, steps


def suggestion(header: list[str]) -> str:
    """A mapping guessed from the names in a header, for an error message."""
    words = {
        "submit": ("submit", "submission", "timestamp", "arrival", "creation"),
        "duration": ("duration", "runtime", "run_time"),
        "devices": ("num_gpu", "gpu", "devices", "gang"),
    }
    found = {
        role: next((name for word in ws for name in header if word in name.lower()), f"{role.upper()}_COLUMN")
        for role, ws in words.items()
    }
    return PREFIX + ",".join(f"{role}={column}" for role, column in found.items())
