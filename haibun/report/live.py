"""What the cluster does now, for a terminal: devices and what runs on them; jobs and how far they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from haibun.report import units
from haibun.report.columns import fit

# Of the 256 colours of a terminal: told apart by the colour-blind, readable on light and on dark.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a8509a", "#b07d00", "#3f9bd0", "#7a5230", "#6b6f76")
BAR = 16  # columns of a bar of progress
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
        _Jobs([(job, colours.get(job.id)) for job in view.jobs[:most_jobs]]),
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


class _Jobs:
    """The table of jobs, as wide as the terminal; state and steps stay whole, priorities are left out first."""

    HEADS = ("", "job", "state", "prio", "dev", "progress", "step", "steps/s", "age", "why")
    NAME, PRIORITY, DEVICES, BAR, RATE, AGE, WHY = 1, 3, 4, 5, 7, 8, 9
    RIGHT = ("prio", "dev", "step", "steps/s", "age")

    def __init__(self, jobs: Sequence[tuple[LiveJob, str | None]]) -> None:
        self._rows = [_job(job, colour) for job, colour in jobs]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's way to ask; it says how wide the terminal is."""
        natural = [
            max(cell_len(head), *(_width(row[i]) for row in self._rows), 1)
            for i, head in enumerate(self.HEADS)
        ]
        natural[self.NAME] = min(natural[self.NAME], 22)
        shown = fit(
            natural,
            options.max_width,
            spare=[self.PRIORITY],
            shorten=[(self.WHY, 12), (self.BAR, 6), (self.NAME, 10)],
            last=[self.RATE, self.BAR, self.WHY, self.DEVICES, self.AGE],
        )
        table = Table(box=None, expand=True, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for i, width in shown.items():
            head, why = self.HEADS[i], i == self.WHY
            table.add_column(
                head,
                justify="right" if head in self.RIGHT else "left",
                width=None if why else width,
                ratio=1 if why else None,
                overflow="ellipsis",
                no_wrap=True,
            )
        for row in self._rows:
            table.add_row(*(row[i] for i in shown))
        yield table


def _width(cell: RenderableType) -> int:
    if isinstance(cell, Text):
        return cell.cell_len
    return cell_len(cell) if isinstance(cell, str) else BAR


def _job(job: LiveJob, colour: str | None) -> tuple[RenderableType, ...]:
    total = units.count(job.total) if job.total else "?"
    bar: RenderableType = ""
    if job.total:
        bar = ProgressBar(job.total, min(job.step, job.total), width=BAR, complete_style=colour or "dim")
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
