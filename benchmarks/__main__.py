"""``python -m benchmarks [NAME...]``: all benchmarks, or some, each as a process of its own; then one table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import REPOSITORY, table

HERE = Path(__file__).resolve().parent
NO_CLAIMS = {"__init__", "__main__", "harness"}
PATIENCE = 1200.0  # seconds for one benchmark


def names() -> list[str]:
    """All benchmarks: the scripts here whose names do not begin with ``_``."""
    return sorted(p.stem for p in HERE.glob("*.py") if p.stem not in NO_CLAIMS and not p.stem.startswith("_"))


def run(name: str) -> dict[str, Any]:
    """Run one, passing on what it prints; returns its JSON line, or what came instead."""
    print(f"== {name}", flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    lines: list[str] = []
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
            lines.append(line)
        child.wait(PATIENCE)
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        found = None
    return found if isinstance(found, dict) else {"claim": name, "failed": f"exit code {child.returncode}"}


def row(name: str, result: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """A result as a row of the table at the end."""
    figure = result.get("figure")
    unit = result.get("unit", "")
    told = "-" if figure is None else f"{figure:.4g} {unit}".rstrip()
    if "skipped" in result:
        verdict = f"skipped: {result['skipped']}"
    elif "failed" in result:
        verdict = f"failed: {str(result['failed'])[:60]}"
    else:
        verdict = "yes" if result.get("holds") else "NO"
    return name, str(result.get("claim", "")), told, str(result.get("target", "")), verdict


def main() -> None:
    """Run those that are named, or all. Exit code 1 where one could not be measured."""
    known = names()
    chosen = sys.argv[1:] or known
    unknown = [name for name in chosen if name not in known]
    if unknown:
        sys.exit(f"there is no benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
    results = [(name, run(name)) for name in chosen]
    rows = [("benchmark", "claim", "figure", "target", "holds"), *(row(n, r) for n, r in results)]
    print(f"\n{table(rows)}")
    sys.exit(any("failed" in r for _, r in results))


if __name__ == "__main__":
    main()
