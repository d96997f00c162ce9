"""``ls``, ``show``, ``explain``: looking at jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from haibun.cli.output import Json, ago, moment, print_json, print_pairs, print_table, say

if TYPE_CHECKING:
    from haibun.run.views import AttemptView, JobDetail, JobView

Job = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, or its name.", show_default=False)]
ACTIVE = ("pending", "queued", "recovering", "starting", "running", "stopping", "paused")
ENDED = ("succeeded", "failed", "cancelled")


def ls(
    states: Annotated[
        list[str] | None, typer.Option("--state", help="Only jobs in this state; may be repeated.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that have ended, too.")] = False,
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")] = 1000,
    after: Annotated[
        str | None, typer.Option(metavar="JOB", help="Older ones than this job: the next page.")
    ] = None,
    json: Json = False,
) -> None:
    """List jobs: those that wait or run, or all of them.

    Example: `haibun ls --state running --tenant vision`
    """
    from haibun.client import Client

    wanted = tuple(states or ()) or (() if everything else ACTIVE)
    with Client() as client:
        jobs = client.ls(*wanted, tenant=tenant, name=name, limit=limit, after=after)
    if json:
        print_json(jobs)
    elif jobs:
        header = ("ID", "NAME", "TENANT", "PRIO", "STATE", "DEVICES", "AGE", "PROGRESS", "WHERE / WHY")
        print_table(header, [_row(job) for job in jobs], state=4, spare=(2, 3))
    else:
        say(
            "no such jobs"
            if everything or states
            else "no job waits or runs; 'haibun ls -a' lists those that ended"
        )


def _row(job: JobView) -> tuple[str, ...]:
    from haibun.run.views import reason

    where = ", ".join(job.nodes) if job.nodes and job.state == "running" else reason(job)
    kind = f"{job.devices} {job.device_type}" if job.device_type else str(job.devices)
    return (
        *(job.id, job.name, job.tenant, str(job.priority), job.state, kind),
        *(ago(job.submitted), progress(job), where),
    )


def progress(job: JobView) -> str:
    """Steps done, of how many, and how fast."""
    from haibun.report.units import count

    if not job.step:
        return ""
    of = f"/{count(job.total)}" if job.total else ""
    return f"{count(job.step)}{of}" + (f" at {job.rate:.3g}/s" if job.rate else "")


def show(job: Job, json: Json = False) -> None:
    """Show all of one job: its state, progress, attempts, and where its logs and checkpoints lie.

    Example: `haibun show train`
    """
    from haibun.client import Client

    with Client() as client:
        detail = client.show(job)
    if json:
        print_json(detail)
        return
    print_pairs(_facts(detail))
    if detail.attempts:
        print()
        header = ("ATTEMPT", "STARTED", "TOOK", "OUTCOME", "DEVICES", "CAUSE")
        print_table(header, [_attempt(a) for a in detail.attempts], state=3)


def _facts(detail: JobDetail) -> list[tuple[str, str]]:
    from haibun.report.units import count, duration
    from haibun.run.views import reason

    job = detail.job
    kind = f"{job.devices} of type {job.device_type}" if job.device_type else str(job.devices)
    return [
        ("job", f"{job.id}  {job.name}".rstrip()),
        ("state", job.state + (f": {why}" if (why := reason(job)) else "")),
        ("devices", kind + (f": {', '.join(job.on)}" if job.on else "")),
        ("tenant", job.tenant),
        ("priority", str(job.priority)),
        ("submitted", moment(job.submitted)),
        ("started", moment(job.started)),
        ("finished", moment(job.ended)),
        ("progress", progress(job)),
        ("durable", f"step {count(job.durable)} is in a checkpoint" if job.durable else ""),
        ("metrics", "  ".join(f"{name}={value:.6g}" for name, value in job.metrics.items())),
        ("preempted", _times(job.preemptions) if job.preemptions else ""),
        ("failed", f"{_times(job.failures)}, with {job.retries} retries allowed" if job.failures else ""),
        ("lost work", duration(job.lost) if job.lost else ""),
        ("waits for", ", ".join(detail.depends_on) if job.state == "pending" else ""),
        ("labels", "  ".join(f"{name}={value}" for name, value in job.labels.items())),
        ("logs", detail.logs),
        ("checkpoints", detail.checkpoints),
    ]


def _attempt(attempt: AttemptView) -> tuple[str, ...]:
    from haibun.report.units import duration

    end = time.time() if attempt.ended is None else attempt.ended
    took = duration(end - attempt.started) if attempt.started is not None else ""
    devices = ", ".join(attempt.devices)
    return (str(attempt.epoch), moment(attempt.started), took, attempt.outcome, devices, attempt.cause)


def explain(job: Job, json: Json = False) -> None:
    """Say why a job is where it is: what it waits for, who is ahead of it, or why it was placed there.

    Example: `haibun explain train`
    """
    from haibun.client import Client
    from haibun.run.views import has_become, says_no_more

    with Client() as client:
        told = client.explain(job)
    if json:
        print_json(told)
        return
    if told.state in ENDED:
        print(f"job {told.job} {has_become(told.state)} {ago(told.since)} ago")
    else:
        print(f"job {told.job} is {told.state}, for {ago(told.since)} now (policy {told.policy})")
    for reason in told.reasons:
        if not says_no_more(reason, told.state):
            print(f"- {reason}")
    if told.rank is not None:
        ahead = (
            f": {', '.join(told.ahead)}" + (" ..." if told.rank > len(told.ahead) else "")
            if told.ahead
            else ""
        )
        jobs = "1 job is" if told.rank == 1 else f"{told.rank} jobs are"
        print(f"- {jobs} ranked ahead of it{ahead}" if told.rank else "- it is first in line")


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"
