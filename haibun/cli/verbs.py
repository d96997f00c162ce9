"""``cancel``, ``pause``, ``resume``, ``priority``: one verb, one or more jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from haibun.cli.output import Json, print_json

if TYPE_CHECKING:
    from haibun.client import Client

Jobs = Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids or names.", show_default=False)]


def _each(jobs: Sequence[str], done: str, json: bool, verb: Callable[[Client, str], None]) -> None:
    """Do it to each job; the first error ends it, and what was done before is told."""
    from haibun.client import Client

    told: list[str] = []
    try:
        with Client() as client:
            for job in jobs:
                verb(client, job)
                told.append(job)
                if not json:
                    print(f"job {job}: {done}")
    finally:
        if json and told:
            print_json({"jobs": told})


def cancel(jobs: Jobs, json: Json = False) -> None:
    """End jobs for good. Attached ones are told first, and may save a checkpoint.

    Example: `haibun cancel 12 13`
    """
    _each(jobs, "will be ended", json, lambda client, job: client.cancel(job))


def pause(
    jobs: Jobs,
    hold: Annotated[
        bool, typer.Option("--hold", help="Keep the process and its devices; just stand still.")
    ] = False,
    json: Json = False,
) -> None:
    """Stop jobs for now: their work is saved, and others may have their devices.

    Example: `haibun pause train`
    """
    done = "will be held, with its devices" if hold else "will be paused"
    _each(jobs, done, json, lambda client, job: client.pause(job, hold))


def resume(jobs: Jobs, json: Json = False) -> None:
    """Let paused jobs go on.

    Example: `haibun resume train`
    """
    _each(jobs, "may go on", json, lambda client, job: client.resume(job))


def priority(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="Id of the job, or its name.", show_default=False)
    ],
    value: Annotated[
        int, typer.Argument(metavar="N", help="Larger goes first; 0 is ordinary.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Change a job's priority; the next decision goes by it.

    Example: `haibun priority train 10`
    """
    _each([job], f"has priority {value} now", json, lambda client, name: client.set_priority(name, value))
