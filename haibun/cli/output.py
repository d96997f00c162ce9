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


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    state: int | None = None,
    spare: Sequence[int] = (),
) -> None:
    """Columns under a header. On a terminal cut to its width, the column ``state`` in colours; else whole.

    The first column and ``state`` are never cut; where it is narrow, those in ``spare`` are left out first.
    """
    if not on_terminal():
        _print_plain(header, rows)
        return
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    from haibun.report.columns import fit

    natural = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    others = [i for i in range(1, len(header)) if i != state]
    shorten = sorted(others, key=lambda i: (i != len(header) - 1, -natural[i]))
    out = console()
    shown = fit(
        natural,
        out.width,
        spare=spare,
        shorten=[(i, 12 if i == len(header) - 1 else 10) for i in shorten if i not in spare],
        last=[i for i in reversed(others) if i not in spare],
    )
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for i, width in shown.items():
        table.add_column(header[i], no_wrap=True, overflow="ellipsis", width=width)
    for row in rows:
        table.add_row(*(Text(row[i], COLOURS.get(row[i], "") if i == state else "") for i in shown))
    out.print(table)


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
