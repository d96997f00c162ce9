"""``logs``, ``wait``, ``events``: what comes as it happens."""

from __future__ import annotations

from typing import Annotated

import typer

from haibun.cli.jobs import Job
from haibun.cli.output import Json, print_json, print_json_line, say


def logs(
    job: Job,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="Only this rank; all if left out.")] = None,
    epoch: Annotated[int | None, typer.Option(min=1, help="Of this attempt; the last if left out.")] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Begin with so many last lines.")
    ] = None,
    json: Json = False,
) -> None:
    """Print what a job's workers wrote. Lines of several ranks bear their rank.

    With `--json` a list of lines; while following, one JSON value a line.

    Example: `haibun logs -f train --rank 0`
    """
    from haibun.client import Client

    with Client() as client:
        lines = client.logs(job, follow=follow, rank=rank, epoch=epoch, tail=tail)
        if json and not follow:
            print_json(list(lines))
            return
        several = rank is None and client.show(job).job.devices > 1
        for line in lines:
            if json:
                print_json_line(line)
                continue
            several = several or line.rank > 0
            print(f"[{line.rank}] {line.text}" if rank is None and several else line.text, flush=follow)


def wait(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids or names.", show_default=False)],
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Give up after so long.")
    ] = None,
    json: Json = False,
) -> None:
    """Wait until jobs have ended. The exit code is 0 if all succeeded.

    Example: `haibun wait 12 13 --timeout 3600`
    """
    import time

    from haibun.client import Client
    from haibun.run.views import reason

    end = None if timeout is None else time.monotonic() + timeout
    views = []
    with Client() as client:
        for job in jobs:
            left = None if end is None else max(0.0, end - time.monotonic())
            views.append(client.wait(job, left))
            if not json:
                why = reason(views[-1])
                print(f"job {job}: {views[-1].state}" + (f": {why}" if why else ""))
    if json:
        print_json(views)
    if any(view.state != "succeeded" for view in views):
        raise typer.Exit(1)


def events(
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only events of this kind, as job-submitted; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Print the scheduler's events as they are applied, one a line, until interrupted.

    Example: `haibun events --kind job-submitted --kind decided`
    """
    from haibun.client import Client

    with Client() as client:
        if not json:
            say("waiting for events; Ctrl-C ends this")
        for event in client.events(*(kinds or ())):
            if json:
                print_json_line(event)
                continue
            shown = {name: value for name, value in event.items() if name not in ("seq", "kind", "at")}
            about = "  ".join(f"{name}={value}" for name, value in shown.items())
            print(f"{event.get('seq', ''):>8}  {event.get('kind', ''):<20}  {about}"[:400], flush=True)
