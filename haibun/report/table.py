"""Tables for the terminal: results of replays side by side, and one thing measured twice."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from haibun.report import headline, units
from haibun.report.rows import Pair

_LOOK: dict[str, Any] = {
    "title_justify": "left",
    "title_style": "bold",
    "header_style": "bold",
    "box": box.SIMPLE_HEAD,
    "pad_edge": False,
}


def results_table(results: Sequence[Mapping[str, Any]], title: str | None = None) -> Table:
    """One column a policy, one row a figure that any of them knows; the best of a row is marked.

    Args:
        results: entries of ``results`` of ``haibun simulate --json``; seconds, None where not known.
    """
    table = Table(title=title, **_LOOK)
    table.add_column("", style="dim", no_wrap=True)
    for result in results:
        table.add_column(str(result.get("policy", "")), justify="right", no_wrap=True)
    for figure in headline.known(results):
        best = headline.best(results, figure)
        cells = [figure.write(headline.value(r, figure)) for r in results]
        marked = [Text(cell, style="bold green" if i in best else "") for i, cell in enumerate(cells)]
        table.add_row(figure.label, *marked)
    return table


def comparison_table(
    pairs: Sequence[Pair], left: str = "live", right: str = "twin", title: str | None = None
) -> Table:
    """A row a pair of durations and their difference, as part of ``left``; the median of those below."""
    table = Table(title=title, show_footer=True, **_LOOK)
    differences = [d for d in map(difference, pairs) if d is not None]
    median = statistics.median(map(abs, differences)) if differences else None
    table.add_column("", footer="median difference" if differences else "", no_wrap=True)
    table.add_column(left, justify="right")
    table.add_column(right, justify="right")
    table.add_column("difference", justify="right", footer=units.share(median) if differences else "")
    for pair in pairs:
        off = difference(pair)
        style = "" if off is None or abs(off) <= 0.10 else "yellow"  # 10 %: what the twin is held to
        table.add_row(
            pair.label,
            units.duration(pair.left),
            units.duration(pair.right),
            Text(units.change(off), style=style),
        )
    return table


def difference(pair: Pair) -> float | None:
    """(right - left) / left; None where either is not known, or left is 0."""
    if pair.left is None or pair.right is None or pair.left == 0:
        return None
    return (pair.right - pair.left) / pair.left
