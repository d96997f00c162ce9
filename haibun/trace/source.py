"""Text of a trace file, plain or gzip, as lines; or an error that says why there is none."""

from __future__ import annotations

import gzip
import zlib
from difflib import get_close_matches
from pathlib import Path

from haibun.trace.problems import TraceError

GZIP_MAGIC = b"\x1f\x8b"


def read_text(path: Path) -> str:
    """Return what the file holds, decoded from UTF-8 (a byte-order mark is dropped), gunzipped if it is gzip.

    Raises:
        TraceError: it is missing, a directory, unreadable, empty, cut short (gzip) or not text.
    """
    raw = _read_bytes(path)
    if raw[:2] == GZIP_MAGIC:
        raw = _gunzip(path, raw)
    if not raw.strip():
        raise TraceError(f"{path} is empty: a trace has at least one job")
    if b"\0" in raw:
        at = raw.index(b"\0")
        raise TraceError(
            f"{path} is not text: byte {at} (line {raw[:at].count(10) + 1}) is NUL; is it a binary file?"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = raw[: e.start].count(b"\n") + 1
        raise TraceError(
            f"{path} is not UTF-8 text: line {line} holds byte 0x{raw[e.start]:02x}; "
            "if it is a table in another encoding, convert it (iconv -t utf-8)"
        ) from None


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise TraceError(f"no trace at {path}{_near(path)}") from None
    except IsADirectoryError:
        inside = sorted(p.name for p in path.iterdir() if p.is_file())[:5]
        holds = f"; it holds {', '.join(inside)}" if inside else ""
        raise TraceError(f"{path} is a directory: name a file in it{holds}") from None
    except OSError as e:
        raise TraceError(f"cannot read {path}: {e.strerror or e}") from None


def _near(path: Path) -> str:
    """A hint: which file was meant, or which folder is missing."""
    if not path.parent.is_dir():
        return f": there is no folder {path.parent}"
    close = get_close_matches(path.name, [p.name for p in path.parent.iterdir()], n=1)
    return f": did you mean {path.parent / close[0]}?" if close else ""


def _gunzip(path: Path, raw: bytes) -> bytes:
    try:
        return gzip.decompress(raw)
    except EOFError:
        raise TraceError(f"{path} is cut short: the gzip stream has no end; fetch or copy it again") from None
    except (OSError, zlib.error) as e:
        raise TraceError(f"{path} is damaged gzip: {e}; fetch or copy it again") from None
