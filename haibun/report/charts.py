"""Line charts: distributions of completion times, and what ran and waited over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from haibun.report import sampling, scales, svg, units
from haibun.report.rows import Floats, Ints, Run
from haibun.report.scales import Scale

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1040.0, 64.0, 18.0, 12.0, 36.0  # pixels of the viewBox
BANDS = 80  # strips that show all values at one place of the x axis when pointed at
BINS = 320  # means over time: some three pixels each


class Line(Struct, frozen=True):
    """``ys`` holds from ``xs[i]`` to ``xs[i + 1]`` (a step); nan: not known there."""

    label: str
    slot: int
    xs: Floats
    ys: Floats


def completion_times(runs: Sequence[Run]) -> str:
    """The share of all jobs that finished within a time, on a logarithmic axis: a line a run."""
    lines = [Line(r.label, i, *sampling.cdf(r.jobs.jct(), len(r.jobs))) for i, r in enumerate(runs)]
    some = [line.xs for line in lines if len(line.xs)]
    if not some:
        return ""
    # Without the quickest 0.5 %, which on a logarithmic axis would take most of the room.
    low = max(min(float(x[len(x) // 200]) for x in some), 0.01)
    high = max(max(float(x[-1]) for x in some), low * 10)
    # Each line starts at 0 at the left edge and goes on to the right edge.
    lines = [_extended(line, low, high) for line in lines]
    x = _x(low, high, scales.log_time_ticks(low, high), units.tick, log=True)
    y = _y(1.0, 280.0, [0.0, 0.25, 0.5, 0.75, 1.0], lambda v: f"{v * 100:.0f} %")
    summary = "Share of jobs finished within a time. " + "; ".join(
        f"{r.label}: median {units.duration(r.figures.get('median_jct'))}" for r in runs
    )
    return _chart(lines, x, y, summary, lambda v: f"within {units.duration(v)}", units.share)


def waiting(runs: Sequence[Run]) -> str:
    """Jobs that wait, over time."""
    start, end = sampling.span_of([r.series for r in runs])
    lines = _averages(runs, start, end, lambda r: r.series.queued)
    most = max((float(np.nanmax(line.ys, initial=0.0)) for line in lines), default=0.0)
    ticks = scales.nice_ticks(most, whole=True)
    x, y = _time_axis(start, end), _y(ticks[-1], 190.0, ticks, units.count)
    summary = f"Jobs waiting over {units.duration(end - start)}, at most {units.count(most)}"
    return _chart(lines, x, y, summary, lambda v: f"at {units.duration(v - start)}", units.count)


def utilisation(runs: Sequence[Run]) -> str:
    """The share of the devices that jobs hold, over time."""
    start, end = sampling.span_of([r.series for r in runs])
    lines = _averages(runs, start, end, lambda r: r.series.busy / max(r.devices, 1))
    x, y = _time_axis(start, end), _y(1.0, 190.0, [0.0, 0.5, 1.0], lambda v: f"{v * 100:.0f} %")
    summary = f"Share of devices held over {units.duration(end - start)}"
    return _chart(lines, x, y, summary, lambda v: f"at {units.duration(v - start)}", units.share)


def _averages(
    runs: Sequence[Run], start: float, end: float, of: Callable[[Run], Floats | Ints]
) -> list[Line]:
    edges = np.linspace(start, end, BINS + 1)
    return [
        Line(r.label, i, edges, np.append(means, np.nan))
        for i, r in enumerate(runs)
        for means in [sampling.averaged(r.series.times, of(r), edges)]
    ]


def _extended(line: Line, low: float, high: float) -> Line:
    if not len(line.xs):
        return line
    xs = np.concatenate([[low], np.maximum(line.xs, low), [high]])
    return Line(line.label, line.slot, xs, np.concatenate([[0.0], line.ys, line.ys[-1:]]))


def _x(
    low: float, high: float, ticks: Sequence[float], write: Callable[[float], str], log: bool = False
) -> Scale:
    return Scale(low, high, LEFT, WIDTH - RIGHT, ticks, write, log)


def _time_axis(start: float, end: float) -> Scale:
    return _x(
        start, end, scales.time_ticks(start, end), lambda v: units.tick(v - start) if v > start else "0"
    )


def _y(high: float, height: float, ticks: Sequence[float], write: Callable[[float], str]) -> Scale:
    return Scale(0.0, high, TOP + height, TOP, ticks, write)


def _chart(
    lines: Sequence[Line],
    x: Scale,
    y: Scale,
    summary: str,
    say_x: Callable[[float], str],
    say_y: Callable[[float | None], str],
) -> str:
    height = y.start + BOTTOM
    parts = [*axes(x, y, height)]
    if x.log:
        parts.append(svg.label("time, on a logarithmic scale", x.end, height - 2, anchor="end"))
    parts += [path for line in lines for path in _paths(line, x, y)]
    parts += _bands(lines, x, y, say_x, say_y)
    return svg.picture(WIDTH, height, summary, parts)


def axes(x: Scale, y: Scale | None, height: float) -> list[str]:
    """Grid lines and labels; without ``y`` only those of the x axis, over the whole ``height``."""
    bottom, top = height - BOTTOM, TOP
    parts = [] if y is None else _rows(x, y)
    for value in x.ticks:
        parts.append(svg.element("line", x1=x(value), x2=x(value), y1=top, y2=bottom + 4, class_="grid"))
        parts.append(svg.label(x.write(value), x(value), bottom + 20))
    return parts


def _rows(x: Scale, y: Scale) -> list[str]:
    parts = []
    for value in y.ticks:
        parts.append(svg.element("line", x1=x.start, x2=x.end, y1=y(value), y2=y(value), class_="grid"))
        parts.append(svg.label(y.write(value), x.start - 8, y(value) + 4, anchor="end"))
    return parts


def _paths(line: Line, x: Scale, y: Scale) -> list[str]:
    """Steps, with a gap wherever nothing is known."""
    paths, points = [], list[tuple[float, float]]()
    for value, v in zip(line.xs.tolist(), line.ys.tolist(), strict=True):
        px = x(value)
        if points:
            points.append((px, points[-1][1]))
        if v == v:
            points.append((px, y(v)))
        elif points:
            paths.append(svg.polyline(points, f"line l{line.slot % svg.SLOTS}"))
            points = []
    if points:
        paths.append(svg.polyline(points, f"line l{line.slot % svg.SLOTS}"))
    return paths


def _bands(
    lines: Sequence[Line],
    x: Scale,
    y: Scale,
    say_x: Callable[[float], str],
    say_y: Callable[[float | None], str],
) -> list[str]:
    width = (x.end - x.start) / BANDS
    parts = []
    for i in range(BANDS):
        part = (i + 0.5) / BANDS
        at = x.low * (x.high / x.low) ** part if x.log else x.low + part * (x.high - x.low)
        said = [say_x(at)] + [f"{line.label}: {say_y(_at(line, at))}" for line in lines]
        rect = {"x": x.start + i * width, "y": y.end, "width": width, "height": y.start - y.end}
        parts.append(svg.element("rect", svg.tip("\n".join(said)), class_="band", **rect))
    return parts


def _at(line: Line, x: float) -> float:
    i = int(np.searchsorted(line.xs, x, side="right")) - 1
    return float(line.ys[i]) if i >= 0 else math.nan
