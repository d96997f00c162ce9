"""Any CSV by a mapping of its columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from haibun.trace import TraceError, read

MURI = "job_id,num_gpu,submit_time,iterations,model_name,duration,priority\n"
MAPPING = (
    "csv:id=job_id,devices=num_gpu,submit=submit_time,steps=iterations,"
    "model=model_name,duration=duration,priority=priority,time_unit=ms"
)


def write(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_text(text)
    return path


def test_milliseconds_become_seconds(tmp_path: Path) -> None:
    trace = read(write(tmp_path, MURI + "7,16,5000,438,vgg16,1453500,0\n9,1,9500,10,bert,2000,3\n"), MAPPING)
    assert trace.ids == ["7", "9"]
    assert trace.submit.tolist() == [0.0, 4.5]
    assert trace.duration.tolist() == [1453.5, 2.0]
    assert trace.priority.tolist() == [0, 3]
    assert trace.job(1).model == "bert"
    assert trace.format == MAPPING


def test_steps_or_duration_may_be_empty_but_not_both(tmp_path: Path) -> None:
    text = MURI + "1,1,0,,vgg16,4000,0\n2,1,0,90,vgg16,,0\n3,1,0,,vgg16,,0\n"
    trace = read(write(tmp_path, text), MAPPING)
    assert trace.ids == ["1", "2"]
    assert (trace.job(0).total_steps, trace.job(0).model) == (4.0, None)
    assert (trace.job(1).total_steps, trace.job(1).model) == (90.0, "vgg16")
    assert "how long is this job" in trace.problems[0].reason


def test_dates_with_and_without_zones_are_one_clock(tmp_path: Path) -> None:
    path = write(tmp_path, "t,d,n\n2024-01-01T00:00:00,1,1\n2024-01-01T09:00:30+09:00,1,1\n")
    assert read(path, "csv:submit=t,duration=d,devices=n,time_unit=iso").submit.tolist() == [0.0, 30.0]


def test_an_id_used_twice_is_told_with_the_line_of_the_first(tmp_path: Path) -> None:
    path = write(tmp_path, "i,t,d,n\na,0,1,1\na,1,1,1\n,2,1,1\n")
    trace = read(path, "csv:id=i,submit=t,duration=d,devices=n")
    assert [p.reason for p in trace.problems] == [
        "was used before, on line 2",
        "is empty: each job needs an id",
    ]


def test_a_job_without_a_tenant_falls_to_the_default_one(tmp_path: Path) -> None:
    trace = read(
        write(tmp_path, "t,d,n,who\n0,1,1,a\n1,1,1,\n"), "csv:submit=t,duration=d,devices=n,tenant=who"
    )
    assert [trace.job(i).tenant for i in range(2)] == ["a", "default"]


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ("csv:", "which column holds 'submit'"),
        ("csv:submit=t,devices=n", "'duration' or 'steps'"),
        ("csv:submit=t,duration=d", "which column holds 'devices'"),
        ("csv:submit=t,duration=d,devices=n,tennant=x", "did you mean 'tenant'"),
        ("csv:submit=t,submit=d,devices=n", "given twice"),
        ("csv:submit=t,duration,devices=n", "is not ROLE=COLUMN"),
        ("csv:submit=t,duration=d,devices=n,time_unit=hours", "must be s, ms or iso"),
        ("csv:submit=t,duration=d,devices=gpus", "no column 'gpus'"),
        ("csv:submit=t,duration=d,devices=dup", "names column 'dup' twice"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(tmp_path: Path, mapping: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read(write(tmp_path, "t,d,n,dup,dup\n0,1,1,1,1\n"), mapping)
