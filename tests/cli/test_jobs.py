"""Commands about jobs and nodes, against a real server over a fake controller."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from fake_controller import FULL_DISK, NOW, job_view
from live_server import Live

from haibun.cli.main import invoke
from haibun.run.views import ExplanationView

Captured = pytest.CaptureFixture[str]


def told(capsys: Captured, *args: str, code: int = 0) -> Any:
    """What ``--json`` prints on stdout; the exit code must be as wanted."""
    assert invoke([*args, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_job_is_run_with_its_log_its_states_and_its_exit_code(live: Live, capsys: Captured) -> None:
    def goes_on() -> None:
        live.controller.write("1", 1, 0, "step 1\n")
        live.controller.change("1", state="running", attempts=1, on=("n1/0",))
        live.controller.change("1", state="failed", exit="attempt 1 failed: rank 0 exited with code 42: oops")

    live.when_followed(goes_on, listeners=2)
    options = ["--devices", "2", "--name", "train", "--env", "A=b=c", "--memory", "4GiB", "--walltime", "2h"]
    assert invoke(["run", *options, "--", "python", "train.py", "--json"]) == 42
    out, err = capsys.readouterr()
    assert out == "step 1\n"
    assert "job 1 has failed: attempt 1 failed: rank 0 exited with code 42: oops" in err
    spec = live.controller.specs["1"]
    assert spec.run == ["python", "train.py", "--json"]
    assert (spec.resources.devices, spec.resources.memory) == (2, 4 << 30)
    assert (spec.name, spec.env, spec.walltime) == ("train", {"A": "b=c"}, 7200.0)


def test_a_run_under_json_prints_the_job_alone(live: Live, capsys: Captured) -> None:
    live.when_followed(lambda: live.controller.change("1", state="succeeded"), listeners=2)
    assert invoke(["run", "--json", "x"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "succeeded"


def test_words_after_the_command_are_its_own_without_a_separator(live: Live, capsys: Captured) -> None:
    assert invoke(["run", "-d", "python", "train.py", "--name", "x"]) == 0
    assert capsys.readouterr().out == "1\n"
    assert live.controller.specs["1"].run == ["python", "train.py", "--name", "x"]
    assert live.controller.specs["1"].name == ""


def test_files_are_submitted_whole_or_not_at_all(live: Live, tmp_path: Path, capsys: Captured) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("name: a\nrun: x\narray: 0-1\n")
    bad.write_text("name: b\nrun: x\nresources: {devices: -1}\n")
    assert invoke(["submit", str(good), str(bad)]) == 1
    error = capsys.readouterr().err
    assert f"{bad}:3:" in error
    assert "resources.devices" in error
    assert live.controller.table == {}
    assert told(capsys, "submit", str(good)) == {"ids": ["1", "2"]}


def test_jobs_are_listed_active_ones_first_of_all(live: Live, capsys: Captured) -> None:
    table = live.controller.table
    table["1"] = job_view("1", "old", state="succeeded")
    table["2"] = job_view("2", "train", state="running", nodes=("n1",), step=50.0, total=100.0, rate=2.5)
    assert invoke(["ls"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["ID", "NAME", "TENANT"]
    assert row.split()[:2] == ["2", "train"]
    assert "50/100 at 2.5/s" in row
    assert [job["id"] for job in told(capsys, "ls", "--all")] == ["1", "2"]
    assert [job["id"] for job in told(capsys, "ls", "--state", "succeeded")] == ["1"]
    assert told(capsys, "ls", "--name", "nobody") == []


def test_a_job_is_shown_and_explained(live: Live, capsys: Captured) -> None:
    live.controller.table["1"] = job_view("1", "train", attempts=1, why="not enough devices are free")
    assert invoke(["show", "train"]) == 0
    out = capsys.readouterr().out
    assert "queued: not enough devices are free" in out
    assert "n1/0" in out
    assert told(capsys, "show", "1")["attempts"][0]["epoch"] == 1
    assert invoke(["explain", "1"]) == 0
    assert "2 jobs are ranked ahead of it: 7, 8" in capsys.readouterr().out
    assert told(capsys, "explain", "1")["rank"] == 2


def test_of_a_job_that_ended_is_said_how_and_when_once(
    live: Live, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from haibun.client import Client

    ends = {"succeeded": "ended: succeeded", "failed": "rank 0 exited with code 1", "cancelled": "cancelled"}
    says = {"succeeded": "succeeded", "failed": "failed", "cancelled": "was cancelled"}
    for state, why in ends.items():
        view = ExplanationView("1", state, time.time() - 90.0, (why,), (), None, (), "fifo")
        monkeypatch.setattr(Client, "explain", lambda *_, view=view: view)
        assert invoke(["explain", "1"]) == 0
        first, *rest = capsys.readouterr().out.splitlines()
        assert first.startswith(f"job 1 {says[state]} 1 min 3")
        assert first.endswith(" s ago")
        assert rest == ([f"- {why}"] if state == "failed" else [])


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_terminal_cuts_neither_ids_nor_states(
    live: Live, capsys: Captured, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("haibun.cli.output.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    why = "needs 8 devices of type h100, and 3 are free: behind train-the-largest"
    more: dict[str, Any] = {"step": 12_345.0, "total": 1_000_000.0, "device_type": "h100", "tenant": "vision"}
    for job, state in (("10001", "recovering"), ("10002", "succeeded"), ("10003", "cancelled")):
        live.controller.table[job] = job_view(job, "train-the-large-one", state=state, why=why, **more)
    assert invoke(["ls", "-a"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[0] == "ID"
    assert "STATE" in header
    assert ("TENANT" in header, "PRIO" in header) == (False, False)
    assert max(map(len, [header, *rows])) <= width
    for row, (job, state) in zip(
        rows, [("10001", "recovering"), ("10002", "succeeded"), ("10003", "cancelled")], strict=True
    ):
        assert row.split()[0] == job
        assert state in row.split()
    assert ("train-the-" in rows[0]) == (width > 40)
    monkeypatch.setenv("COLUMNS", "200")
    assert invoke(["ls", "-a"]) == 0
    out = capsys.readouterr().out
    assert why in out
    assert "TENANT" in out


def test_a_job_is_as_old_in_top_as_in_ls(live: Live) -> None:
    from haibun.client import Client
    from haibun.client.look import view_of

    live.controller.table["1"] = job_view("1", state="succeeded", ended=NOW + 5.0, why="ended: succeeded")
    with Client() as client:
        overview = client.top()
    (job,) = view_of(overview).jobs
    assert job.since == overview.now - overview.jobs[0].submitted
    assert job.why == ""


def test_logs_are_printed_with_ranks_where_there_are_several(live: Live, capsys: Captured) -> None:
    live.controller.table["1"] = job_view("1", state="failed")
    live.controller.write("1", 1, 0, "a\n")
    live.controller.write("1", 1, 1, "b\n")
    assert invoke(["logs", "1", "--rank", "1"]) == 0
    assert capsys.readouterr().out == "b\n"
    assert invoke(["logs", "1"]) == 0
    assert "[1] b" in capsys.readouterr().out
    assert told(capsys, "logs", "1", "--tail", "1")[0] == {"epoch": 1, "rank": 0, "text": "a"}
    assert invoke(["logs", "1", "-f", "--json"]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == ["a", "b"]


def test_verbs_take_several_jobs(live: Live, capsys: Captured) -> None:
    for i in "12":
        live.controller.table[i] = job_view(i, state="running")
    assert told(capsys, "pause", "1", "2", "--hold") == {"jobs": ["1", "2"]}
    assert told(capsys, "resume", "1") == {"jobs": ["1"]}
    assert told(capsys, "priority", "1", "-5") == {"jobs": ["1"]}
    assert told(capsys, "cancel", "1", "9", code=1) == {"jobs": ["1"]}
    assert live.controller.calls == [
        ("pause", "1", True),
        ("pause", "2", True),
        ("resume", "1"),
        ("priority", "1", -5),
        ("cancel", "1"),
    ]


def test_waiting_exits_with_success_only_if_all_succeeded(live: Live, capsys: Captured) -> None:
    live.controller.table["1"] = job_view("1", state="succeeded")
    live.controller.table["2"] = job_view("2", state="failed", exit="it broke")
    live.controller.table["3"] = job_view("3", state="running")
    assert invoke(["wait", "1"]) == 0
    assert invoke(["wait", "1", "2"]) == 1
    assert "job 2: failed: it broke" in capsys.readouterr().out
    assert invoke(["wait", "3", "--timeout", "0"]) == 1
    assert "still running" in capsys.readouterr().err


def test_a_shell_says_that_its_job_has_ended(
    live: Live, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("haibun.cli.shell._socket", lambda *_: tmp_path / "agent.sock")
    monkeypatch.setattr("haibun.run.shell.attach", lambda path, ask: 0)
    assert invoke(["run", "-d", "--workdir", str(tmp_path), "x"]) == 0
    live.controller.table["1"] = job_view("1", state="succeeded")
    capsys.readouterr()
    assert invoke(["shell", "1"]) == 0
    said = capsys.readouterr().err
    assert "job 1 has ended (succeeded): this is a plain shell in its folder" in said
    live.controller.table["1"] = job_view("1", state="running", nodes=("n1",))
    assert invoke(["shell", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_nodes_are_listed_drained_and_put_back(live: Live, capsys: Captured) -> None:
    assert [node["name"] for node in told(capsys, "nodes")] == ["n1", "n2"]
    assert invoke(["nodes"]) == 0
    assert "lost" in capsys.readouterr().out
    told(capsys, "drain", "n1", "--keep")
    told(capsys, "undrain", "n1")
    assert live.controller.calls == [("drain", "n1", False), ("undrain", "n1")]


def test_top_shows_devices_and_jobs(live: Live, capsys: Captured) -> None:
    live.controller.table["1"] = job_view("1", "train", state="running", on=("n1/0",))
    assert invoke(["top", "--once"]) == 0
    out = capsys.readouterr().out
    assert "train" in out
    assert "1/4 devices held" in out
    assert told(capsys, "top")["policy"] == "fifo"


def test_the_server_is_ended_with_its_jobs_kept(
    live: Live, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from haibun.cli import server

    monkeypatch.setattr(server, "_answers", lambda url: False)
    assert told(capsys, "down", "--keep-jobs")["kept_jobs"] is True
    assert live.asked == [True]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", "--devices", "0", "--", "x"], "resources.devices"),
        (["run", "--devices", "100", "--", "x"], "never be placed"),
        (["run", "--memory", "4 parsecs", "--", "x"], "resources.memory"),
        (["run", "--walltime", "-1", "--", "x"], "walltime"),
        (["run", "--env", "RANK=1", "--", "x"], "RANK"),
        (["run", "--locality", "moon", "--", "x"], "locality"),
        (["submit", "/nowhere.yaml"], "no job file at /nowhere.yaml"),
        (["show", "trian"], "did you mean 'train'"),
        (["cancel", "99"], "no job '99'"),
        (["ls", "--state", "runing"], "did you mean 'running'"),
        (["drain", "n3"], "no node 'n3'"),
        (["explain", ""], "empty"),
    ],
)
def test_what_cannot_be_is_told_in_words(live: Live, capsys: Captured, args: list[str], said: str) -> None:
    live.controller.table["1"] = job_view("1", "train")
    at = args.index("--") if "--" in args else len(args)
    assert invoke(args) == 1
    out, err = capsys.readouterr()
    assert said in err
    assert "Traceback" not in err
    assert out == ""
    assert invoke([*args[:at], "--json", *args[at:]]) == 1
    out, err = capsys.readouterr()
    assert said in json.dumps(json.loads(err)["error"], ensure_ascii=False)
    assert out == ""
    assert list(live.controller.table) == ["1"]


def test_a_full_disk_is_told(live: Live, capsys: Captured) -> None:
    live.controller.broken = FULL_DISK
    assert invoke(["run", "x"]) == 1
    assert "no space left" in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["d", "c", ""])
def test_ctrl_c_asks_whether_to_leave_or_to_cancel(
    live: Live, capsys: Captured, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    from haibun.cli import run as module
    from haibun.client import Client

    live.controller.table["1"] = job_view("1", state="running")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    with Client() as client:
        assert module._leave(client, "1") is (answer == "d")
    assert [call[0] for call in live.controller.calls] == (["cancel"] if answer == "c" else [])
