"""``haibun up`` where it cannot come up: told in words, and nothing is left behind."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from haibun.cli.main import invoke

Captured = pytest.CaptureFixture[str]


def refused(capsys: Captured, *args: str) -> str:
    assert invoke(["up", "--nodes", "0", *args]) == 1
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert out == ""
    return err


def test_a_port_in_use_is_told(capsys: Captured, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port}" in refused(capsys, "--port", str(port))
    assert not (home / "server.json").exists()


def test_an_address_that_is_not_ours_is_told(capsys: Captured) -> None:
    err = refused(capsys, "--host", "203.0.113.1", "--port", "0")
    assert "203.0.113.1" in err
    assert "without encryption" in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--policy", "fifi"], "did you mean 'fifo'"),
        (["--policy", "tiresias", "--set", "tiresias.nope=1"], "queue_limits"),
        (["--set", "srtf.x=1"], "no policy in use"),
        (["--port", "0", "--db", "nonsense"], "nonsense"),
        (["--port", "0", "--db", "postgresql://nobody@127.0.0.1:1/x"], "127.0.0.1"),
    ],
)
def test_what_cannot_be_is_told(capsys: Captured, home: Path, args: list[str], said: str) -> None:
    assert said in refused(capsys, *args)
    assert not (home / "server.json").exists()


def test_a_home_that_cannot_be_made_is_told(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file/home" in refused(capsys, "--home", str(tmp_path / "file" / "home"))


def test_a_detached_server_that_cannot_come_up_says_why(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    words = ["up", "--nodes", "0", "--policy", "fifi", "--home", str(home), "--detach"]
    monkeypatch.setattr("sys.argv", ["haibun", *words])
    assert invoke(words) == 1
    err = capsys.readouterr().err
    assert "did you mean 'fifo'" in err
    assert str(home / "server.log") in err
