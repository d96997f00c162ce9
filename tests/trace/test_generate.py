"""The generator: deterministic, true to its arguments, and like Philly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haibun.trace import Workload, generate, read, write_philly


@settings(max_examples=25)
@given(
    jobs=st.integers(1, 300),
    devices=st.integers(1, 200),
    load=st.floats(0.05, 5),
    seed=st.integers(0, 2**63),
    arrivals=st.sampled_from(["poisson", "diurnal"]),
)
def test_the_same_arguments_give_the_same_trace_and_gangs_fit_the_cluster(
    jobs: int, devices: int, load: float, seed: int, arrivals: str
) -> None:
    shape = Workload(arrivals=arrivals)  # type: ignore[arg-type]
    a, b = (generate(jobs, devices, load, seed, shape) for _ in range(2))
    for column in ("submit", "duration", "devices", "tenant"):
        assert np.array_equal(getattr(a, column), getattr(b, column))
    assert len(a) == jobs
    assert a.submit[0] == 0
    assert (np.diff(a.submit) >= 0).all()
    assert (a.devices <= devices).all()
    assert ((a.duration >= 1) & (a.duration <= shape.longest)).all()


def test_another_seed_gives_another_trace() -> None:
    assert not np.array_equal(generate(100, seed=1).duration, generate(100, seed=2).duration)


@pytest.mark.parametrize("load", [0.3, 1.0, 2.5])
def test_the_load_is_the_one_asked_for(load: float) -> None:
    trace = generate(20_000, 256, load, seed=3)
    offered = float((trace.duration * trace.devices).sum()) / (256 * trace.submit[-1])
    assert offered == pytest.approx(load, rel=0.02)


def test_diurnal_arrivals_swing_with_the_day_and_poisson_ones_do_not() -> None:
    def share_of_first_half_days(arrivals: str) -> float:
        shape = Workload(arrivals=arrivals, swing=0.8)  # type: ignore[arg-type]
        submit = generate(20_000, 256, 0.5, 4, shape).submit
        whole = submit[submit < submit[-1] // 86400 * 86400]
        return float(((whole % 86400) < 43200).mean())

    assert share_of_first_half_days("poisson") == pytest.approx(0.5, abs=0.03)
    # The rate is 1 + 0.8 sin: its mean over the first half is 1 + 1.6 / pi.
    assert share_of_first_half_days("diurnal") == pytest.approx(0.5 + 0.8 / np.pi, abs=0.03)


@pytest.mark.parametrize("source", ["generated", "cut"])
def test_writing_and_reading_back_changes_nothing(tmp_path: Path, source: str) -> None:
    trace = generate(500, seed=5)
    if source == "cut":
        trace = trace.select(start=1000.0, tenant="vc0")
    write_philly(trace, tmp_path / "t.csv")
    back = read(tmp_path / "t.csv", strict=True)
    for column in ("submit", "duration", "devices"):
        assert np.array_equal(getattr(back, column), getattr(trace, column))
    assert [back.tenants[t] for t in back.tenant] == [trace.tenants[t] for t in trace.tenant]
    assert back.origin == trace.origin


def test_a_trace_of_steps_cannot_be_written_in_philly_form(tmp_path: Path) -> None:
    (tmp_path / "g.trace").write_text("A3C\tpython3 main.py\t--max-steps\t0\t5000\t3\t1\n")
    with pytest.raises(ValueError, match="job-0 has no duration"):
        write_philly(read(tmp_path / "g.trace"), tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"sizes": (1, 2), "size_shares": (1.0,)}, "size_shares 1"),
        ({"sizes": (0,), "size_shares": (1.0,)}, "sizes must be 1 or more"),
        ({"tenant_shares": ()}, "tenant_shares"),
        ({"size_shares": (0.0,) * 7}, "size_shares"),
        ({"median": -1.0}, "median"),
        ({"swing": 1.5}, "swing"),
        ({"longest": 0.5}, "shortest <= longest"),
        ({"tail_start": 1e9}, "tail_start"),
        ({"arrivals": "weekly"}, "arrivals"),
    ],
)
def test_a_workload_that_cannot_be_is_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Workload(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"jobs": 0}, {"devices": 0}, {"load": 0.0}, {"load": float("nan")}])
def test_arguments_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        generate(**wrong)  # type: ignore[arg-type]


@pytest.mark.data
def test_a_generated_trace_resembles_philly(data_dir: Path) -> None:
    philly = read(data_dir / "jobs/philly/philly_jobs.csv")
    made = generate(len(philly), 448, 0.83, seed=1)
    for q in (10, 25, 50, 75, 90, 95, 99, 99.9):
        ratio = np.percentile(made.duration, q) / np.percentile(philly.duration, q)
        assert 0.4 < ratio < 2.5, f"percentile {q}: {ratio:.2f} of Philly's"
    assert made.duration.mean() == pytest.approx(philly.duration.mean(), rel=0.3)
    for size in (1, 2, 4, 8, 16, 32):
        assert (made.devices == size).mean() == pytest.approx((philly.devices == size).mean(), abs=0.003)
    work = [float((t.duration * t.devices).mean()) for t in (made, philly)]
    assert work[0] == pytest.approx(work[1], rel=0.6)
