"""How errors are told: in words, with an exit code, and never as a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from haibun.cli import about, main
from haibun.cli.main import COMMANDS, invoke

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["lss"], "did you mean 'ls'"),
        (["frobnicate"], "haibun --help"),
        (["ls", "--limit", "0"], "--limit"),
        (["ls", "--limit", "many"], "--limit"),
        (["ls", "--nope"], "--nope"),
        (["show"], "JOB"),
        (["simulate", "x.csv"], "--cluster"),
        (["run"], "COMMAND"),
        (["run", "--env", "novalue", "--", "x"], "NAME=VALUE"),
        (["priority", "1", "high"], "N"),
        (["up", "--port", "70000"], "--port"),
        (["up", "--json"], "--detach"),
        (["run", "--cpus", "nan", "--", "true"], "'nan' is not a finite number"),
        (["run", "--total-steps", "1e999", "--", "true"], "--total-steps"),
        (["top", "--every", "inf"], "--every"),
        (["wait", "1", "--timeout", "nan"], "--timeout"),
        (["run", "-d", "--", "\udcff\udcfe"], r"'\xff\xfe' on the command line is not UTF-8"),
        (["run", "--name", "\udcff", "--", "true"], r"'\xff'"),
    ],
)
def test_wrong_usage_exits_with_2(capsys: Captured, args: list[str], said: str) -> None:
    assert invoke(args) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""


def test_without_a_server_each_command_says_how_to_start_one(capsys: Captured) -> None:
    for args in (
        ["ls"],
        ["nodes"],
        ["top", "--once"],
        ["run", "x"],
        ["logs", "1"],
        ["cancel", "1"],
        ["down"],
    ):
        assert invoke(args) == 1, args
        assert "haibun up" in capsys.readouterr().err


def test_an_error_under_json_is_json_on_stderr(capsys: Captured) -> None:
    assert invoke(["ls", "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    error = json.loads(err)["error"]
    assert error["code"] == "not-running"
    assert "haibun up" in error["hint"]


def test_a_fault_of_ours_is_one_line_and_a_file(
    capsys: Captured, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(json: bool = False) -> None:
        """Broken."""
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(about, "version", broken)
    assert invoke(["version"]) == 70
    err = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: oops" in err
    assert "Traceback" not in err
    assert "Traceback" in (home / "errors.log").read_text()
    monkeypatch.setenv("HAIBUN_DEBUG", "1")
    invoke(["version"])
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_what_it_is_for_and_gives_an_example(capsys: Captured, name: str) -> None:
    assert invoke([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Example:" in out
    assert f"haibun {name}" in out
    assert invoke([name, "-h"]) == 0
    assert capsys.readouterr().out == out


def test_a_short_option_asks_for_help_but_not_that_of_the_users_command(capsys: Captured) -> None:
    assert invoke(["-h"]) == 0
    assert "Usage: haibun" in capsys.readouterr().out
    assert main.command("run").make_context("run", ["-d", "x", "-h"]).params["command"] == ["x", "-h"]


def test_the_page_of_commands_is_what_help_says() -> None:
    from haibun.cli.document import document

    page = Path(main.__file__).parent.parent.parent / "docs" / "commands.md"
    assert page.read_text() == document(), "run: python -m haibun.cli.document > docs/commands.md"


def test_each_command_can_print_json_but_the_shell() -> None:
    for name in COMMANDS:
        options = {opt for param in main.command(name).params for opt in param.opts}
        assert ("--json" in options) == (name != "shell"), name


def test_a_command_imports_no_more_than_it_needs() -> None:
    code = (
        "import sys; from haibun.cli.main import invoke; invoke(['ls']); "
        "bad = {'numpy', 'numba', 'fastapi', 'sqlalchemy', 'torch', 'haibun.spec'} & set(sys.modules); "
        "sys.exit(f'imports {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_goes_is_no_error(tmp_path: Path) -> None:
    code = "from haibun.cli.main import main; import sys; sys.argv = ['haibun', '--help']; main()"
    read, write = subprocess.PIPE, subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code], stdout=read, stderr=write, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(30) in (0, 1)
    assert process.stderr.read() == ""
