"""Files in Gavel's form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from haibun.profile import ThroughputFileError, find_beside, read_throughputs
from haibun.trace import read

KEY = "('ResNet-18 (batch size 16)', 2)"


def test_sections_become_device_types_and_consolidation(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    alone = {KEY: {"null": 9.0, "('LM', 2)": [1.0, 2.0]}}
    path.write_text(json.dumps({"v100": alone, "v100_unconsolidated": {KEY: {"null": 4}}}))
    table = read_throughputs(path)
    assert table.rate("ResNet-18 (batch size 16)", "v100", 2) == 9.0
    assert table.rate("ResNet-18 (batch size 16)", "v100", 2, consolidated=False) == 4.0
    assert len(table) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", r"t\.json:1:1: not JSON"),
        ('{"v100": {\n  "x": }}', r"t\.json:2:8: not JSON"),
        ("[]", "must be an object of device types"),
        ("{}", "must be an object of device types"),
        ('{"v100": {}}', "holds no job types"),
        ('{"v100": 3}', "'v100' must be an object"),
        ('{"v100": {"ResNet": {"null": 1}}}', "v100 > ResNet: the key must be"),
        ('{"v100": {"(\'a\', true)": {"null": 1}}}', "the key must be"),
        ('{"v100": {"(\'a\', 0)": {"null": 1}}}', "devices is 0"),
        ('{"v100": {"(\'a\', 1)": {}}}', "steps/s of the job alone"),
        ('{"v100": {"(\'a\', 1)": {"null": "fast"}}}', "steps/s of the job alone"),
        ('{"v100": {"(\'a\', 1)": {"null": -1}}}', "must be finite, and 0 or more"),
        ('{"v100": {"(\'a\', 1)": {"null": NaN}}}', "must be finite, and 0 or more"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content)
    with pytest.raises(ThroughputFileError, match=words):
        read_throughputs(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ThroughputFileError, match="no throughput file at"):
        read_throughputs(tmp_path / "t.json")
    with pytest.raises(ThroughputFileError, match="cannot read"):
        read_throughputs(tmp_path)


def test_the_table_of_a_trace_lies_beside_it_or_one_folder_up(tmp_path: Path) -> None:
    trace = tmp_path / "traces" / "a.trace"
    trace.parent.mkdir()
    assert find_beside(trace) is None
    up_physical = tmp_path / "physical_cluster_throughputs.json"
    up_physical.write_text("{}")
    assert find_beside(trace) == up_physical.resolve()
    up = tmp_path / "simulation_throughputs.json"
    up.write_text("{}")
    assert find_beside(trace) == up.resolve()
    beside = trace.parent / "physical_cluster_throughputs.json"
    beside.write_text("{}")
    assert find_beside(trace) == beside.resolve()


@pytest.mark.data
def test_gavels_own_table_is_found_and_read(data_dir: Path) -> None:
    trace = data_dir / "jobs/gavel/physical_cluster/max_min_fairness.trace"
    path = find_beside(trace)
    assert path is not None
    assert path.name == "simulation_throughputs.json"
    table = read_throughputs(path)
    assert set(table.device_types) == {"k80", "p100", "v100"}
    assert len(table.models) == 26
    assert table.rate("ResNet-18 (batch size 16)", "v100", 1) == pytest.approx(32.353384328946916)
    assert table.rate("ResNet-50 (batch size 128)", "k80", 4) == 0.0


@pytest.mark.data
def test_55_of_the_first_300_jobs_of_e13805_have_no_entry_and_all_get_a_rate_by_the_rule(
    data_dir: Path,
) -> None:
    path = data_dir / "jobs/gavel/msr-seed0/e13805.trace"
    trace = read(path).select(limit=300)
    names = [trace.models[m] for m in trace.model]
    beside = find_beside(path)
    assert beside is not None
    strict, scaled = read_throughputs(beside, "nan"), read_throughputs(beside, "scale")
    found = strict.rates(strict.model_codes(names), strict.type_code("v100"), trace.devices)
    assert int(np.isnan(found).sum()) == 55
    assert not np.isnan(
        scaled.rates(scaled.model_codes(names), scaled.type_code("v100"), trace.devices)
    ).any()
