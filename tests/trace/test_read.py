"""Reading traces: the right numbers from good files, the right words about bad ones."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haibun.trace import Trace, TraceError, read

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
GOOD = "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
GAVEL_7 = "ResNet-18 (batch size 16)\tpython3 main.py\t--num_steps\t1\t1000\t12.5\t2\n"
GAVEL_10 = "A3C\tpython3 main.py\trl\t--max-steps\t0\t5000\t4\t2\t-1.000000\t3\n"


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_rows_come_in_order_of_submission_and_ties_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        PHILLY
        + "2017-10-09 07:00:10,5,1,5,b\n2017-10-09 07:00:00,6,2,12,a\n"
        + "2017-10-09 07:00:10,7,4,28,b\n\n",
    )
    trace = read(path)
    assert trace.format == "philly"
    assert trace.ids == ["job-1", "job-0", "job-2"]
    assert trace.submit.tolist() == [0.0, 10.0, 10.0]
    assert trace.devices.tolist() == [2, 1, 4]
    assert [trace.tenants[t] for t in trace.tenant] == ["a", "b", "b"]
    assert not trace.problems


def test_a_job_with_a_duration_runs_one_step_a_second(tmp_path: Path) -> None:
    job = read(write(tmp_path, PHILLY + GOOD)).job(0)
    assert (job.total_steps, job.model, job.tenant) == (66.0, None, "11cb48")
    assert [s.devices for s in job.shapes] == [1]


@pytest.mark.parametrize(
    ("line", "steps", "devices", "model", "weight"),
    [(GAVEL_7, 1000.0, 2, "ResNet-18 (batch size 16)", 1.0), (GAVEL_10, 5000.0, 4, "A3C", 2.0)],
    ids=["7 fields", "10 fields"],
)
def test_a_gavel_job_is_as_long_as_its_steps(
    tmp_path: Path, line: str, steps: float, devices: int, model: str, weight: float
) -> None:
    trace = read(write(tmp_path, line * 2, "t.trace"))
    job = trace.job(1)
    assert trace.format == "gavel"
    assert (job.total_steps, job.shapes[0].devices, job.model) == (steps, devices, model)
    assert np.isnan(trace.duration).all()
    assert trace.weight.tolist() == [weight, weight]


def test_gzip_reads_like_plain_text(tmp_path: Path) -> None:
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress((PHILLY + GOOD).encode(), mtime=0))
    assert same(read(packed), read(write(tmp_path, PHILLY + GOOD)))
    assert read(packed).name == "t"


BAD_ROWS = [
    ("not a date,66,1,66,x", "timestamp", "is not a date"),
    ("2017-13-09 07:01:55,66,1,66,x", "timestamp", "is not a date"),
    ("now,66,1,66,x", "timestamp", "is not a date"),
    (",66,1,66,x", "timestamp", "is not a date"),
    ("2017-10-09 07:01:55,-3,1,66,x", "duration", "greater than 0"),
    ("2017-10-09 07:01:55,0,1,66,x", "duration", "greater than 0"),
    ("2017-10-09 07:01:55,nan,1,66,x", "duration", "not a number"),
    ("2017-10-09 07:01:55,inf,1,66,x", "duration", "infinite"),
    ("2017-10-09 07:01:55,1e300,1,66,x", "duration", "right column and unit"),
    ("2017-10-09 07:01:55,,1,66,x", "duration", "is empty"),
    ("2017-10-09 07:01:55,66,0,66,x", "num_gpus", "greater than 0"),
    ("2017-10-09 07:01:55,66,1.5,66,x", "num_gpus", "whole number"),
    ("2017-10-09 07:01:55,66,two,66,x", "num_gpus", "not a number"),
    ("2017-10-09 07:01:55,66,99999999999,66,x", "num_gpus", "right column and unit"),
    ("2017-10-09 07:01:55,66", "", "has 2 fields where 5 are wanted; the file may be cut short"),
    ("2017-10-09 07:01:55,66,1,66,x,y", "", "has 6 fields where 5 are wanted"),
]


@pytest.mark.parametrize(("row", "column", "reason"), BAD_ROWS)
def test_a_bad_row_is_told_by_line_and_column_and_skipped(
    tmp_path: Path, row: str, column: str, reason: str
) -> None:
    path = write(tmp_path, PHILLY + GOOD + row + "\n")
    trace = read(path)
    assert len(trace) == 1
    [problem] = trace.problems
    assert (problem.file, problem.line, problem.column) == (str(path), 3, column)
    assert reason in problem.reason
    assert f"{path}:3:" in problem.render()
    with pytest.raises(TraceError, match=f"{path.name}:3:"):
        read(path, strict=True)


def test_strict_names_the_first_bad_row_of_the_file_whatever_its_column(tmp_path: Path) -> None:
    path = write(tmp_path, PHILLY + "2017-10-09 07:01:55,66,zero,66,x\nlater,66,1,66,x\n" + GOOD)
    with pytest.raises(TraceError, match=r":2: num_gpus"):
        read(path, strict=True)


def test_an_id_left_by_a_skipped_row_is_not_given_to_another(tmp_path: Path) -> None:
    trace = read(write(tmp_path, PHILLY + "cut\n" + "x,1,1,1,x\n" + GOOD))
    assert trace.ids == ["job-2"]
    assert [p.line for p in trace.problems] == [2, 3]


BAD_FILES = [
    (b"", "is empty"),
    (b"  \n\n", "is empty"),
    (PHILLY.encode(), "no jobs"),
    ((PHILLY + "x,1,1,1,x\ny,1,1,1,y\n").encode(), "no row of"),
    (b"\x7fELF\x02\x01\x01\0\0\0\0", "is not text"),
    (PHILLY.encode() + b"\xff\xfe\xfd\n", "not UTF-8 text: line 2"),
    (b"\x1f\x8b\x08\x00\x00junk", "gzip"),
    (b"\x1c", "is empty|is it a trace"),
    (gzip.compress((PHILLY + GOOD).encode(), mtime=0)[:-6], "cut short"),
    (b"when,how_long,gpus\n1,2,3\n", r"--format csv:submit=.*,devices=gpus"),
    (b"just some words\nand more\n", "is it a trace"),
    (b"a\tb\tc\n", "7 or 10 tab-separated fields; the first line has 3"),
    (("\t".join("abcdefghijkl") + "\n").encode(), "Shockwave"),
    (
        (PHILLY + '2017-10-09 07:01:55,66,1,66,"open\n').encode(),
        r"t\.csv:2: is not CSV: .*quotation mark left open",
    ),
]


@pytest.mark.parametrize(("content", "words"), BAD_FILES)
def test_a_file_that_is_no_trace_is_refused_with_the_reason(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=words):
        read(path)


def test_a_missing_file_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    write(tmp_path, PHILLY + GOOD, "philly_jobs.csv")
    with pytest.raises(TraceError, match=r"did you mean .*philly_jobs\.csv"):
        read(tmp_path / "philly_job.csv")
    with pytest.raises(TraceError, match="there is no folder"):
        read(tmp_path / "nowhere" / "t.csv")
    with pytest.raises(TraceError, match=r"is a directory: name a file in it; it holds philly_jobs\.csv"):
        read(tmp_path)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace format is called 'phily'"):
        read(write(tmp_path, PHILLY + GOOD), format="phily")


def test_a_wrong_header_names_the_missing_column(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no column 'num_gpus'; did you mean 'num_gpu'"):
        read(write(tmp_path, "timestamp,duration,num_gpu,gpu_time,cluster\n" + GOOD), format="philly")


def test_select_keeps_a_window_and_starts_its_clock_anew(tmp_path: Path) -> None:
    rows = "".join(
        f"2017-10-09 07:0{m}:00,5,{2**m},5,{'ab'[m % 2]}\n" for m in range(5)
    )  # a minute apart, doubling
    trace = read(write(tmp_path, PHILLY + rows))
    window = trace.select(start=60, end=240)
    assert window.ids == ["job-1", "job-2", "job-3"]
    assert window.submit.tolist() == [0.0, 60.0, 120.0]
    assert window.origin == trace.origin + 60
    assert trace.select(limit=2).ids == ["job-0", "job-1"]
    assert trace.select(tenant="a").ids == ["job-0", "job-2", "job-4"]
    assert trace.select(max_devices=4).ids == ["job-0", "job-1", "job-2"]
    assert len(trace.select(start=1e9)) == 0
    with pytest.raises(ValueError, match="no tenant 'c'"):
        trace.select(tenant="c")


def test_jobs_and_job_agree(tmp_path: Path) -> None:
    trace = read(write(tmp_path, GAVEL_7 + GAVEL_7.replace("12.5", "1.5"), "t.trace"))
    assert list(trace.jobs(device_type="v100")) == [trace.job(i, device_type="v100") for i in range(2)]


@given(st.binary(max_size=200))
def test_no_bytes_end_in_anything_but_a_trace_or_a_trace_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(content)
    with contextlib.suppress(TraceError):
        read(path)


@given(
    st.text(alphabet='0123456789,-:. \n\t"abnif+e', max_size=200),
    st.sampled_from([PHILLY, GAVEL_7, GAVEL_10]),
)
def test_damage_after_a_good_start_ends_in_a_trace_or_a_trace_error(
    tmp_path_factory: pytest.TempPathFactory, junk: str, start: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_text(start + junk)
    try:
        trace = read(path)
    except TraceError:
        return
    assert (trace.devices >= 1).all()
    assert (np.diff(trace.submit) >= 0).all()
    assert len(set(trace.ids)) == len(trace)
    assert ((trace.duration > 0) | (trace.total_steps > 0)).all()


def same(a: Trace, b: Trace) -> bool:
    columns = ("submit", "duration", "total_steps", "devices", "model", "priority", "weight")
    return (
        a.ids == b.ids
        and [a.tenants[t] for t in a.tenant] == [b.tenants[t] for t in b.tenant]
        and all(np.array_equal(getattr(a, c), getattr(b, c), equal_nan=True) for c in columns)
    )


def test_a_column_that_is_missing_is_told_in_whole_sentences(tmp_path: Path) -> None:
    from haibun.trace.csvrows import csv_rows

    with pytest.raises(TraceError, match=r"no column 'zz'\. It has s, d, g"):
        csv_rows(tmp_path / "t.csv", "s,d,g\n1,2,3\n", ["zz"], strict=True)
    with pytest.raises(TraceError, match=r"no column 'ss'; did you mean 's'\? It has s"):
        csv_rows(tmp_path / "t.csv", "s,d,g\n1,2,3\n", ["ss"], strict=True)
