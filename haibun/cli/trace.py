"""``trace`` and ``generate``: workloads before they are replayed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from haibun.cli.output import Json, print_json, print_pairs, say

if TYPE_CHECKING:
    from haibun.trace import Trace

DEVICES = 448  # for which traces are drawn where nobody says for how many
SHOWN = 50  # problems that --json lists


def trace(
    file: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help="A file, which may be gzip, or generate:jobs=1000,load=0.9,seed=1",
            show_default=False,
        ),
    ],
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="F", help="philly, gavel or csv:...; told from the file."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="A row that cannot be read is an error.")] = False,
    json: Json = False,
) -> None:
    """Say what is in a trace: how many jobs, how large, how long, and which rows cannot be read.

    What `generate:` draws is meant for 448 devices, unless `devices=` says otherwise.

    Example: `haibun trace philly.csv`
    """
    from haibun.simulate.inputs import GENERATED, generated
    from haibun.trace import read
    from haibun.trace.problems import summarise

    if file.startswith(GENERATED):
        found = generated(file.removeprefix(GENERATED), DEVICES)
    else:
        found = read(file, format_, strict)
    told = summary(found)
    if json:
        problems = [p.render() for p in found.problems[:SHOWN]]
        print_json({**told, "skipped": len(found.problems), "problems": problems})
        return
    print_pairs(_facts(found, told))
    if found.problems:
        say(f"{len(found.problems):,} rows cannot be read:\n{summarise(found.problems)}")


def summary(trace: Trace) -> dict[str, Any]:
    """Figures of a trace; seconds and devices, None where not known."""
    import numpy as np

    sizes, counts = np.unique(trace.devices, return_counts=True)
    span = float(trace.submit[-1]) if len(trace) else 0.0
    known = trace.duration[~np.isnan(trace.duration)]
    work = float((trace.duration * trace.devices).sum()) if len(known) == len(trace) else None
    return {
        "name": trace.name,
        "format": trace.format,
        "jobs": len(trace),
        "span": span,
        "tenants": len(trace.tenants),
        "models": len(trace.models),
        "device_seconds": work,
        "busy_devices": work / span if work is not None and span else None,
        "duration": {
            str(q): float(np.percentile(known, q)) if len(known) else None for q in (5, 25, 50, 75, 95, 99)
        },
        "devices": {str(size): count for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)},
    }


def _facts(trace: Trace, told: dict[str, Any]) -> list[tuple[str, str]]:
    from haibun.report.units import count, duration, share

    jobs = len(trace)
    spread = ", ".join(f"{duration(v)} ({q} %)" for q, v in told["duration"].items() if v is not None)
    busy = told["busy_devices"]
    return [
        ("trace", f"{trace.name} ({trace.format})"),
        ("jobs", f"{jobs:,}, submitted over {duration(told['span'])}"),
        ("tenants", f"{len(trace.tenants):,}" if len(trace.tenants) > 1 else ""),
        ("models", f"{len(trace.models):,}" if trace.models else ""),
        ("duration", spread or "not known: jobs count in steps"),
        ("load", f"{count(busy)} devices busy on average, were there enough" if busy is not None else ""),
        (
            "gangs",
            "\n".join(
                f"{n:>6} devices  {c:>8,} jobs  {share(c / jobs):>7}" for n, c in told["devices"].items()
            ),
        ),
    ]


def generate(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="CSV", help="File to write.", show_default=False)
    ],
    jobs: Annotated[int, typer.Option(min=1, help="How many jobs.")] = 1000,
    devices: Annotated[
        int, typer.Option(min=1, help="Of the cluster it is meant for; no gang is larger.")
    ] = DEVICES,
    load: Annotated[float, typer.Option(help="Device time asked for, over what those devices have.")] = 0.8,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same trace.")] = 0,
    arrivals: Annotated[
        str, typer.Option(help="poisson, or diurnal: more by day than by night.")
    ] = "poisson",
    json: Json = False,
) -> None:
    """Write a synthetic trace that resembles Philly's, as a CSV of Philly's form.

    Example: `haibun generate --jobs 5000 --devices 64 --load 0.9 --seed 1 -o trace.csv`
    """
    from haibun.simulate import OutputFile
    from haibun.simulate.inputs import generated
    from haibun.trace import write_philly

    with OutputFile(out) as file:
        drawn = generated(f"jobs={jobs},load={load},seed={seed},arrivals={arrivals}", devices)
        file.write_at(lambda path: write_philly(drawn, path))
    if json:
        print_json({"path": str(out), **summary(drawn)})
    else:
        print(f"{out}: {jobs:,} jobs")
