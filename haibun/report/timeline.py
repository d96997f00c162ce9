"""Which job held which device when: rows are devices, bars are attempts.

A picture holds some dozens of rows and some thousand bars. Where there is more, it shows the first whole
nodes in the cluster's order, and a window of time around the longest queue; the page says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from haibun.report import scales, signs, svg, units
from haibun.report.charts import BOTTOM, RIGHT, TOP, WIDTH, axes
from haibun.report.rows import NodeDevices, Run, Span
from haibun.report.scales import Scale

MOST_ROWS = 64
MOST_BARS = 4000  # over all runs of a page: some 700 kB
NODE_GAP = 7.0
GUTTER = 116.0  # pixels at the left, for names
LETTER = 6.4  # pixels that a letter of a bar's label takes at most


class Window(Struct, frozen=True):
    """What the pictures of a page show. ``rule`` says why not all of it; '' when it is all."""

    nodes: Sequence[NodeDevices]
    start: float
    end: float
    rule: str


class Bar(Struct, frozen=True, gc=False):
    """A part of a span that is one rectangle: ``rows`` rows from ``row`` on."""

    span: Span
    row: int
    rows: int
    end: float


def choose(runs: Sequence[Run]) -> Window:
    """One window for all runs, so that they can be compared; small enough for a page."""
    nodes, said = _nodes(runs[0].nodes)
    start, end = _extent(runs)
    bars = [_bars(r, Window(nodes, start, end, "")) for r in runs]
    whole = end - start
    peak = _busiest(runs[0], start)
    width = whole
    low, high = start, end
    while sum(_count(b, low, high) for b in bars) > MOST_BARS:
        width /= 2
        low = min(max(peak - width / 2, start), end - width)
        high = low + width
    if width < whole:
        said.append(
            f"{units.duration(width)} of {units.duration(whole)}, around the longest queue of {runs[0].label}"
        )
    return Window(nodes, low, high, "; ".join(said))


def devices(run: Run, window: Window) -> str:
    """The picture of one run."""
    row_height = 22.0 if sum(len(n.devices) for n in window.nodes) <= 16 else 13.0
    tops = _tops(window.nodes, row_height)
    height = tops[-1] + row_height + BOTTOM + 6 if tops else TOP + BOTTOM
    zero = _extent([run])[0]
    write = units.moment if window.start > zero else units.tick
    x = Scale(
        window.start,
        window.end,
        GUTTER,
        WIDTH - RIGHT,
        scales.time_ticks(window.start, window.end, zero),
        lambda v: write(v - zero) if v > zero else "0",
    )
    shown = [b for b in _bars(run, window) if b.end > window.start and b.span.start < window.end]
    # By place in the list of jobs, which is the same in all runs of a page.
    colours = {job: i % svg.SLOTS for i, job in enumerate(run.jobs.ids)}
    names = dict(zip(run.jobs.ids, run.jobs.names, strict=True))
    parts = [*axes(x, None, height), *_names(window.nodes, tops, row_height)]
    for bar in shown:
        parts += _bar(
            bar, x, tops, row_height, colours.get(bar.span.job, 0), names.get(bar.span.job) or bar.span.job
        )
    rows = sum(len(n.devices) for n in window.nodes)
    summary = f"{run.label}: which job held which of {rows} devices; {len(shown)} bars"
    return svg.picture(WIDTH, height, summary, parts)


def _nodes(nodes: Sequence[NodeDevices]) -> tuple[list[NodeDevices], list[str]]:
    """Whole nodes from the first on, and at least a part of the first."""
    shown, rows = list[NodeDevices](), 0
    for node in nodes:
        if rows + len(node.devices) > MOST_ROWS and shown:
            break
        shown.append(NodeDevices(node.name, node.type, node.devices[:MOST_ROWS]))
        rows += len(shown[-1].devices)
    in_all = sum(len(n.devices) for n in nodes)
    return shown, [f"the first {rows} of {in_all} devices"] if rows < in_all else []


def _extent(runs: Sequence[Run]) -> tuple[float, float]:
    """From the first submission or attempt to the last end of an attempt or change of the series."""
    starts = [float(r.jobs.submitted.min()) for r in runs if len(r.jobs)]
    starts += [s.start for r in runs for s in r.spans]
    ends = [s.end for r in runs for s in r.spans if not math.isnan(s.end)]
    ends += [float(r.series.times[-1]) for r in runs if len(r.series.times)]
    start = min(starts, default=0.0)
    return start, max(max(ends, default=1.0), start + 1e-3)


def _busiest(run: Run, otherwise: float) -> float:
    series = run.series
    return float(series.times[int(np.argmax(series.queued))]) if len(series.times) else otherwise


def _bars(run: Run, window: Window) -> list[Bar]:
    """Spans cut into rectangles: neighbouring devices of one node make one."""
    row_of, node_of = dict[int, int](), dict[int, int]()
    for index, node in enumerate(window.nodes):
        for device in node.devices:
            row_of[device] = len(row_of)
            node_of[device] = index
    last = _extent([run])[1]
    bars = []
    for span in run.spans:
        held = sorted((row_of[d], node_of[d]) for d in span.devices if d in row_of)
        end = last if math.isnan(span.end) else span.end
        first = 0
        for i in range(1, len(held) + 1):
            if i == len(held) or held[i] != (held[i - 1][0] + 1, held[i - 1][1]):
                bars.append(Bar(span, held[first][0], i - first, end))
                first = i
    return bars


def _count(bars: Sequence[Bar], low: float, high: float) -> int:
    return sum(b.end > low and b.span.start < high for b in bars)


def _tops(nodes: Sequence[NodeDevices], row_height: float) -> list[float]:
    tops, y = [], TOP
    for node in nodes:
        for _ in node.devices:
            tops.append(y)
            y += row_height
        y += NODE_GAP
    return tops


def _names(nodes: Sequence[NodeDevices], tops: Sequence[float], row_height: float) -> list[str]:
    parts, row = [], 0
    for node in nodes:
        many = len(node.devices)
        middle = (tops[row] + tops[row + many - 1] + row_height) / 2
        parts.append(svg.label(_short(node.name, 13), GUTTER - 30, middle + 4, "node", "end"))
        for i in range(many):
            y = tops[row + i]
            parts.append(
                svg.element(
                    "rect", x=GUTTER, y=y, width=WIDTH - RIGHT - GUTTER, height=row_height - 1, class_="lane"
                )
            )
            if row_height > 16 or i % 2 == 0:
                parts.append(svg.label(str(i), GUTTER - 8, y + row_height / 2 + 3.5, "device", "end"))
        row += many
    return parts


def _bar(bar: Bar, x: Scale, tops: Sequence[float], row_height: float, colour: int, name: str) -> list[str]:
    span = bar.span
    left, right = x(span.start), x(bar.end)
    top, bottom = tops[bar.row], tops[bar.row + bar.rows - 1] + row_height - 1
    width, middle = max(right - left, 0.6), (top + bottom) / 2
    parts = [
        svg.element(
            "rect",
            svg.tip(_words(bar, name)),
            x=left,
            y=top,
            width=width,
            height=bottom - top,
            rx=2 if width > 4 else 0,
            class_=f"bar c{colour}",
        )
    ]
    room = int((width - 18) / LETTER)
    if room >= min(len(name), 4):
        parts.append(svg.label(_short(name, room), left + 5, middle + 3.8, "job", "start"))
    if span.outcome in signs.MEANING and bar.end <= x.high and right - left > 2:
        parts.append(signs.sign(span.outcome, right, middle, min(row_height / 2 - 2.5, 5.0)))
    return parts


def _words(bar: Bar, name: str) -> str:
    many = len(bar.span.devices)
    held = f"{many} device{'s' if many != 1 else ''}"
    return f"{name}\n{held}, {units.duration(bar.end - bar.span.start)}, {bar.span.outcome}"


def _short(words: str, letters: int) -> str:
    return words if len(words) <= letters else words[: max(letters - 1, 0)] + "…"
