"""Tables and the live view, as a terminal shows them."""

from __future__ import annotations

import pytest
from rich.console import Console, RenderableType

from haibun.report.live import LiveDevice, LiveJob, LiveNode, LiveView, live
from haibun.report.rows import Pair
from haibun.report.table import comparison_table, difference, results_table

FIFO = {
    "policy": "fifo",
    "jobs": 10,
    "avg_jct": 7200.0,
    "utilisation": 0.5,
    "worst_ftf": None,
    "preemptions": 0,
}
SRTF = {
    "policy": "srtf",
    "jobs": 10,
    "avg_jct": 3600.0,
    "utilisation": None,
    "worst_ftf": None,
    "preemptions": 3,
}


def lines(renderable: RenderableType, width: int = 100) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    return [text.rstrip() for text in captured.get().splitlines()]


def line(found: list[str], start: str) -> list[str]:
    return next(text.split() for text in found if text.strip().startswith(start))


def test_results_stand_side_by_side_in_human_units() -> None:
    found = lines(results_table([FIFO, SRTF]))
    assert line(found, "Average JCT") == ["Average", "JCT", "2", "h", "00", "min", "1", "h", "00", "min"]
    assert line(found, "Utilisation") == ["Utilisation", "50.0", "%", "–"]
    assert not any("fairness" in text for text in found)


def test_the_best_of_a_row_is_marked_only_against_others() -> None:
    def marked(table: RenderableType) -> int:
        console = Console(width=100, force_terminal=True, color_system="standard")
        with console.capture() as captured:
            console.print(table)
        return captured.get().count("\x1b[1;32m")

    assert marked(results_table([FIFO, SRTF])) == 2  # average JCT, preemptions
    assert marked(results_table([FIFO])) == 0


def test_live_beside_twin_shows_each_difference_and_their_median() -> None:
    pairs = [Pair("a", 10.0, 11.0), Pair("b", 10.0, 8.0), Pair("c", None, 3.0), Pair("d", 0.0, 1.0)]
    found = lines(comparison_table(pairs))
    assert line(found, "a ")[-2:] == ["+10.0", "%"]
    assert line(found, "c ")[-1] == "–"
    assert line(found, "median difference")[-2:] == ["15.0", "%"]
    assert difference(pairs[3]) is None
    assert "median" not in " ".join(lines(comparison_table([pairs[2]])))


def test_the_live_view_says_who_runs_where_and_why_others_wait() -> None:
    nodes = [
        LiveNode("n1", [LiveDevice("0", "j1"), LiveDevice("1")]),
        LiveNode("n2", [LiveDevice("0", healthy=False)], "lost"),
    ]
    jobs = [
        LiveJob("j1", "gpt", "running", 1, step=50, total=200, rate=2.5, since=65.0, why="runs on n1"),
        LiveJob("j2", "", "queued", 4, why="needs 4 v100"),
    ]
    found = lines(live(LiveView("fifo", 65.0, nodes, jobs, ["bye"])), 120)
    text = "\n".join(found)
    assert "fifo  1 min 05 s  1/3 devices held  1 running  1 queued" in text
    assert line(found, "n1") == ["n1", "0", "gpt", "1", "free"]
    assert "n2 lost" in text
    assert "down" in text
    assert all(word in text for word in ("50/200", "2.5", "needs 4 v100", "bye"))


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_cuts_neither_states_nor_steps(width: int) -> None:
    nodes = [LiveNode("n1", [LiveDevice("0", "1")])]
    jobs = [
        LiveJob(
            *("1", "train-the-largest-of-all", "recovering", 8, 12_345, 1_000_000, 12.5, 100, 5000.0),
            why="needs 8 devices of type h100, and 3 are free",
        ),
        LiveJob("2", "b", "succeeded", 1, 50, 50, since=65.0),
    ]
    found = lines(live(LiveView("fifo", 65.0, nodes, jobs)), width)
    text = "\n".join(found)
    assert max(map(len, found)) <= width
    assert all(word in text for word in ("recovering", "succeeded", "12,345/1,000,000", "train-the"))
    assert "prio" not in text
    assert "prio" in "\n".join(lines(live(LiveView("fifo", 65.0, nodes, jobs)), 160))


def test_long_lists_are_cut_and_counted() -> None:
    jobs = [LiveJob(f"j{i}", "", "queued", 1) for i in range(2_000)]
    nodes = [LiveNode(f"n{i}", [LiveDevice("0")]) for i in range(50)]
    found = lines(live(LiveView("fifo", 1.0, nodes, jobs), most_jobs=5, most_nodes=3))
    assert len(found) < 20
    assert "and 1,995 more jobs" in found
    assert "and 47 more nodes" in found
