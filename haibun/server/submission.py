"""A submission: job files as text, or jobs as values, to specs."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct, field

from haibun.server.problems import Field, Problem, ProblemError
from haibun.spec.document import Document
from haibun.spec.job import JobSpec
from haibun.spec.jobfile import parse_jobs
from haibun.spec.problems import SpecError, SpecProblem
from haibun.spec.validate import validate


class File(Struct, frozen=True, forbid_unknown_fields=True):
    """A job file; ``name`` is what errors call it."""

    text: str
    name: str = "<text>"


class Submission(Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to accept, all or none. ``workdir``: where those run that do not say; an absolute path."""

    workdir: str
    files: tuple[File, ...] = ()
    jobs: tuple[dict[str, Any], ...] = field(default=())


async def specs_of(submission: Submission) -> list[JobSpec]:
    """All jobs, those of files first, checked.

    Raises:
        ProblemError: there is none, or ``workdir`` is no absolute path.
        SpecError: with everything that is wrong with any of them.
    """
    if not submission.workdir.startswith("/"):
        what = Field("must be an absolute path", "workdir")
        raise ProblemError(Problem(422, "invalid", f"workdir: {what.message}", fields=(what,)))
    if not (submission.files or submission.jobs):
        raise ProblemError(Problem(422, "invalid", "there is no job in that", "give 'files' or 'jobs'"))
    if submission.files:  # YAML takes its time, and the controller has other things to do meanwhile
        return await asyncio.to_thread(_all, submission)
    return _all(submission)


def _all(submission: Submission) -> list[JobSpec]:
    specs: list[JobSpec] = []
    problems: list[SpecProblem] = []
    for file in submission.files:
        try:
            specs += parse_jobs(file.text, file.name)
        except SpecError as e:
            problems += e.problems
    for i, job in enumerate(submission.jobs):
        try:
            specs.append(validate(JobSpec, Document(f"job {i}" if i else "job", job)))
        except SpecError as e:
            problems += [SpecProblem(p.file, 0, 0, p.field, p.message, p.hint) for p in e.problems]
    if problems:
        raise SpecError(problems)
    return specs
