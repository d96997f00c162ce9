"""Job files: one YAML document a job, several in a file; checked one by one, then together."""

from __future__ import annotations

from pathlib import Path

from haibun.spec.document import Document, load_documents, read_text
from haibun.spec.job import JobSpec
from haibun.spec.problems import SpecError, SpecProblem
from haibun.spec.validate import validate


def load_job_file(source: str | Path) -> list[JobSpec]:
    """Read job specs from a file, or from YAML text (a string that holds a line break).

    Raises:
        SpecError: with everything that is wrong in it: syntax, fields, and dependencies that form a circle.
    """
    if isinstance(source, Path) or "\n" not in source:
        return parse_jobs(read_text(Path(source)), str(source))
    return parse_jobs(source)


def parse_jobs(text: str, file: str = "<text>") -> list[JobSpec]:
    """Read job specs from YAML text; ``file`` is what errors call it.

    Raises:
        SpecError: as for `load_job_file`.
    """
    documents = load_documents(text, file)
    specs: list[JobSpec] = []
    problems: list[SpecProblem] = []
    for document in documents:
        try:
            specs.append(validate(JobSpec, document))
        except SpecError as e:
            problems += e.problems
    if not problems:
        problems = _names(documents, specs) or _circles(documents, specs)
    if problems:
        raise SpecError(problems)
    return specs


def _names(documents: list[Document], specs: list[JobSpec]) -> list[SpecProblem]:
    """Names that others depend on must be clear."""
    wanted = {name for spec in specs for name in spec.depends_on}
    seen: dict[str, int] = {}
    problems = []
    for document, spec in zip(documents, specs, strict=True):
        if spec.name in wanted and spec.name in seen:
            message = f"{spec.name!r} is used before (line {seen[spec.name]}), and another job depends on it"
            problems.append(document.problem(("name",), message, "give each its own name"))
        seen.setdefault(spec.name, document.values.get(("name",), (1, 1))[0])
    return problems


def _circles(documents: list[Document], specs: list[JobSpec]) -> list[SpecProblem]:
    """Follow dependencies by name; report the first circle."""
    place = {spec.name: i for i, spec in enumerate(specs) if spec.name}
    done: set[int] = set()
    for start in range(len(specs)):
        trail: list[int] = []
        stack = [(start, iter(specs[start].depends_on))]
        while stack:
            at, needs = stack[-1]
            if len(trail) < len(stack):
                trail.append(at)
            step = next((place[n] for n in needs if n in place and place[n] not in done), None)
            if step is None:
                done.add(at)
                stack.pop()
                trail.pop()
            elif step in trail:
                names = [specs[i].name for i in [*trail[trail.index(step) :], step]]
                message = f"jobs wait for each other: {' -> '.join(names)}"
                return [documents[at].problem(("depends_on",), message, "remove one of these dependencies")]
            else:
                stack.append((step, iter(specs[step].depends_on)))
    return []
