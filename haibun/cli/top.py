"""``top``: the whole cluster at a glance, again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from haibun.cli.output import Json, console, on_terminal, print_json

if TYPE_CHECKING:
    from haibun.client import Client


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
    from haibun.client.look import view_of
    from haibun.report.live import live

    console().print(live(view_of(client.top())))


def _watch(client: Client, every: float) -> None:
    from rich.live import Live

    from haibun.client import ServerNotRunning, Unavailable
    from haibun.client.look import view_of
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
