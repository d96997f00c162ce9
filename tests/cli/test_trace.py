"""``haibun trace`` and ``haibun generate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from haibun.cli.main import invoke

Captured = pytest.CaptureFixture[str]


def test_a_generated_trace_is_written_read_and_replayed(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "t.csv"
    args = ["generate", "--jobs", "40", "--devices", "8", "--load", "0.5", "--seed", "3", "-o", str(out)]
    assert invoke([*args, "--json"]) == 0
    drawn = json.loads(capsys.readouterr().out)
    assert invoke(["trace", str(out), "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert (read["jobs"], read["format"], read["skipped"]) == (40, "philly", 0)
    assert read["duration"] == drawn["duration"]
    assert read["devices"] == drawn["devices"]
    assert invoke(["simulate", str(out), "--cluster", "1x8:v100"]) == 0


def test_a_trace_is_summed_up_for_people_with_what_cannot_be_read(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-03 00:00:00,60,2,0,a\nx,60,2,0,a\n"
    )
    assert invoke(["trace", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "2 devices" in out
    assert f"{path}:3: timestamp" in err
    assert invoke(["trace", str(path), "--strict"]) == 1


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["generate", "-o", "/nowhere/x.csv"], 1),
        (["generate", "-o", "{out}", "--load", "-1"], 1),
        (["generate", "-o", "{out}", "--arrivals", "sometimes"], 1),
        (["generate", "-o", "{out}", "--jobs", "0"], 2),
        (["generate"], 2),
        (["trace", "/nowhere.csv"], 1),
    ],
)
def test_what_cannot_be_is_told_and_nothing_is_written(
    tmp_path: Path, capsys: Captured, args: list[str], code: int
) -> None:
    assert invoke([a.format(out=tmp_path / "o.csv") for a in args]) == code
    out, err = capsys.readouterr()
    assert err.startswith("error: ")
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_trace_is_drawn_and_described_without_a_file(tmp_path: Path, capsys: Captured) -> None:
    assert invoke(["trace", "generate:jobs=50,load=0.9,seed=1", "--json"]) == 0
    drawn = json.loads(capsys.readouterr().out)
    out = str(tmp_path / "x.csv")
    assert invoke(["generate", "-o", out, "--jobs", "50", "--load", "0.9", "--seed", "1", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert drawn["jobs"] == 50
    assert (drawn["span"], drawn["devices"]) == (written["span"], written["devices"])
    assert invoke(["trace", "generate:job=50"]) == 1
    assert "has no parameter 'job'" in capsys.readouterr().err


def test_policies_are_listed_with_their_parameters(capsys: Captured) -> None:
    assert invoke(["policies", "--json"]) == 0
    found = {p["name"]: p for p in json.loads(capsys.readouterr().out)["policies"]}
    assert {"fifo", "srtf", "tiresias"} <= set(found)
    assert found["tiresias"]["params"]["promote_knob"] == 8.0
    assert invoke(["policies"]) == 0
    assert "--set tiresias.queue_limits=3600.0,36000.0" in capsys.readouterr().out


def test_versions_are_told(capsys: Captured) -> None:
    import haibun

    assert invoke(["version", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["haibun"], told["server"]) == (haibun.__version__, None)
    assert invoke(["--version"]) == 0
