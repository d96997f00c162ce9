"""From specs to jobs: ids are given out, arrays become one job for each index, names in depends_on become ids."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from graphlib import CycleError, TopologicalSorter

import msgspec

from haibun.core.admission import AdmissionError
from haibun.core.vocabulary import Job, JobId
from haibun.spec.job import JobSpec, expand

Resolve = Callable[[str], JobId | None]


def make_jobs(
    specs: Sequence[JobSpec], first_id: int, workdir: str, resolve: Resolve
) -> list[tuple[Job, JobSpec]]:
    """The jobs of one submission with the spec of each, in order; nothing is remembered.

    Names of this submission win over jobs that are known already. A task of an array with a limit of k starts after
    the task k places before it has ended, so that at most k run at a time.

    Args:
        first_id: the number of the first job.
        workdir: folder for specs that name none; relative ones begin there.
        resolve: the id of a known job by id or name; None for one that succeeded and need not be waited for.

    Raises:
        AdmissionError: there is no job in it, or jobs wait for each other in a circle.
        LookupError: what ``resolve`` raises for an unknown name.
    """
    tasks: list[tuple[JobId, JobSpec, JobId | None]] = []
    named: dict[str, list[JobId]] = {}
    for spec in specs:
        members = expand(spec)
        ids = [str(first_id + len(tasks) + i) for i in range(len(members))]
        limit = spec.array.limit if spec.array is not None else None
        for i, (job_id, task) in enumerate(zip(ids, members, strict=True)):
            after = ids[i - limit] if limit is not None and i >= limit else None
            tasks.append((job_id, task, after))
            for name in {spec.name, task.name} - {""}:
                named.setdefault(name, []).append(job_id)
    if not tasks:
        raise AdmissionError("there is no job in that")
    made = [_job(job_id, task, after, workdir, named, resolve) for job_id, task, after in tasks]
    _check_circles([job for job, _ in made])
    return made


def _job(
    job_id: JobId,
    task: JobSpec,
    after: JobId | None,
    workdir: str,
    named: dict[str, list[JobId]],
    resolve: Resolve,
) -> tuple[Job, JobSpec]:
    needs: dict[JobId, None] = {}
    for name in task.depends_on:
        known = [resolve(name)] if name not in named else named[name]
        needs |= dict.fromkeys(i for i in known if i is not None and i != job_id)
    job = task.to_core(job_id, tuple(needs))
    if after is not None:
        job = msgspec.structs.replace(job, after=(after,))
    where = os.path.join(workdir, os.path.expanduser(task.workdir or ""))
    full = task.model_copy(update={"workdir": where if task.workdir else workdir})
    return job, full


def _check_circles(jobs: list[Job]) -> None:
    graph = TopologicalSorter({job.id: (*job.depends_on, *job.after) for job in jobs})
    names = {job.id: job.name or job.id for job in jobs}
    try:
        graph.prepare()
    except CycleError as e:
        circle = " -> ".join(repr(names.get(i, i)) for i in reversed(e.args[1]))
        raise AdmissionError(f"these jobs wait for each other in a circle: {circle}") from None
