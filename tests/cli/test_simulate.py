"""``haibun simulate``: its forms (section 7 of the spine's issue), and what it does with bad input."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from haibun.cli.main import invoke

Captured = pytest.CaptureFixture[str]
KEYS = [
    "policy", "jobs", "finished", "avg_jct", "median_jct", "p95_jct", "p99_jct", "makespan", "avg_queueing",
    "utilisation", "preemptions", "worst_ftf", "unfair_share", "decisions", "cpu_s",
]  # fmt: skip
PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-03 00:00:00,100.0,2,200.0,vc0
2017-10-03 00:00:10,50.0,1,50.0,vc1
2017-10-03 00:00:20,30.0,2,60.0,vc0
"""


@pytest.fixture
def philly(tmp_path: Path) -> Path:
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY)
    return path


def results(capsys: Captured, *args: str) -> list[dict[str, Any]]:
    assert invoke(["simulate", *args, "--json"]) == 0
    (key,) = told = json.loads(capsys.readouterr().out)
    assert key == "results"
    return list(told[key])


def test_results_have_the_form_agreed_upon(philly: Path, capsys: Captured) -> None:
    (fifo, srtf) = results(capsys, str(philly), "--cluster", "1x2:v100", "--policy", "fifo,srtf")
    for result in (fifo, srtf):
        assert [key for key in result if key in KEYS or key == "gpu_hours"]
        assert set(KEYS) <= set(result)
        assert result["worst_ftf"] is None
        assert result["unfair_share"] is None
    assert (fifo["policy"], srtf["policy"]) == ("fifo", "srtf")
    # Two devices: 0-100 job 0; 100-150 job 1, behind which job 2 must wait for both devices: 150-180.
    assert (fifo["jobs"], fifo["finished"], fifo["preemptions"]) == (3, 3, 0)
    assert fifo["avg_jct"] == pytest.approx((100 + 140 + 160) / 3)
    assert fifo["median_jct"] == 140
    assert fifo["makespan"] == 180
    assert fifo["avg_queueing"] == pytest.approx((0 + 90 + 130) / 3)
    assert fifo["utilisation"] == pytest.approx(310 / 360)
    assert srtf["preemptions"] > 0


def test_a_table_says_that_srtf_is_an_oracle(philly: Path, capsys: Captured) -> None:
    assert invoke(["simulate", str(philly), "--cluster", "1x2:v100", "--policy", "fifo,srtf"]) == 0
    out = capsys.readouterr().out
    assert "Average JCT" in out
    assert "oracle" in out
    assert "submitted over 20 s" in out
    assert re.search(r"took (less than )?[\d.]+ s of CPU time", out)
    assert "took 0 s" not in out


def test_a_row_a_job_is_written(philly: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "jobs.csv"
    results(capsys, str(philly), "--cluster", "1x2:v100", "--jobs", str(out))
    rows = list(csv.DictReader(out.open()))
    assert list(rows[0])[1:] == [
        "job", "name", "tenant", "devices", "submitted", "first_start", "finished", "jct", "queueing",
        "preemptions", "state",
    ]  # fmt: skip
    last = rows[-1]
    assert (last["job"], last["tenant"], last["devices"], last["state"]) == ("job-2", "vc0", "2", "succeeded")
    times = ("submitted", "first_start", "finished", "jct", "queueing")
    assert [float(last[t]) for t in times] == [20, 150, 180, 160, 130]


def test_a_report_is_one_page_for_all_policies(philly: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "report.html"
    results(capsys, str(philly), "--cluster", "1x2:v100", "--policy", "fifo,srtf", "--report", str(out))
    page = out.read_text()
    assert page.startswith("<!doctype html>")
    assert "srtf" in page
    assert "oracle" in page
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_generated_jobs_need_no_file_and_are_the_same_each_time(capsys: Captured) -> None:
    args = ("generate:jobs=50,load=0.9,seed=1", "--cluster", "2x8:v100", "--policy", "tiresias")
    first, second = (results(capsys, *args)[0] for _ in range(2))
    assert first | {"cpu_s": 0} == second | {"cpu_s": 0}
    assert first["finished"] == 50


def test_parameters_and_costs_change_the_outcome(philly: Path, capsys: Captured) -> None:
    base = [str(philly), "--cluster", "1x2:v100", "--policy", "tiresias"]
    plain = results(capsys, *base)[0]
    cut = results(capsys, *base, "--set", "tiresias.queue_limits=20,40")[0]
    assert cut["preemptions"] > plain["preemptions"]
    late = results(capsys, *base, "--costs", "start=10,resume=1m")[0]
    assert late["avg_jct"] > plain["avg_jct"]


def test_policies_side_by_side_give_what_they_give_one_by_one(philly: Path, capsys: Captured) -> None:
    args = (str(philly), "--cluster", "1x2:v100", "--policy", "fifo,srtf")
    alone, beside = results(capsys, *args), results(capsys, *args, "--parallel", "2")
    assert [r | {"cpu_s": 0} for r in alone] == [r | {"cpu_s": 0} for r in beside]


def test_only_the_first_jobs_may_be_asked_for(philly: Path, capsys: Captured) -> None:
    assert results(capsys, str(philly), "--cluster", "1x2:v100", "--limit", "2")[0]["jobs"] == 2


GAVEL = "ResNet-18\tpython a.py\t--n\t0\t{steps}\t{at}\t{devices}\n"
RATES = {
    "v100": {"('ResNet-18', 1)": {"null": 10.0}, "('ResNet-18', 2)": {"null": 16.0}},
    "k80": {"('ResNet-18', 1)": {"null": 1.0}},
}


@pytest.fixture
def gavel(tmp_path: Path) -> Path:
    """A trace whose table lies one folder up."""
    (tmp_path / "simulation_throughputs.json").write_text(json.dumps(RATES))
    path = tmp_path / "traces" / "a.trace"
    path.parent.mkdir()
    path.write_text(
        GAVEL.format(steps=1000, at=0, devices=1)
        + GAVEL.format(steps=1600, at=0, devices=2)
        + GAVEL.format(steps=100, at=0, devices=1)
    )
    return path


def test_a_gavel_trace_runs_at_the_rates_of_the_table_beside_it(gavel: Path, capsys: Captured) -> None:
    (result,) = results(capsys, str(gavel), "--cluster", "3x1:v100,1x1:k80")
    assert result["finished"] == 3
    assert result["makespan"] == pytest.approx(100)  # 1000 steps at 10/s; 1600 at 16/s; 100 on the k80 at 1/s
    assert result["avg_jct"] == pytest.approx(100)


def test_a_table_may_be_named(gavel: Path, tmp_path: Path, capsys: Captured) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"v100": {"('ResNet-18', 1)": {"null": 100.0}}}))
    (result,) = results(capsys, str(gavel), "--cluster", "4x1:v100", "--throughputs", str(other))
    assert result["makespan"] == pytest.approx(10)


def test_what_can_never_run_is_left_out_and_counted(philly: Path, capsys: Captured) -> None:
    (result,) = results(capsys, str(philly), "--cluster", "1x1:v100")
    assert (result["jobs"], result["rejected"]) == (1, 2)
    assert invoke(["simulate", str(philly), "--cluster", "1x1:v100", "--strict"]) == 1
    err = capsys.readouterr().err
    assert "2 jobs can never run" in err
    assert "a gang of 2 devices can never be placed" in err


def test_rows_that_cannot_be_read_are_told_with_line_and_column(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(PHILLY + "2017-10-03 00:00:30,-5,1,0,vc0\n")
    assert invoke(["simulate", str(path), "--cluster", "1x2:v100", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["results"][0]["skipped"] == 1
    assert f"{path}:5: duration" in err
    assert invoke(["simulate", str(path), "--cluster", "1x2:v100", "--strict"]) == 1


def test_first_use_of_the_kernels_is_announced(
    philly: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from haibun import app

    monkeypatch.setattr(app, "_kernels_cached", lambda: False)
    assert invoke(["simulate", str(philly), "--cluster", "1x2:v100"]) == 0
    assert "once for this machine" in capsys.readouterr().err


CLUSTER = ["--cluster", "1x2:v100"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere.csv", *CLUSTER], "no trace at nowhere.csv"),
        (["{dir}", *CLUSTER], "is a directory"),
        (["{empty}", *CLUSTER], "is empty"),
        (["{truncated}", *CLUSTER], "cut short"),
        (["{binary}", *CLUSTER], "not text"),
        (["{headless}", *CLUSTER], "cannot tell"),
        (["{philly}", *CLUSTER, "--format", "phily"], "phily"),
        (["{philly}", *CLUSTER, "--format", "csv:submit=when"], "which column holds"),
        (["{philly}", "--cluster", "4y8"], "56x8:v100"),
        (["{philly}", "--cluster", "0x8:v100"], "0 nodes"),
        (["{philly}", "--cluster", "-1x8:v100"], "NODESxDEVICES:TYPE"),
        (["{philly}", "--cluster", "nowhere.yaml"], "nowhere.yaml"),
        (["{philly}", "--cluster", ""], "is empty"),
        (["{philly}", *CLUSTER, "--policy", "fifi"], "did you mean 'fifo'"),
        (["{philly}", *CLUSTER, "--policy", "tiresias", "--set", "tiresias.queue=1"], "queue_limits"),
        (["{philly}", *CLUSTER, "--policy", "tiresias", "--set", "tiresias.queue_limits=-1"], "queue_limits"),
        (
            ["{philly}", *CLUSTER, "--policy", "tiresias", "--set", "tiresias.promote_knob=x"],
            "must be a number",
        ),
        (["{philly}", *CLUSTER, "--set", "srtf.x=1"], "no policy in use"),
        (["{philly}", *CLUSTER, "--set", "x"], "POLICY.param=value"),
        (["{philly}", *CLUSTER, "--costs", "strt=1"], "did you mean 'start'"),
        (["{philly}", *CLUSTER, "--costs", "start=-1"], "negative"),
        (["{philly}", *CLUSTER, "--costs", "start=soon"], "start"),
        (["{philly}", *CLUSTER, "--costs", "nowhere.yaml"], "nowhere.yaml"),
        (["{philly}", *CLUSTER, "--throughputs", "nowhere.json"], "nowhere.json"),
        (["{philly}", *CLUSTER, "--throughputs", "{empty}"], "JSON"),
        (["{gavel}", "--cluster", "1x2:h100"], "knows no throughput of h100"),
        (["{lonely}", *CLUSTER], "--throughputs"),
        (["generate:jobs=0", *CLUSTER], "1 or more"),
        (["generate:job=1", *CLUSTER], "did you mean 'jobs'"),
        (["generate:jobs=many", *CLUSTER], "whole number"),
        (["generate:jobs=5,load=-1", *CLUSTER], "load"),
        (["generate:jobs=5,tail_share=2", *CLUSTER], "tail_share"),
        (["{philly}", *CLUSTER, "--jobs", "{dir}/nowhere/jobs.csv"], "folder does not exist"),
        (["{philly}", *CLUSTER, "--report", "{dir}"], "is a folder"),
        (["{philly}", *CLUSTER, "--jobs", "/proc/jobs.csv"], "cannot be written"),
    ],
)
def test_bad_input_is_told_in_words_and_nothing_is_written(
    args: list[str], said: str, philly: Path, gavel: Path, tmp_path: Path, capsys: Captured
) -> None:
    lonely = tmp_path / "far" / "away" / "b.trace"
    lonely.parent.mkdir(parents=True)
    lonely.write_bytes(gavel.read_bytes())
    files = {
        "empty": b"",
        "binary": b"a\0b",
        "headless": b"1,2\n3,4\n",
        "truncated": gzip.compress(b"x" * 9, mtime=0)[:-9],
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    places = {name: tmp_path / name for name in files}
    places |= {"dir": tmp_path, "philly": philly, "gavel": gavel, "lonely": lonely}
    words = [arg.format(**places) for arg in args]
    before = sorted(tmp_path.rglob("*"))
    outputs = [] if "--jobs" in args else ["--jobs", str(tmp_path / "out.csv")]
    assert invoke(["simulate", *words, *outputs]) == 1
    out, err = capsys.readouterr()
    assert said in err
    assert "Traceback" not in err
    assert out == ""
    assert invoke(["simulate", *words, *outputs, "--json"]) == 1
    assert "error" in json.loads(capsys.readouterr().err)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_leaves_what_was_there(
    philly: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from haibun.cli import simulate

    out = tmp_path / "jobs.csv"
    out.write_text("old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("haibun.simulate.write_jobs", full)
    assert simulate is not None
    assert invoke(["simulate", str(philly), *CLUSTER, "--jobs", str(out)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["jobs.csv", "philly.csv"]


@pytest.mark.data
def test_real_traces_are_replayed(data_dir: Path, capsys: Captured) -> None:
    philly = data_dir / "jobs" / "philly" / "philly_jobs.csv"
    (result,) = results(capsys, str(philly), "--cluster", "56x8:v100", "--limit", "500")
    assert (result["finished"], result["rejected"]) == (500, 0)
    gavel = data_dir / "jobs" / "gavel" / "msr-seed0" / "0e4a51.trace"
    cluster = "8x1:v100,16x1:p100,24x1:k80"
    for result in results(
        capsys, str(gavel), "--cluster", cluster, "--policy", "fifo,srtf,tiresias", "--limit", "200"
    ):
        assert result["finished"] == result["jobs"] == 200 - result["rejected"]
