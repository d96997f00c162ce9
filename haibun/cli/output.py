"""What commands print: JSON, or tables for people; colour only on a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout, and nothing else.")]

WIDE = 160  # columns, where no terminal says how wide it is

COLOURS = {
    "running": "green",
    "up": "green",
    "starting": "cyan",
    "stopping": "yellow",
    "recovering": "yellow",
    "draining": "yellow",
    "paused": "magenta",
    "failed": "red",
    "lost": "red",
    "succeeded": "dim",
    "cancelled": "dim",
}


def on_terminal() -> bool:
    """Whether stdout is looked at by a person."""
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    """One JSON value, indented; nan becomes null."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_json_line(value: Any) -> None:
    """One JSON value on one line, at once: for streams."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Something that is not the result: to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def console() -> Console:
    """For what only Rich can draw."""
    from rich.console import Console

    width = None if on_terminal() else max(WIDE, int(os.environ.get("COLUMNS", "0") or 0))
    return Console(highlight=False, width=width)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], state: int | None = None) -> None:
    """Columns under a header. On a terminal cut to its width, the column ``state`` in colours; else whole."""
    if not on_terminal():
        _print_plain(header, rows)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for i, name in enumerate(header):
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1 if i == len(header) - 1 else None)
    for row in rows:
        cells = [Text(cell, COLOURS.get(cell, "") if i == state else "") for i, cell in enumerate(row)]
        table.add_row(*cells)
    console().print(table)


def _print_plain(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one a line; those without a value are left out."""
    shown = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    bold, plain = ("\x1b[1m", "\x1b[0m") if on_terminal() and "NO_COLOR" not in os.environ else ("", "")
    for name, value in shown:
        first, *rest = value.split("\n")
        sys.stdout.write(f"{bold}{name.ljust(width)}{plain}  {first}\n")
        for line in rest:
            sys.stdout.write(f"{' ' * width}  {line}\n")


def ago(at: float | None, now: float | None = None) -> str:
    """How long ago, in words; a dash where it has not been."""
    from haibun.report.units import UNKNOWN, duration

    return UNKNOWN if at is None else duration(max(0.0, (time.time() if now is None else now) - at))


def moment(at: float | None) -> str:
    """A time of day, with the date, in the local zone; empty where it has not been."""
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
