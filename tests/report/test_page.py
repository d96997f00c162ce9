"""The page stands alone, stays small, and shows what it was given."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET

import made_up
import msgspec
import numpy as np
import pytest

from haibun.report import csvs, page, scales, timeline
from haibun.report.rows import Jobs, Moment, Run, Series, Span

SMALL = made_up.run("fifo", 12, 2, 4)


def pictures(html: str) -> list[ET.Element]:
    found = re.findall(r"<svg xmlns.*?</svg>", html, re.DOTALL)
    return [ET.fromstring(svg) for svg in found]


def tag(element: ET.Element) -> str:
    return element.tag.split("}")[-1]


def words(element: ET.Element) -> str:
    return " ".join(t for e in element.iter() if tag(e) == "text" for t in [e.text or ""])


def test_the_page_asks_nothing_of_the_network_and_runs_no_script() -> None:
    html = page.render("t", [SMALL, made_up.run("srtf", 12, 2, 4, seed=2)])
    addresses = set(re.findall(r"""[a-z]+://[^"' <]+""", html))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(script|link|img|iframe|object)\b|@import|url\(|\son\w+=", html)
    assert "default-src 'none'" in html


def test_pictures_are_well_formed_and_say_what_they_show() -> None:
    found = pictures(page.render("t", [SMALL]))
    assert len(found) == 4  # devices, completion, waiting, held
    for picture in found:
        assert picture.get("role") == "img"
        assert len(picture.get("aria-label", "")) > 10
        assert any(tag(e) == "title" for e in picture.iter())


def test_every_word_from_outside_is_escaped() -> None:
    bad = "<script>alert('x')</script>&\""
    run = msgspec.structs.replace(
        SMALL,
        label=bad,
        jobs=msgspec.structs.replace(SMALL.jobs, names=[bad] * 12, tenants=[bad] * 12),
        nodes=[msgspec.structs.replace(n, name=bad) for n in SMALL.nodes],
    )
    html = page.render(bad, [run, run], subtitle=bad, notes=[bad], story=[Moment(1.0, bad, "bad")])
    assert "<script" not in html
    assert len(pictures(html)) == 5


def test_results_are_those_given_and_the_best_is_marked() -> None:
    other = msgspec.structs.replace(SMALL, label="srtf", figures={**SMALL.figures, "avg_jct": 1.0})
    html = page.render("t", [SMALL, other])
    assert re.findall(r'class="best">([^<]+)<', html) == ["1 s"]
    assert "fairness" not in html  # no run knows it
    html = page.render("t", [SMALL, other], mark_best=False)
    assert 'class="best"' not in html
    assert "green" not in html.split("</style>")[1]


def test_axes_say_what_they_are() -> None:
    html = page.render("t", [SMALL])
    said = [words(picture) for picture in pictures(html)]
    assert [("logarithmic" in text) for text in said].count(True) == 1
    assert ">First start after</th>" in html


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (0.03, [0, 1]),
        (1.3, [0, 1, 2]),
        (7, [0, 2, 4, 6, 8]),
        (12, [0, 5, 10, 15]),
        (120, [0, 25, 50, 75, 100, 125]),
    ],
)
def test_an_axis_of_counts_has_whole_numbers(high: float, ticks: list[float]) -> None:
    assert scales.nice_ticks(high, whole=True) == ticks


def test_the_story_is_told_in_order() -> None:
    html = page.render("t", [SMALL], story=[Moment(1.0, "first"), Moment(70.0, "second", "good")])
    assert re.findall(r"<time>(.*?)</time><span.*?>(.*?)</span>", html) == [
        ("1.0 s", "first"),
        ("70.0 s", "second"),
    ]
    html = page.render("t", [SMALL], story=[Moment(1.0, "first"), Moment(3_670.0, "second")])
    assert re.findall(r"<time>(.*?)</time>", html) == ["0:00:01", "1:01:10"]


def test_a_report_of_nothing_is_refused_but_an_empty_run_is_shown() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        page.render("t", [])
    assert "No job finished" in page.render("t", [made_up.run("fifo", 0, 1, 1)])


def test_unfinished_jobs_are_shown_as_such() -> None:
    nan = np.nan
    jobs = Jobs(
        ids=["a", "b"],
        names=["", ""],
        tenants=["t", "t"],
        devices=np.array([1, 1]),
        submitted=np.array([0.0, 1.0]),
        started=np.array([0.0, nan]),
        finished=np.array([nan, nan]),
        states=["running", "queued"],
        preemptions=np.array([0, 0]),
        failures=np.array([0, 0]),
    )
    series = Series(np.array([0.0, 5.0]), np.array([1, 1]), np.array([0, 1]))
    run = Run("live", {}, jobs, [Span("a", (0,), 0.0, nan, "running")], series, SMALL.nodes)
    html = page.render("t", [run])
    assert "No job finished" in html
    bars = [e for e in pictures(html)[0].iter() if (e.get("class") or "").startswith("bar")]
    assert len(bars) == 1
    assert float(bars[0].get("width", "0")) > 800  # to the edge of what is known


def test_a_gang_on_neighbouring_devices_is_one_bar_and_on_two_nodes_two() -> None:
    spans = [
        Span("job-0", (0, 1, 2), 0.0, 1.0, "succeeded"),
        Span("job-1", (1, 3, 4, 5), 1.0, 2.0, "preempted"),
    ]
    run = msgspec.structs.replace(SMALL, spans=spans)
    bars = timeline._bars(run, timeline.choose([run]))
    assert [(b.row, b.rows) for b in bars] == [(0, 3), (1, 1), (3, 1), (4, 2)]


@pytest.fixture(scope="module")
def philly_sized() -> list[Run]:
    return [
        made_up.run(p, 82_247, 56, 8, seed=i, mean=3600.0) for i, p in enumerate(("fifo", "srtf", "tiresias"))
    ]


def test_a_page_of_three_large_replays_stays_small_and_says_what_it_leaves_out(
    philly_sized: list[Run],
) -> None:
    html = page.render("t", philly_sized)
    assert len(html.encode()) < 1_500_000
    assert re.search(r"the first 64 of 448 devices; .* of .*, around the longest queue of fifo", html)
    assert "The 200 jobs that took longest, unfinished ones first, of 82,247" in html
    assert html.count('class="bar') <= timeline.MOST_BARS


def test_the_csv_holds_every_job_of_every_run() -> None:
    file = io.StringIO()
    csvs.write_jobs([SMALL, msgspec.structs.replace(SMALL, label="srtf")], file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert len(rows) == 24
    assert rows[12]["policy"] == "srtf"
    first = rows[0]
    assert float(first["jct"]) == pytest.approx(
        float(first["finished"]) - float(first["submitted"]), abs=1e-5
    )
