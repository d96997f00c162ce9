"""Gavel's traces (OSDI'20): a job a line, tab-separated, without a header, in two forms.

Source: stanford-futuredata/gavel, scheduler/traces. The form with 10 fields is what its parser reads; the
one with 7 is older (traces/msr). Lengths are in steps: how long a job takes depends on the throughput of its
type on each device type (see `haibun.profile.throughput`). ``priority_weight`` is a weight of fair sharing,
not a priority. ``SLO`` is -1 in every published file and is not read.
"""

from __future__ import annotations

from pathlib import Path

from haibun.trace.problems import Problem, TraceError, shorten
from haibun.trace.rows import MAX_SECONDS, Rows
from haibun.trace.table import Trace

FIELDS_7 = (
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "arrival_time",
    "scale_factor",
)
FIELDS_10 = (
    "job_type",
    "command",
    "working_directory",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "SLO",
    "arrival_time",
)
FORMS = {7: FIELDS_7, 10: FIELDS_10}
SHOCKWAVE_FIELDS = 12
MAX_STEPS = 1e15


def read_gavel(path: Path, text: str, *, strict: bool = False) -> Trace:
    """Read a Gavel trace; the form is that of most of its lines.

    Raises:
        TraceError: see `haibun.trace.read`; also where no line has 7 or 10 fields.
    """
    lines = [(i, line.split("\t")) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    fields = _form(path, lines)
    rows = Rows(path, fields, [row for _, row in lines], [i for i, _ in lines], strict=strict)
    model, models = rows.codes("job_type")
    for i in (model < 0).nonzero()[0].tolist():
        rows.reject(i, "job_type", "is empty: it names the model in the throughput table")
    weighted = "priority_weight" in fields
    return rows.trace(
        format="gavel",
        submit=rows.numbers("arrival_time", most=MAX_SECONDS),
        total_steps=rows.numbers("total_steps", positive=True, most=MAX_STEPS),
        devices=rows.devices("scale_factor"),
        model=(model, models),
        weight=rows.numbers("priority_weight", positive=True) if weighted else None,
    )


def _form(path: Path, lines: list[tuple[int, list[str]]]) -> tuple[str, ...]:
    widths = [len(row) for _, row in lines]
    usable = [w for w in widths if w in FORMS]
    if usable:
        return FORMS[max(FORMS, key=usable.count)]
    number, row = lines[0]
    reason = f"has {len(row)} tab-separated fields; a Gavel trace has 7 or 10"
    if widths[0] == SHOCKWAVE_FIELDS:
        reason += " (12 are a Shockwave trace, which this version does not read)"
    raise TraceError(
        f"{path}:{number}: {reason}", [Problem(str(path), number, "", reason, shorten("\t".join(row)))]
    )
