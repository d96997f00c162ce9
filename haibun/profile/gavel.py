"""Throughputs in Gavel's JSON form (OSDI'20; scheduler/simulation_throughputs.json), also used by Shockwave.

    {"v100": {"('ResNet-18 (batch size 16)', 2)": {"null": 100.1, "('LM (batch size 5)', 2)": [..], ...},
    ...},
     "v100_unconsolidated": {...}, ...}

A key is (job type, number of devices). ``null`` holds the steps/s of the job alone; the pairs beside it,
throughputs of two jobs that share devices, are not read here.
"""

from __future__ import annotations

import ast
import json
import math
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from haibun.profile.throughput import Missing, ThroughputTable

NAMES = ("simulation_throughputs.json", "physical_cluster_throughputs.json")  # the first is preferred
UNCONSOLIDATED = "_unconsolidated"
ALONE = "null"


class ThroughputFileError(ValueError):
    """A throughput file that cannot be used; the text says where and why."""


def find_beside(trace: str | PathLike[str]) -> Path | None:
    """The throughput file of a Gavel trace: in its folder, else one folder up; None if there is none."""
    folder = Path(fspath(trace)).resolve().parent
    places = (place / name for place in (folder, folder.parent) for name in NAMES)
    return next((p for p in places if p.is_file()), None)


def read_throughputs(
    path: str | PathLike[str],
    missing: Missing = "scale",
    scaling: float = 1.0,
    unmodelled: float = math.nan,
) -> ThroughputTable:
    """Read a file in Gavel's form. The parameters are those of `ThroughputTable`.

    Raises:
        ThroughputFileError: no such file, no JSON (with line and column), or an entry of another form (with
        its path).
    """
    where = Path(fspath(path))
    content = _load(where)
    if not isinstance(content, dict) or not content:
        raise ThroughputFileError(f'{where}: must be an object of device types, such as {{"v100": {{...}}}}')
    table = ThroughputTable(missing, scaling, unmodelled=unmodelled)
    for section, jobs in content.items():
        if not isinstance(jobs, dict):
            raise ThroughputFileError(f"{where}: {section!r} must be an object of job types")
        device_type = section.removesuffix(UNCONSOLIDATED)
        consolidated = device_type == section
        for key, rates in jobs.items():
            at = f"{where}: {section} > {key}"
            model, devices = _key(at, key)
            try:
                table.set(model, device_type, devices, _alone(at, rates), consolidated)
            except ValueError as e:
                raise ThroughputFileError(f"{at}: {e}") from None
    if not len(table):
        raise ThroughputFileError(f"{where}: holds no job types")
    return table


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ThroughputFileError(f"no throughput file at {path}") from None
    except OSError as e:
        raise ThroughputFileError(f"cannot read {path}: {e.strerror or e}") from None
    except json.JSONDecodeError as e:
        raise ThroughputFileError(f"{path}:{e.lineno}:{e.colno}: not JSON: {e.msg}") from None
    except (UnicodeDecodeError, RecursionError) as e:
        raise ThroughputFileError(f"{path}: not JSON: {e}") from None


def _key(at: str, key: str) -> tuple[str, int]:
    try:
        match ast.literal_eval(key):
            case (str(model), int(devices)) if not isinstance(devices, bool):
                return model, devices
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    raise ThroughputFileError(f"{at}: the key must be of the form \"('JOB TYPE', DEVICES)\"")


def _alone(at: str, rates: object) -> float:
    rate = rates.get(ALONE) if isinstance(rates, dict) else None
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise ThroughputFileError(f'{at}: must hold "{ALONE}", the steps/s of the job alone, as a number')
    return float(rate)
