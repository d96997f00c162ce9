"""The demo itself, in its short form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

WITHIN = 240.0  # seconds, on a busy machine; some forty on an idle one


@pytest.mark.live
def test_the_demo_shows_what_it_claims_and_leaves_nothing(tmp_path: Path) -> None:
    home, report = tmp_path / "home", tmp_path / "report.html"
    command = [sys.executable, "-m", "haibun.cli.main", "demo", "--short", "--json"]
    command += ["--home", str(home), "--report", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert [check["claim"] for check in found["checks"] if not check["holds"]] == [], found
    assert done.returncode == 0
    assert "urgent" in report.read_text(encoding="utf-8")
    assert _users_of(home) == []


def _users_of(home: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    lines = (
        " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]) if p.pid != os.getpid()
    )
    return [line for line in lines if str(home) in line]
