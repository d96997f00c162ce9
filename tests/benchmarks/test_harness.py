"""The harness of the benchmarks: statistics, the form of a report, and the list of what there is."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from benchmarks import __main__ as runner
from benchmarks import _naive, harness
from benchmarks.harness import Claim, MeasureError, Outcome, Skipped

CLAIM = Claim("something takes little", 2.0, "s")


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    return dict(json.loads(capsys.readouterr().out.strip().splitlines()[-1]))


def test_the_readme_lists_every_benchmark() -> None:
    text = (runner.HERE / "README.md").read_text()
    assert [name for name in runner.names() if f"`{name}.py`" not in text] == []


@pytest.mark.parametrize("name", [n for n in runner.names() if n != "live_against_twin"])
def test_every_benchmark_states_a_claim_and_can_be_imported_alone(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    assert isinstance(module.CLAIM, Claim)
    assert callable(module.measure)


@pytest.mark.parametrize(
    ("figure", "also", "holds"), [(2.0, True, True), (2.1, True, False), (1.0, False, False)]
)
def test_the_last_line_is_one_json_object(
    figure: float, also: bool, holds: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.main(CLAIM, lambda: Outcome(figure, [("row", "told")], {"ratio": 3.0}, also))
    result = told(capsys)
    assert (result["figure"], result["holds"], result["target"], result["ratio"]) == (
        figure,
        holds,
        "<= 2 s",
        3.0,
    )


def test_a_claim_may_ask_for_at_least() -> None:
    claim = Claim("much", 300.0, "/s", at_most=False)
    assert claim.holds(300.0)
    assert not claim.holds(299.0)
    assert claim.told_target() == ">= 300 /s"


def test_what_cannot_run_here_is_skipped_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def measure() -> Outcome:
        raise Skipped("no data")

    harness.main(CLAIM, measure)
    assert told(capsys)["skipped"] == "no data"


def test_what_fails_ends_with_1_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    def measure() -> Outcome:
        raise MeasureError("it broke")

    with pytest.raises(SystemExit) as e:
        harness.main(CLAIM, measure)
    assert e.value.code == 1
    assert told(capsys)["failed"] == "it broke"


def test_absent_data_is_a_reason_to_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAIBUN_DATA", "/nowhere")
    with pytest.raises(Skipped, match="HAIBUN_DATA"):
        harness.data("jobs/philly/philly_jobs.csv")


def test_a_paired_ratio_lies_in_its_interval_and_drift_of_both_cancels() -> None:
    b = [10.0 + i for i in range(40)]
    a = [x * (1.1 + 0.01 * (-1) ** i) for i, x in enumerate(b)]
    ratio, low, high = harness.paired_ratio(a, b)
    assert low <= ratio <= high
    assert 1.08 < low < high < 1.12


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(i) for i in range(1, 101)]
    assert [harness.percentile(values, q) for q in (50, 95, 100)] == [50.0, 95.0, 100.0]
    assert harness.percentile([7.0], 95) == 7.0


def test_a_child_is_accounted_for_by_itself() -> None:
    child = harness.run(
        [sys.executable, "-c", "sum(range(3_000_000)); x = bytearray(60_000_000); print('{\"a\": 1}')"]
    )
    assert child.cpu > 0.0
    assert child.peak > 60_000_000
    assert harness.last_json(child.out) == {"a": 1}


def test_a_child_that_fails_is_told_with_its_last_words() -> None:
    with pytest.raises(MeasureError, match=r"ended with 3.*bad luck"):
        harness.run([sys.executable, "-c", "import sys; print('bad luck', file=sys.stderr); sys.exit(3)"])


def test_the_bare_queue_is_strict_fifo() -> None:
    # The second job needs both devices and blocks the third, which would fit beside the first.
    assert _naive.fifo([0.0, 1.0, 2.0], [10.0, 5.0, 1.0], [1, 2, 1], 2) == [10.0, 14.0, 14.0]


def test_the_plain_tiresias_lets_the_less_served_go_first() -> None:
    jct = _naive.Tiresias([1, 1], [10_000.0, 60.0], [0.0, 5_000.0]).run(1)
    assert jct[1] == pytest.approx(60.0)
    assert jct[0] == pytest.approx(10_060.0)
