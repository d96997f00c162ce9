"""A report as one HTML file: opens anywhere, asks nothing of the network, runs no script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from haibun.report import charts, headline, signs, svg, timeline, units
from haibun.report.rows import Floats, Moment, Run

MOST_JOBS = 200  # rows of a run's table

_STYLE = Path(__file__).with_name("style.css")
# Even a page that someone tampered with could load nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(
    title: str,
    runs: Sequence[Run],
    *,
    subtitle: str = "",
    notes: Sequence[str] = (),
    story: Sequence[Moment] = (),
    mark_best: bool = True,
) -> str:
    """The whole page.

    Args:
        runs: at least one; all on the same clock and cluster.
        subtitle: where the jobs come from and what they ran on, say.
        notes: paragraphs under the title: what was assumed, what is not shown.
        story: what happened and why, in order.
        mark_best: the best of each figure is green; of no use where the runs are to be alike.
    """
    if not runs:
        raise ValueError("a report needs at least one run")
    window = timeline.choose(runs)
    curves = [_completion(runs), _over_time(runs)]
    devices = [_timelines(runs, window)]
    # Where the devices can be shown whole, they tell the most.
    pictures = curves + devices if window.rule else devices + curves
    sections = [_headline(runs, mark_best), _story(story), *pictures, _jobs(runs)]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{_STYLE.read_text(encoding='utf-8')}</style>"
    )
    top = f"<header><h1>{escape(title)}</h1>"
    top += f'<p class="soft">{escape(subtitle)}</p>' if subtitle else ""
    top += "".join(f"<p>{escape(note)}</p>" for note in notes) + "</header>"
    foot = "<footer>Made by Haibun. Point at a bar or a line to read its values.</footer>"
    body = f"<main>{top}{''.join(sections)}{foot}</main>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


# -- sections


def _headline(runs: Sequence[Run], mark_best: bool) -> str:
    results = [r.figures for r in runs]
    rows = []
    for figure in headline.known(results):
        best = headline.best(results, figure) if mark_best else set()
        values = [headline.value(r, figure) for r in results]
        cells = "".join(_cell(v, i, values, figure, i in best) for i, v in enumerate(values))
        name = f'<th scope="row" title="{escape(figure.help)}">{escape(figure.label)}</th>'
        rows.append(f"<tr>{name}{cells}</tr>")
    wide = ' class="beside"' if len(runs) > 1 else ""
    heads = "".join(f'<th scope="col"{wide}>{escape(r.label)}</th>' for r in runs)
    about = "JCT, the job completion time, runs from submission to finish."
    about += " The best of each row is green." if len(runs) > 1 and mark_best else ""
    return _section("Results", about, _table(f"<td></td>{heads}", rows))


def _cell(
    value: float | None, index: int, row: Sequence[float | None], figure: headline.Figure, best: bool
) -> str:
    """A figure, and beside it a bar where there are others to compare it with."""
    bar = ""
    if len(row) > 1:
        most = max((v for v in row if v is not None), default=0.0)
        drawn = figure.better != 0 and value is not None and most > 0
        width = max(100 * (value or 0.0) / most, 2) if drawn else 0
        colour = f' class="f{index % svg.SLOTS}"'
        bar = f'<span class="part"><span{colour} style="width:{width:.0f}%"></span></span>'
    class_ = ' class="best"' if best else ""
    return f"<td{class_}>{escape(figure.write(value))}{bar}</td>"


def _story(story: Sequence[Moment]) -> str:
    if not story:
        return ""
    write = units.clock(max(m.at for m in story))
    items = "".join(
        f"<li><time>{escape(write(m.at))}</time><span{_kind(m.kind)}>{escape(m.text)}</span></li>"
        for m in story
    )
    return _section("What happened, and why", "", f'<ol class="story">{items}</ol>')


def _kind(kind: str) -> str:
    return f' class="{kind}"' if kind in ("good", "bad") else ""


def _completion(runs: Sequence[Run]) -> str:
    about = "Share of all submitted jobs that finished within a time; below 100 % at the end, some never did."
    return _section("Job completion times", about, _legend(runs), _figure(charts.completion_times(runs)))


def _over_time(runs: Sequence[Run]) -> str:
    return _section(
        "Over time",
        "Means over short intervals; time counts from the first submission.",
        _legend(runs),
        "<h3>Jobs waiting</h3>",
        _figure(charts.waiting(runs)),
        "<h3>Devices held</h3>",
        _figure(charts.utilisation(runs)),
    )


def _timelines(runs: Sequence[Run], window: timeline.Window) -> str:
    about = "Each row is a device, each bar an attempt of a job."
    if window.rule:
        about += f" Shown: {window.rule}."
    seen = {s.outcome for r in runs for s in r.spans}
    parts = [_keys([(signs.sign(o, 19, 6, 4.5), words) for o, words in signs.MEANING.items() if o in seen])]
    for i, run in enumerate(runs):
        picture = _figure(timeline.devices(run, window))
        parts.append(_folded(run.label, picture, i == 0 or not window.rule) if len(runs) > 1 else picture)
    return _section("Devices", about, *parts)


def _jobs(runs: Sequence[Run]) -> str:
    tables = [_job_table(r) for r in runs]
    if len(runs) > 1:
        tables = [_folded(r.label, t, i == 0) for i, (r, t) in enumerate(zip(runs, tables, strict=True))]
    most = max(len(r.jobs) for r in runs)
    about = "In order of submission."
    if most > MOST_JOBS:
        about = (
            f"The {MOST_JOBS} jobs that took longest, unfinished ones first, of {units.count(most)}. "
            "All of them are in the CSV file that --jobs writes."
        )
    return _section("Jobs", about, *tables)


def _job_table(run: Run) -> str:
    zero = float(run.jobs.submitted.min()) if len(run.jobs) else 0.0
    head = (
        "Job",
        "Name",
        "Tenant",
        "Devices",
        "State",
        "Submitted",
        "First start after",
        "JCT",
        "Preempted",
        "Failed",
    )
    words = ("Name", "Tenant", "State")
    heads = "".join(f'<th scope="col"{_left(h in words)}>{h}</th>' for h in head)
    jct = run.jobs.jct()
    return _table(heads, [_job_row(run, i, zero, float(jct[i])) for i in _chosen(run, jct)])


def _left(yes: bool) -> str:
    return ' class="left"' if yes else ""


def _job_row(run: Run, i: int, zero: float, jct: float) -> str:
    j = run.jobs
    kind = {"succeeded": "good", "failed": "bad"}.get(j.states[i], "")
    times = (j.submitted[i] - zero, j.started[i] - j.submitted[i], jct)
    return (
        f"<tr><td>{escape(j.ids[i])}</td>"
        f'<td class="left">{escape(j.names[i])}</td><td class="left">{escape(j.tenants[i])}</td>'
        f'<td>{j.devices[i]}</td><td class="left {kind}">{escape(j.states[i])}</td>'
        + "".join(f"<td>{escape(units.duration(float(t)))}</td>" for t in times)
        + f"<td>{j.preemptions[i] or ''}</td><td>{j.failures[i] or ''}</td></tr>"
    )


def _chosen(run: Run, jct: Floats) -> list[int]:
    """All jobs in order of submission; of many, those that took longest."""
    j = run.jobs
    if len(j) <= MOST_JOBS:
        return [int(i) for i in np.argsort(j.submitted, kind="stable")]
    took = np.where(np.isnan(jct), math.inf, jct)
    return [int(i) for i in np.argsort(-took, kind="stable")[:MOST_JOBS]]


# -- pieces


def _section(title: str, about: str, *content: str) -> str:
    text = f'<p class="soft">{escape(about)}</p>' if about else ""
    return f"<section><h2>{escape(title)}</h2>{text}{''.join(content)}</section>"


def _figure(picture: str) -> str:
    return f"<figure>{picture}</figure>" if picture else '<p class="soft">No job finished.</p>'


def _folded(label: str, content: str, unfolded: bool) -> str:
    return f"<details{' open' if unfolded else ''}><summary>{escape(label)}</summary>{content}</details>"


def _table(head: str, rows: Sequence[str]) -> str:
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="wide"><table>{body}</table></div>'


def _legend(runs: Sequence[Run]) -> str:
    if len(runs) < 2:
        return ""
    lines = [svg.polyline([(0, 6), (26, 6)], f"line l{i % svg.SLOTS}") for i in range(len(runs))]
    return _keys([(line, run.label) for line, run in zip(lines, runs, strict=True)])


def _keys(keys: Sequence[tuple[str, str]]) -> str:
    """A legend of signs and words."""
    items = "".join(
        f'<li><svg viewBox="0 0 26 12" aria-hidden="true">{sign}</svg>{escape(words)}</li>'
        for sign, words in keys
    )
    return f'<ul class="legend">{items}</ul>' if items else ""
