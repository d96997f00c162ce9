"""``top``: the whole cluster at a glance, again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from haibun.cli.output import Json, console, on_terminal, print_json

if TYPE_CHECKING:
    from haibun.client import Client
    from haibun.report.live import LiveView
    from haibun.run.views import NodeView, Overview

_ORDER = ("running", "starting", "stopping", "recovering", "paused", "queued", "pending")


def top(
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between looks.")] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Look once; so it is where stdout is no terminal.")
    ] = False,
    json: Json = False,
) -> None:
    """Watch the cluster: what runs on which device, and how far each job is. Ctrl-C ends it.

    Example: `haibun top --every 2`
    """
    from haibun.client import Client

    with Client() as client:
        if json:
            print_json(client.top())
        elif once or not on_terminal():
            _print_once(client)
        else:
            _watch(client, every)


def _print_once(client: Client) -> None:
    from haibun.report.live import live

    console().print(live(view_of(client.top())))


def _watch(client: Client, every: float) -> None:
    from rich.live import Live

    from haibun.client import ServerNotRunning, Unavailable
    from haibun.report.live import live

    shown = live(view_of(client.top()))
    with Live(shown, console=console(), auto_refresh=False, screen=True) as screen:
        while True:
            try:
                time.sleep(every)
                screen.update(
                    live(view_of(client.top()), most_jobs=max(5, screen.console.height - 16)), refresh=True
                )
            except KeyboardInterrupt:
                return
            except (ServerNotRunning, Unavailable):
                continue  # it restarts, say; the last look stays


def view_of(overview: Overview) -> LiveView:
    """An overview as ``haibun.report.live`` draws it: first what runs, then what waits, then what has ended."""
    from haibun.report.live import LiveJob, LiveNode, LiveView

    place = {state: i for i, state in enumerate(_ORDER)}
    jobs = sorted(overview.jobs, key=lambda j: (place.get(j.state, len(place)), -j.priority, j.submitted))
    started = min((job.submitted for job in overview.jobs), default=overview.now)
    messages = [f"Nothing can be accepted just now: {overview.degraded}"] if overview.degraded else []
    return LiveView(
        policy=overview.policy,
        elapsed=overview.now - started,
        nodes=[LiveNode(node.name, _devices(node), node.health) for node in overview.nodes],
        jobs=[
            LiveJob(
                id=job.id,
                name=job.name or job.id,
                state=job.state,
                devices=job.devices,
                step=job.step or 0.0,
                total=job.total,
                rate=job.rate,
                priority=job.priority,
                since=(job.ended or overview.now) - job.submitted,
                why=job.exit or job.why,
            )
            for job in jobs
        ],
        messages=messages,
    )


def _devices(node: NodeView) -> list[Any]:
    from haibun.report.live import LiveDevice

    healthy = node.health != "lost"
    return [LiveDevice(str(i), holder, healthy) for i, holder in enumerate(node.holders)]
