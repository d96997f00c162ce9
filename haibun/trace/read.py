"""Reading a trace: which form it has, and the reader for it."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

from haibun.trace.columns import PREFIX, read_columns, suggestion
from haibun.trace.csvrows import header_of
from haibun.trace.gavel import FORMS, SHOCKWAVE_FIELDS, read_gavel
from haibun.trace.philly import WANTED, read_philly
from haibun.trace.problems import Problem, TraceError
from haibun.trace.source import read_text
from haibun.trace.table import Trace

READERS = {"philly": read_philly, "gavel": read_gavel}
SNIFFED_LINES = 50  # lines looked at to tell a form: enough to get over damage at the top of a file


def read(path: str | PathLike[str], format: str | None = None, strict: bool = False) -> Trace:  # noqa: A002
    """Read a trace, plain or gzip.

    Args:
        path: the file.
        format: ``philly``, ``gavel`` or ``csv:ROLE=COLUMN,...``; None: told from the file.
        strict: stop at the first row that cannot be read. Otherwise such rows are skipped, and are listed in
        the
            ``problems`` of the result.

    Raises:
        TraceError: no file, no text, no known form, no readable row, or (strict) a bad row.
    """
    where = Path(fspath(path))
    if format is not None and format not in READERS and not format.startswith(PREFIX):
        raise TraceError(
            f"no trace format is called {format!r}; there are {', '.join(READERS)} and csv:ROLE=COLUMN,..."
        )
    text = read_text(where)
    form = format or sniff(where, text)
    if form.startswith(PREFIX):
        return read_columns(where, text, form, strict=strict)
    return READERS[form](where, text, strict=strict)


def sniff(path: Path, text: str) -> str:
    """Tell the form from the header (Philly) or from the number of tab-separated fields (Gavel).

    Raises:
        TraceError: neither fits.
    """
    header = header_of(text)
    if set(WANTED) <= set(header):
        return "philly"
    head = [line for line in text.splitlines()[:SNIFFED_LINES] if line.strip()]
    widths = [line.count("\t") + 1 for line in head]
    if any(w in FORMS for w in widths):
        return "gavel"
    raise _unknown(path, header, widths[0] if widths else 1)  # nothing but blanks is one empty field


def _unknown(path: Path, header: list[str], width: int) -> TraceError:
    if width == SHOCKWAVE_FIELDS:
        reason = "12 tab-separated fields are a Shockwave trace, which this version does not read"
    elif width > 1:
        reason = f"a Gavel trace has 7 or 10 tab-separated fields; the first line has {width}"
    elif len(header) > 1:
        reason = f"no known header; say which column holds what, for instance --format {suggestion(header)}"
    else:
        reason = (
            "the first line is neither the header of a CSV nor a line of tab-separated fields: is it a trace?"
        )
    return TraceError(
        f"{path}: cannot tell what kind of trace this is: {reason}", [Problem(str(path), 1, "", reason)]
    )
