"""Rows of text to checked columns: what every reader shares.

A reader names the fields it wants; each is converted and checked here, and a row with a bad field is noted
and left out. Columns are converted one by one, but problems are told in the order of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from haibun.trace.problems import Problem, TraceError, summarise
from haibun.trace.table import Floats, Ints, Trace

MAX_DEVICES = 1_000_000  # more in one gang is a wrong column, not a job
MAX_SECONDS = (
    1e11  # some 3,000 years: likewise; milliseconds since 1970 are past it, so a wrong unit is noticed
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Rows:
    """Fields of a file, with the line on which each row stood (from 1).

    Rows with a wrong number of fields are noted at once; `trace` builds the result from the rows that are
    left.
    """

    def __init__(
        self, path: Path, fields: Sequence[str], rows: list[list[str]], lines: list[int], *, strict: bool
    ) -> None:
        self.path = path
        self.fields = list(fields)
        self.strict = strict
        self.problems: list[Problem] = []
        width = len(self.fields)
        self.ordinals = list(range(len(rows)))
        if any(len(r) != width for r in rows):
            self._note_widths(rows, lines, width)
            kept = [i for i, r in enumerate(rows) if len(r) == width]
            rows, lines, self.ordinals = [rows[i] for i in kept], [lines[i] for i in kept], kept
        self.lines = lines
        self._columns = list(zip(*rows, strict=True)) if rows else [()] * width
        self.good = np.ones(len(lines), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.lines)

    def _note_widths(self, rows: list[list[str]], lines: list[int], width: int) -> None:
        for i, row in enumerate(rows):
            if len(row) == width:
                continue
            cut = "; the file may be cut short" if i == len(rows) - 1 and len(row) < width else ""
            reason = f"has {len(row)} field{'s' * (len(row) != 1)} where {width} are wanted{cut}"
            self.problems.append(Problem(str(self.path), lines[i], "", reason, ",".join(row)))

    def reject(self, row: int, column: str, reason: str) -> None:
        """Note that a row is bad and leave it out. One problem a row is enough."""
        if self.good[row]:
            self.good[row] = False
            value = self.text(column)[row] if column in self.fields else ""
            self.problems.append(Problem(str(self.path), self.lines[row], column, reason, value))

    def text(self, column: str) -> Sequence[str]:
        """The column as it stands in the file."""
        return self._columns[self.fields.index(column)]

    def numbers(
        self,
        column: str,
        *,
        positive: bool = False,
        whole: bool = False,
        most: float = np.inf,
        least: float = 0.0,
        optional: bool = False,
    ) -> Floats:
        """The column as float64; nan in bad rows, and where it is empty if ``optional``."""
        out = np.full(len(self), np.nan)
        for i, text in enumerate(self.text(column)):
            try:
                out[i] = float(text)
            except ValueError:
                if not (optional and not text.strip()):
                    self.reject(i, column, "is not a number" if text.strip() else "is empty")
        present = self.good & ~np.isnan(out)
        if not optional:
            self._check(column, self.good & np.isnan(out), "is not a number")
        self._check(column, present & np.isinf(out), "is infinite")
        if positive:
            self._check(column, present & (out <= 0), "must be greater than 0")
        self._check(column, present & (out < least), f"must be {least:g} or more")
        if whole:
            self._check(column, present & (out != np.floor(out)), "must be a whole number")
        self._check(
            column, present & (out > most), f"is larger than {most:,.0f}: is this the right column and unit?"
        )
        return out

    def _check(self, column: str, bad: np.ndarray[tuple[int], np.dtype[np.bool_]], reason: str) -> None:
        for i in np.flatnonzero(bad).tolist():
            self.reject(i, column, reason)

    def devices(self, column: str) -> Ints:
        """A gang size: a whole number of devices, at least 1; 0 in bad rows."""
        values = self.numbers(column, positive=True, whole=True, most=MAX_DEVICES)
        return np.where(self.good, values, 0.0).astype(np.int64)

    def dates(self, column: str) -> Floats:
        """ISO 8601 dates as Unix seconds (UTC where they bear no zone); nan in bad rows."""
        out = np.full(len(self), np.nan)
        for i, text in enumerate(self.text(column)):
            try:
                when = datetime.fromisoformat(text.strip())
            except ValueError:
                self.reject(i, column, "is not a date such as 2017-10-09 07:01:55")
                continue
            out[i] = (when.replace(tzinfo=UTC) if when.tzinfo is None else when).timestamp()
        return out

    def codes(self, column: str) -> tuple[Ints, tuple[str, ...]]:
        """Names as indices into the distinct ones, in order of first appearance; an empty name is -1."""
        names: dict[str, int] = {}
        out = np.empty(len(self), dtype=np.int64)
        for i, text in enumerate(self.text(column)):
            name = text.strip()
            out[i] = names.setdefault(name, len(names)) if name else -1
        return out, tuple(names)

    def unique(self, column: str) -> list[str]:
        """Ids: not empty, each used once."""
        seen: dict[str, int] = {}
        for i, text in enumerate(self.text(column)):
            if not text.strip():
                self.reject(i, column, "is empty: each job needs an id")
            elif (first := seen.setdefault(text.strip(), i)) != i:
                self.reject(i, column, f"was used before, on line {self.lines[first]}")
        return [text.strip() for text in self.text(column)]

    def trace(
        self,
        *,
        format: str,  # noqa: A002 - the name of the field
        submit: Floats,
        devices: Ints,
        ids: list[str] | None = None,
        duration: Floats | None = None,
        total_steps: Floats | None = None,
        model: tuple[Ints, tuple[str, ...]] | None = None,
        tenant: tuple[Ints, tuple[str, ...]] | None = None,
        priority: Ints | None = None,
        weight: Floats | None = None,
    ) -> Trace:
        """Put the good rows in order of submission. Ids default to ``job-N``, N being the row in the file
        from 0.

        Raises:
            TraceError: strict and a row is bad, or no row is good.
        """
        n = len(self)
        self._judge()
        order = np.flatnonzero(self.good)
        order = order[np.argsort(submit[order], kind="stable")]
        tenant_code, tenants = tenant or (np.zeros(n, dtype=np.int64), ("default",))
        if (tenant_code < 0).any():
            tenant_code, tenants = np.where(tenant_code < 0, len(tenants), tenant_code), (*tenants, "default")
        model_code, models = model or (np.full(n, -1, dtype=np.int64), ())
        nan, zero, one = np.full(n, np.nan), np.zeros(n, dtype=np.int64), np.ones(n)
        origin = float(submit[order[0]])
        return Trace(
            name=self.path.name.removesuffix(".gz").rsplit(".", 1)[0],
            path=str(self.path),
            format=format,
            ids=[f"job-{self.ordinals[i]}" if ids is None else ids[i] for i in order.tolist()],
            submit=submit[order] - origin,
            duration=(nan if duration is None else duration)[order],
            total_steps=(nan if total_steps is None else total_steps)[order],
            devices=devices[order],
            model=model_code[order],
            models=models,
            tenant=tenant_code[order],
            tenants=tenants,
            priority=(zero if priority is None else priority)[order],
            weight=(one if weight is None else weight)[order],
            origin=origin,
            problems=self.problems,
        )

    def _judge(self) -> None:
        self.problems.sort(key=lambda p: p.line)
        if self.problems and self.strict:
            raise TraceError(self.problems[0].render(), self.problems[:1])
        if not self.good.any():
            if not self.problems:
                raise TraceError(f"{self.path} has a header but no jobs")
            raise TraceError(f"no row of {self.path} can be read:\n{summarise(self.problems)}", self.problems)
