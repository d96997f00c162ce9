"""From specs to jobs."""

from __future__ import annotations

import pytest

from haibun.core.admission import AdmissionError
from haibun.run.submission import make_jobs
from haibun.spec.job import JobSpec


def known(name: str) -> str | None:
    jobs: dict[str, str | None] = {"old": "3", "3": "3", "gone-but-succeeded": None}
    return jobs[name]


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"run": "true", **fields})


def test_ids_are_consecutive_and_arrays_become_one_job_for_each_index() -> None:
    made = make_jobs([spec(name="a"), spec(name="b", array="0-2")], 7, "/w", known)
    assert [job.id for job, _ in made] == ["7", "8", "9", "10"]
    assert [s.env.get("HAIBUN_ARRAY_INDEX") for _, s in made] == [None, "0", "1", "2"]
    assert {s.workdir for _, s in made} == {"/w"}


def test_names_mean_jobs_of_the_submission_then_known_ones_and_none_that_succeeded_long_ago() -> None:
    made = make_jobs(
        [
            spec(name="prep", array="0-1"),
            spec(name="prepare"),
            spec(depends_on=["prep", "old", "gone-but-succeeded"]),
        ],
        1,
        "/w",
        known,
    )
    assert made[-1][0].depends_on == ("1", "2", "3")


def test_an_array_limit_chains_each_task_to_the_one_so_many_places_before() -> None:
    made = make_jobs([spec(array="0-4%2")], 1, "/w", known)
    assert [job.after for job, _ in made] == [(), (), ("1",), ("2",), ("3",)]


def test_jobs_that_wait_for_each_other_are_refused_with_the_circle() -> None:
    with pytest.raises(AdmissionError, match=r"circle: .*a.*b"):
        make_jobs([spec(name="a", depends_on=["b"]), spec(name="b", depends_on=["a"])], 1, "/w", known)


def test_an_empty_submission_is_refused() -> None:
    with pytest.raises(AdmissionError, match="no job"):
        make_jobs([], 1, "/w", known)


@pytest.mark.parametrize(
    ("given", "is_at"),
    [
        (None, "/w"),
        ("/abs", "/abs"),
        ("runs/a", "/w/runs/a"),
        ("~/a", "/home/me/a"),
        ("run {index}", "/w/run 4"),
    ],
)
def test_a_relative_workdir_begins_at_the_folder_of_the_submission(
    given: str | None, is_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    [(_, made)] = make_jobs([spec(workdir=given, array=[4])], 1, "/w", known)
    assert made.workdir == is_at
