"""What is wrong with a file that a user wrote: each problem with its place, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

SHOWN = 20  # problems that one message lists


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """One thing that is wrong.

    Attributes:
        file: path, or ``<text>``.
        line, column: where, from 1; 0 when there is no place.
        field: dotted path to the value, as ``resources.devices``; empty for the document as a whole.
        message: what is wrong.
        hint: what to do about it; may be empty.
    """

    file: str
    line: int
    column: int
    field: str
    message: str
    hint: str = ""

    def render(self) -> str:
        """One line: ``file:line:column: field: message; hint``."""
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        field = f" {self.field}:" if self.field else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{where}:{field} {self.message}{hint}"


class SpecError(ValueError):
    """A spec that cannot be used; ``problems`` has at least one entry."""

    def __init__(self, problems: Iterable[SpecProblem]) -> None:
        self.problems = list(problems)
        super().__init__(self.render())

    def render(self) -> str:
        """A line for each problem, in the order of the file."""
        lines = [p.render() for p in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"... and {len(self.problems) - SHOWN} more")
        return "\n".join(lines)


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """``did you mean 'x'?`` for the closest known name; all names if none is close and they are few."""
    names = list(known)
    close = get_close_matches(name, names, n=1, cutoff=cutoff)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there are {', '.join(names)}" if 0 < len(names) <= 24 else ""
