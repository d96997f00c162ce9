"""What the cluster does now, for a terminal: devices and what runs on them; jobs and how far they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from haibun.report import units

# Of the 256 colours of a terminal: told apart by the colour-blind, readable on light and on dark.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a8509a", "#b07d00", "#3f9bd0", "#7a5230", "#6b6f76")
STATES = {
    "running": "green",
    "starting": "cyan",
    "stopping": "yellow",
    "recovering": "yellow",
    "paused": "magenta",
    "failed": "red",
    "succeeded": "dim",
    "cancelled": "dim",
}


class LiveDevice(Struct, frozen=True):
    """``job``: id of the job that holds it; None: free. ``healthy`` False: nothing is placed there."""

    label: str
    job: str | None = None
    healthy: bool = True


class LiveNode(Struct, frozen=True):
    """``state``: up, drained or lost."""

    name: str
    devices: Sequence[LiveDevice]
    state: str = "up"


class LiveJob(Struct, frozen=True):
    """``rate`` in steps/s, ``since`` seconds since it was submitted; ``why``: the reason of its state."""

    id: str
    name: str
    state: str
    devices: int
    step: float = 0.0
    total: float | None = None
    rate: float | None = None
    priority: int = 0
    since: float = 0.0
    why: str = ""


class LiveView(Struct, frozen=True):
    """All that one look shows. ``jobs`` in the order in which they are to be listed."""

    policy: str
    elapsed: float
    nodes: Sequence[LiveNode]
    jobs: Sequence[LiveJob]
    messages: Sequence[str] = ()


def live(view: LiveView, most_jobs: int = 20, most_nodes: int = 12) -> RenderableType:
    """A renderable for ``rich.live.Live``; longer lists are cut, and the last line says by how much."""
    colours = _colours(view)
    return Group(
        _summary(view),
        "",
        _nodes(view, colours, most_nodes),
        *_rest(len(view.nodes) - most_nodes, "nodes"),
        "",
        _jobs(view, colours, most_jobs),
        *_rest(len(view.jobs) - most_jobs, "jobs"),
        *(Text(message, style="dim") for message in view.messages),
    )


def _summary(view: LiveView) -> Text:
    devices = [d for n in view.nodes for d in n.devices]
    busy = sum(d.job is not None for d in devices)
    counts: dict[str, int] = {}
    for job in view.jobs:
        counts[job.state] = counts.get(job.state, 0) + 1
    said = "  ".join(f"{n} {state}" for state, n in counts.items())
    line = Text(f"{view.policy}", style="bold")
    line.append(f"  {units.duration(view.elapsed)}  {busy}/{len(devices)} devices held  ", style="not bold")
    return line.append(said, style="not bold dim")


def _nodes(view: LiveView, colours: Mapping[str, str], most: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    names = {j.id: j.name or j.id for j in view.jobs}
    for node in view.nodes[:most]:
        name = Text(node.name, style="" if node.state == "up" else "red")
        if node.state != "up":
            name.append(f" {node.state}")
        cells = Text()
        letters = 14 if len(node.devices) <= 4 else 7  # so that eight devices go into a line
        for device in node.devices:
            cells.append_text(_device(device, names, colours, letters)).append(" ")
        table.add_row(name, cells)
    return table


def _device(device: LiveDevice, names: Mapping[str, str], colours: Mapping[str, str], letters: int) -> Text:
    if not device.healthy:
        return Text(f" {device.label} down ", style="red reverse")
    if device.job is None:
        return Text(f" {device.label} free ", style="dim")
    name = names.get(device.job, device.job)
    return Text(
        f" {device.label} {_short(name, letters)} ", style=f"white on {colours.get(device.job, COLOURS[-1])}"
    )


def _jobs(view: LiveView, colours: Mapping[str, str], most: int) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("", width=1)
    table.add_column("job", no_wrap=True, max_width=22)
    table.add_column("state", no_wrap=True)
    for head in ("prio", "dev"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("progress", width=16)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("steps/s", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("why", ratio=1, overflow="ellipsis", no_wrap=True)
    for job in view.jobs[:most]:
        table.add_row(*_job(job, colours.get(job.id)))
    return table


def _job(job: LiveJob, colour: str | None) -> tuple[RenderableType, ...]:
    total = units.count(job.total) if job.total else "?"
    bar: RenderableType = ""
    if job.total:
        bar = ProgressBar(job.total, min(job.step, job.total), width=16, complete_style=colour or "dim")
    return (
        Text("■", style=colour) if colour else "",
        job.name or job.id,
        Text(job.state, style=STATES.get(job.state, "")),
        str(job.priority) if job.priority else "",
        str(job.devices),
        bar,
        f"{units.count(job.step)}/{total}" if job.step or job.total else "",
        units.count(job.rate) if job.rate is not None else "",
        units.duration(job.since),
        Text(job.why, style="dim"),
    )


def _rest(more: int, what: str) -> list[Text]:
    return [Text(f"and {more:,} more {what}", style="dim")] if more > 0 else []


def _colours(view: LiveView) -> dict[str, str]:
    """Jobs on devices get colours in the order of the list, so that they keep them while nothing changes."""
    held = {d.job for n in view.nodes for d in n.devices if d.job is not None}
    return {job.id: COLOURS[i % len(COLOURS)] for i, job in enumerate(view.jobs) if job.id in held}


def _short(words: str, letters: int) -> str:
    return words if len(words) <= letters else words[: letters - 1] + "…"
