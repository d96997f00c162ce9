"""What is said at the end: the story, the twin beside the live run, the claims; as text, as JSON, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from haibun.demo.checks import Agreement, Check
from haibun.demo.profile import Profile
from haibun.demo.record import Record
from haibun.report import page, units
from haibun.report.rows import Moment, Pair
from haibun.report.rows import Run as Rows
from haibun.report.table import comparison_table
from haibun.simulate.outcome import rows_of
from haibun.twin.metrics import summary


class Outcome(Struct, frozen=True):
    """All of it. ``seconds``: how long the whole demo took."""

    live: Record
    twin: Record
    story: Sequence[Moment]
    agreement: Agreement
    checks: Sequence[Check]
    profile: Profile
    notes: Sequence[str]
    report: Path
    seconds: float

    @property
    def good(self) -> bool:
        """Whether all that is claimed holds."""
        return all(check.holds for check in self.checks)


def write_report(outcome: Outcome) -> None:
    """The self-contained page with both runs."""
    runs = [_rows(outcome.live, "live"), _rows(outcome.twin, "twin")]
    subtitle = f"Real training jobs on {runs[0].devices} devices, and the same jobs in the twin"
    claims = [f"{'Holds' if c.holds else 'DOES NOT HOLD'}: {c.claim} ({c.evidence})." for c in outcome.checks]
    text = page.render(
        "Haibun demo",
        runs,
        subtitle=subtitle,
        notes=[*outcome.notes, *claims],
        story=outcome.story,
        mark_best=False,
    )
    outcome.report.write_text(text, encoding="utf-8")


def _rows(record: Record, label: str) -> Rows:
    figures = summary(record.state) | {"policy": label}
    rows, _ = rows_of(record.state, figures, record.history)
    return rows


def print_outcome(outcome: Outcome, console: Console) -> None:
    """For people."""
    console.print("\nWhat happened, and why", style="bold")
    for moment in outcome.story:
        style = {"bad": "red", "good": "green"}.get(moment.kind, "")
        console.print(f"{moment.at:6.1f} s  {moment.text}", style=style, highlight=False, soft_wrap=True)
    console.print()
    console.print("Job completion times: live, and replayed in the twin", style="bold")
    console.print(_comparison(outcome))
    console.print(_starts(outcome.agreement), soft_wrap=True)
    console.print("\nWhat this run shows", style="bold")
    for check in outcome.checks:
        mark = Text("yes  ", style="green") if check.holds else Text("NO   ", style="bold red")
        console.print(mark.append(f"{check.claim}: {check.evidence}", style="default"), soft_wrap=True)
    for note in outcome.notes:
        console.print(f"     {note}", style="dim", highlight=False, soft_wrap=True)
    console.print(f"\nReport with the timeline of devices: {outcome.report}", highlight=False, soft_wrap=True)
    console.print(f"Took {units.duration(outcome.seconds)} in all.", highlight=False)


def _comparison(outcome: Outcome) -> Table:
    live, twin = outcome.live, outcome.twin
    pairs = [Pair(job.name, live.completion(job.id), twin.completion(job.id)) for job in live.jobs]
    return comparison_table(pairs)


def _starts(found: Agreement) -> Text:
    if found.same_order:
        return Text(f"Order of starts, the same in both: {' > '.join(found.live_starts)}")
    return Text(
        f"Order of starts, live: {' > '.join(found.live_starts)}\n"
        f"Order of starts, twin: {' > '.join(found.twin_starts)}",
        style="yellow",
    )


def as_json(outcome: Outcome) -> dict[str, Any]:
    """For programs. Times in seconds."""
    live, twin = outcome.live, outcome.twin
    return {
        "ok": outcome.good,
        "checks": msgspec.to_builtins(outcome.checks),
        "jobs": [
            {
                "name": job.name,
                "live_jct": live.completion(job.id),
                "twin_jct": twin.completion(job.id),
                "error": outcome.agreement.errors[job.name],
            }
            for job in live.jobs
        ],
        "same_order_of_starts": outcome.agreement.same_order,
        "median_jct_error": outcome.agreement.median_error,
        "starts": {"live": outcome.agreement.live_starts, "twin": outcome.agreement.twin_starts},
        "story": msgspec.to_builtins(outcome.story),
        "profile": msgspec.to_builtins(outcome.profile),
        "notes": list(outcome.notes),
        "report": str(outcome.report),
        "seconds": outcome.seconds,
    }
