"""A CSV file with a header to `Rows`. Blank lines are passed over; quoted fields may hold line breaks."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from haibun.trace.problems import Problem, TraceError
from haibun.trace.rows import Rows


def header_of(text: str) -> list[str]:
    """Names in the first line that is not blank, without spaces around them; empty if it is not CSV."""
    first = next((line for line in io.StringIO(text) if line.strip()), "")
    try:
        return [name.strip() for name in next(csv.reader([first]), [])]
    except csv.Error:
        return []


def csv_rows(path: Path, text: str, wanted: Sequence[str], *, strict: bool) -> Rows:
    """Split the file and make sure that its header has the columns wanted.

    Raises:
        TraceError: a column is missing or named twice, or the text is no CSV.
    """
    fields = header_of(text)
    for name in wanted:
        if name not in fields:
            close = get_close_matches(name, fields, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            reason = f"the header has no column {name!r}{hint} It has {', '.join(fields) or 'nothing'}"
            raise TraceError(f"{path}:1: {reason}", [Problem(str(path), 1, name, reason)])
        if fields.count(name) > 1:
            reason = f"the header names column {name!r} twice: which one is meant?"
            raise TraceError(f"{path}:1: {reason}", [Problem(str(path), 1, name, reason)])
    rows, lines = _split(path, text)
    return Rows(path, fields, rows[1:], lines[1:], strict=strict)


def _split(path: Path, text: str) -> tuple[list[list[str]], list[int]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for row in reader:
            if row and (len(row) > 1 or row[0].strip()):
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as e:
        line = lines[-1] + 1 if lines else 1
        reason = f"is not CSV: {e}; is a quotation mark left open here?"
        raise TraceError(f"{path}:{line}: {reason}", [Problem(str(path), line, "", reason)]) from None
    return rows, lines
