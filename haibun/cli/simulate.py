"""``simulate``: replay a trace in the twin."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from haibun.cli.output import Json, console, print_json, say

if TYPE_CHECKING:
    from haibun.simulate import Inputs, Outcome, OutputFile

REDRAW_EVERY = 0.1  # seconds


def simulate(
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE", help="A file, or generate:jobs=1000,load=0.9,seed=1", show_default=False
        ),
    ],
    cluster: Annotated[
        str,
        typer.Option(
            metavar="C", help="A YAML file, or NODESxDEVICES:TYPE, as 56x8:v100", show_default=False
        ),
    ],
    policy: Annotated[
        str, typer.Option(metavar="P[,P...]", help="Policies to compare; 'haibun policies' lists them.")
    ] = "fifo",
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="F", help="philly, gavel or csv:...; told from the file."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="P.PARAM=VALUE", help="A parameter of a policy; may be repeated."),
    ] = None,
    throughputs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Steps/s by model and device type, in Gavel's JSON form."),
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option(
            metavar="COSTS", help="start=10,resume=30,... in seconds, or a YAML file; 0 if left out."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many jobs.")] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="A row that cannot be read, or a job that can never run, is an error."),
    ] = False,
    parallel: Annotated[int, typer.Option(min=1, max=256, help="Policies to replay at a time.")] = 1,
    jobs: Annotated[Path | None, typer.Option(metavar="CSV", help="Write a row a job and policy.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="HTML", help="Write a page with pictures.")] = None,
    json: Json = False,
) -> None:
    """Replay a trace of jobs in the twin, under one policy or several, and compare them.

    The twin runs the very engine that schedules live. Times are seconds; JCT is from submission to finish.

    Example: `haibun simulate philly.csv --cluster 56x8:v100 --policy fifo,srtf,tiresias`
    """
    from haibun.simulate import OutputFile, Request, prepare
    from haibun.spec.params import parse_params

    names = list(dict.fromkeys(name.strip() for name in policy.split(",") if name.strip()))
    if not names:
        raise typer.BadParameter("names no policy", param_hint="'--policy'")
    params = parse_params(sets or (), names)
    request = Request(trace, cluster, names, params, format_, throughputs, costs, limit, strict)
    with ExitStack() as stack:
        outputs = [stack.enter_context(OutputFile(path)) if path else None for path in (jobs, report)]
        inputs = prepare(request)
        _tell_of_problems(inputs)
        outcomes = _replay(inputs, jobs is not None, report is not None, parallel)
        _write(inputs, outcomes, *outputs)
    results = [outcome.figures for outcome in outcomes]
    if json:
        print_json({"results": results})
    else:
        _print(inputs, results, [path for path in (jobs, report) if path])


def _replay(inputs: Inputs, rows: bool, spans: bool, parallel: int) -> list[Outcome]:
    from haibun.app import prepare_kernels
    from haibun.simulate import replay_all

    told: list[str] = []

    def compiling(text: str) -> None:
        told.append(text)
        say(text)

    seconds = prepare_kernels(compiling)
    if told:
        say(f"... compiled in {seconds:.0f} s")
    line = _ProgressLine() if sys.stderr.isatty() and parallel == 1 else None
    try:
        return list(replay_all(inputs, rows=rows, spans=spans, processes=parallel, progress=line))
    finally:
        if line is not None:
            line.clear()


class _ProgressLine:
    """One line on the terminal, written over."""

    def __init__(self) -> None:
        self._due = 0.0

    def __call__(self, policy: str, arrived: int, jobs: int, now: float) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + REDRAW_EVERY
        done = round(30 * arrived / jobs)
        bar = "━" * done + "╌" * (30 - done)
        text = f"\r\x1b[K{policy}  {bar}  {arrived:,} of {jobs:,} jobs have come, day {now / 86400:.1f}"
        sys.stderr.write(text)
        sys.stderr.flush()

    def clear(self) -> None:
        """Take it away."""
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _tell_of_problems(inputs: Inputs) -> None:
    from haibun.trace.problems import summarise

    if inputs.skipped:
        say(
            f"{len(inputs.skipped):,} rows cannot be read and are skipped:\n{summarise(list(inputs.skipped))}"
        )
    if inputs.rejected:
        say(
            f"{len(inputs.rejected):,} jobs can never run here and are left out:\n{summarise(list(inputs.rejected))}"
        )


def _write(
    inputs: Inputs, outcomes: list[Outcome], jobs: OutputFile | None, report: OutputFile | None
) -> None:
    if jobs is not None:
        from haibun.simulate import write_jobs

        jobs.write(lambda f: write_jobs(outcomes, f))
    if report is not None:
        from haibun.report.page import render

        runs = [outcome.run for outcome in outcomes if outcome.run is not None]
        page = render(
            f"{inputs.trace.name} in the twin", runs, subtitle=_subject(inputs), notes=_notes(inputs)
        )
        report.write(lambda f: f.write(page))


def _subject(inputs: Inputs) -> str:
    from haibun.report.units import duration

    trace, cluster = inputs.trace, inputs.cluster
    kinds = ", ".join(cluster.device_types)
    span = float(trace.submit[-1]) if len(trace) else 0.0
    return (
        f"{len(trace):,} jobs of {trace.name}, submitted over {duration(span)}, "
        f"on {cluster.devices:,} devices ({kinds}) of {len(cluster.nodes):,} nodes"
    )


def _notes(inputs: Inputs) -> list[str]:
    """What a reader must know to judge the figures."""
    notes = []
    if "srtf" in inputs.policies:
        notes.append(
            "srtf knows in the twin how long each job will run: it is an oracle, a bound for the others."
        )
    costs = {n: v for n in inputs.costs.__struct_fields__ if (v := getattr(inputs.costs, n))}
    if costs:
        notes.append("Costs in seconds: " + ", ".join(f"{n} {v:g}" for n, v in costs.items()) + ".")
    else:
        notes.append("Starting, stopping and moving jobs costs nothing here; see --costs.")
    if inputs.throughputs is not None:
        notes.append(f"Throughputs: {inputs.throughputs}.")
    if inputs.rejected or inputs.skipped:
        skipped, rejected = len(inputs.skipped), len(inputs.rejected)
        notes.append(
            f"Left out: {skipped:,} rows that cannot be read, {rejected:,} jobs that can never run here."
        )
    return notes


def _cpu_time(seconds: float) -> str:
    """The operating system counts in hundredths of a second."""
    from haibun.report.units import duration

    return duration(seconds) if seconds >= 0.01 else "less than 0.01 s"


def _print(inputs: Inputs, results: list[dict[str, Any]], written: list[Path]) -> None:
    from haibun.report.table import results_table

    out = console()
    out.print(_subject(inputs), style="bold", markup=False)
    out.print(results_table(results))
    for note in [*_notes(inputs), f"Reading the trace took {_cpu_time(inputs.read_s)} of CPU time."]:
        out.print(note, style="dim", markup=False)
    for path in written:
        out.print(f"Written: {path}", markup=False)
