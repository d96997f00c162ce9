"""The public traces as they are shipped: counts and totals that their sources state."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from haibun.trace import read

pytestmark = pytest.mark.data


def test_philly_has_the_jobs_and_the_load_that_its_source_states(data_dir: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    trace = read(data_dir / "jobs/philly/philly_jobs.csv", strict=True)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert len(trace) == 82_247
    assert len(trace.tenants) == 15
    busy = float((trace.duration * trace.devices).sum()) / trace.submit[-1]
    assert busy == pytest.approx(374.2, abs=0.1)
    assert trace.devices.max() == 128
    assert after.ru_utime - before.ru_utime < 1.5


def test_every_gavel_trace_reads_without_a_problem(data_dir: Path) -> None:
    counts = {p.stem: len(read(p, strict=True)) for p in sorted((data_dir / "jobs/gavel").glob("*/*.trace"))}
    assert len(counts) == 20
    assert (counts["max_min_fairness"], counts["minimize_makespan"], counts["e13805"]) == (96, 100, 607)


@pytest.mark.parametrize(
    ("name", "mapping", "jobs"),
    [
        (
            "muri/trace3.csv",
            "csv:id=job_id,submit=submit_time,duration=duration,devices=num_gpu,steps=iterations,"
            "model=model_name,time_unit=ms",
            992,
        ),
        (
            "itp/raw/cluster01.csv",
            "csv:id=job_id,submit=submission_time,duration=duration,devices=num_gpu",
            None,
        ),
        (
            "chronus/trace_job_Philly_SLO.csv.gz",
            "csv:submit=submit_time,duration=duration,devices=num_gpu,tenant=user",
            None,
        ),
    ],
)
def test_other_public_csvs_read_by_mapping(data_dir: Path, name: str, mapping: str, jobs: int | None) -> None:
    trace = read(data_dir / "jobs" / name, mapping)
    assert jobs in (None, len(trace))
    assert len(trace.problems) <= 0.01 * len(trace)
