"""What can be wrong with a trace: one bad row (`Problem`), or the whole file (`TraceError`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SHOWN = 5  # problems that one message lists; the rest are counted


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that could not be read, and was skipped.

    Attributes:
        file: path as the user gave it.
        line: number of the line in the file, from 1; 0 when no one line is at fault.
        column: name of the field; empty when the row as a whole is at fault.
        reason: what is wrong, and what is wanted.
        value: the text that was found, shortened.
    """

    file: str
    line: int
    column: str
    reason: str
    value: str = ""

    def render(self) -> str:
        """One line: ``file:line: column: reason (found 'value')``."""
        where = f"{self.file}:{self.line}" if self.line else self.file
        column = f" {self.column}:" if self.column else ""
        found = f" (found {shorten(self.value)!r})" if self.value else ""
        return f"{where}:{column} {self.reason}{found}"


class TraceError(ValueError):
    """A trace that cannot be used. ``problems`` holds what is known of where and why."""

    def __init__(self, message: str, problems: Iterable[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


def shorten(text: str, limit: int = 40) -> str:
    """``text`` cut to ``limit`` characters for a message."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def summarise(problems: list[Problem]) -> str:
    """The first few problems, a line each, and how many more there are."""
    lines = [p.render() for p in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"... and {len(problems) - SHOWN} more")
    return "\n".join(lines)
