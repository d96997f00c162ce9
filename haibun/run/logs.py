"""Logs: one file a rank, in one folder an epoch, rotated by size, read and followed by whoever wants.

A worker writes straight to its file, opened for appending: it never waits for a reader, and the death of the
agent loses nothing. Rotation copies the file to ``NAME.1`` and truncates it; with appending the worker's next
line lands at the beginning. What is written in the microseconds between the end of the copy and the
truncation would be lost, so an attempt whose cage can freeze is frozen for the last piece of the copy.

A log that has grown past MOST_BYTES before it was looked at keeps only its end, below a line that says how
much was left out: no old part is larger than that.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from haibun.run.clock import Clock, RealClock

# One log of a chatty rank for some hours. Between the two lies what a rank may write from one look to the next
# without losing any of it; the old ones take 192 MiB of disk at most.
ROTATE_BYTES = 48 << 20
MOST_BYTES = 64 << 20
KEEP = 3
FOLLOW_EVERY = 0.1  # seconds: at once, to the eye
_COPY = 1 << 20
_LEFT_OUT = "[haibun: {} bytes left out here: more was written than is kept]\n"
_NOTICE = re.compile(rb"\[haibun: (\d+) bytes left out here: [^\]]*\]\n")
_NOTICE_BYTES = 128


def epoch_folder(logs: str | Path, epoch: int) -> Path:
    """Where the logs of one attempt lie."""
    return Path(logs) / f"epoch-{epoch}"


def rank_log(logs: str | Path, epoch: int, rank: int) -> Path:
    """The log of one rank of one attempt."""
    return epoch_folder(logs, epoch) / f"rank-{rank}.log"


def log_files(logs: str | Path, epoch: int | None = None) -> list[Path]:
    """The logs (setup first, then by rank) of an attempt; of the latest one when ``epoch`` is None."""
    if epoch is None:
        epochs = [
            int(m[1]) for p in Path(logs).glob("epoch-*") if (m := re.fullmatch(r"epoch-(\d+)", p.name))
        ]
        if not epochs:
            return []
        epoch = max(epochs)

    def order(path: Path) -> tuple[int, str]:
        found = re.fullmatch(r"rank-(\d+)\.log", path.name)
        return (int(found[1]) if found else -1), path.name

    return sorted(epoch_folder(logs, epoch).glob("*.log"), key=order)


def rotate(
    path: Path,
    limit: int = ROTATE_BYTES,
    keep: int = KEEP,
    still: Callable[[], AbstractContextManager[None]] = nullcontext,
    most: int = MOST_BYTES,
) -> bool:
    """Rotate a log that has grown past ``limit`` bytes; ``still`` holds its writer for the end of it. Of a
    log past ``most`` bytes only the end is kept."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    if size <= limit:
        return False
    copy = path.with_name(path.name + ".new")
    with open(path, "rb") as source, open(copy, "wb") as target:
        if size <= most:
            _copy(source, target, size)
        with still():
            end = os.fstat(source.fileno()).st_size
            if end > most:
                left = end - (most - _NOTICE_BYTES)
                source.seek(left)
                target.seek(0)
                target.truncate()
                target.write(_LEFT_OUT.format(left).encode())
            _copy(source, target, end - source.tell())
            for n in range(keep - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(_old(path, n), _old(path, n + 1))
            target.flush()
            os.replace(copy, _old(path, 1))
            os.truncate(path, 0)
    return True


def _copy(source: BinaryIO, target: BinaryIO, count: int) -> None:
    """So many bytes and no more: whoever writes on meanwhile is not run after."""
    while count > 0 and (block := source.read(min(count, _COPY))):
        target.write(block)
        count -= len(block)


def _old(path: Path, n: int) -> Path:
    return path.with_name(f"{path.name}.{n}")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log, without its end; ``text`` has odd bytes replaced."""

    path: Path
    text: str


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log, rotated parts included; empty if there is none."""
    if lines <= 0:
        return []
    found: list[bytes] = []
    for part in [path, *(_old(path, n) for n in range(1, KEEP + 1))]:
        with contextlib.suppress(FileNotFoundError), open(part, "rb") as f:
            missing = lines - len(found)
            found = _last_lines(f.fileno(), os.fstat(f.fileno()).st_size, missing) + found
        if len(found) >= lines:
            break
    return [line.decode(errors="replace") for line in found[-lines:]]


def _last_lines(fd: int, size: int, lines: int) -> list[bytes]:
    block, at = b"", size
    while at > 0 and block.rstrip(b"\n").count(b"\n") < lines:
        step = min(1 << 16, at)
        at -= step
        block = os.pread(fd, step, at) + block
    return block.rstrip(b"\n").split(b"\n")[-lines:] if block.strip(b"\n") else []


def _start_of_last(path: Path, lines: int) -> int:
    """Where the last so many lines of one file begin, in bytes. A line without an end counts."""
    with open(path, "rb") as f:
        at = os.fstat(f.fileno()).st_size
        if lines <= 0:
            return at
        wanted = lines + (at > 0 and os.pread(f.fileno(), 1, at - 1) == b"\n")
        while at > 0:
            step = min(1 << 16, at)
            at -= step
            block = os.pread(f.fileno(), step, at)
            ends = [m.start() for m in re.finditer(b"\n", block)]
            if len(ends) >= wanted:
                return at + ends[-wanted] + 1
            wanted -= len(ends)
    return 0


def last_words(path: Path, longest: int = 200) -> str:
    """The last line with anything on it, shortened; empty if there is none. Errors end in it."""
    for line in reversed(tail(path, 20)):
        if line.strip():
            return line.strip()[:longest]
    return ""


class _Reader:
    """Reads one growing log from a given place on, across rotations, line by line."""

    def __init__(self, path: Path, last: int | None) -> None:
        self.path, self._offset, self._partial = path, 0, b""
        self._rotated = self._rotation()
        if last is not None:
            with contextlib.suppress(FileNotFoundError):
                self._offset = _start_of_last(path, last)

    def _rotation(self) -> tuple[int, int] | None:
        """Changes with each rotation: ``NAME.1`` is then another file."""
        try:
            stat = _old(self.path, 1).stat()
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_mtime_ns

    def read(self) -> list[str]:
        """The lines that have been completed since the last call."""
        rotation = self._rotation()
        data = b""
        if rotation != self._rotated:
            self._rotated = rotation
            data = self._from_old()
            self._offset = 0
        data += self._from(self.path)
        *whole, self._partial = (self._partial + data).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def rest(self) -> list[str]:
        """The last line, if it has no end."""
        left, self._partial = self._partial, b""
        return [left.decode(errors="replace")] if left else []

    def _from_old(self) -> bytes:
        """What the log had beyond our place when it was rotated. Its beginning may have been left out."""
        old = _old(self.path, 1)
        with contextlib.suppress(FileNotFoundError), open(old, "rb") as f:
            notice = _NOTICE.match(f.read(_NOTICE_BYTES))
            if notice:
                left = int(notice[1])
                self._offset = notice.end() + self._offset - left if self._offset > left else 0
        if self._partial and not self._offset:
            self._partial += b"\n"
        return self._from(old)

    def _from(self, path: Path) -> bytes:
        try:
            with open(path, "rb") as f:
                data = os.pread(f.fileno(), max(0, os.fstat(f.fileno()).st_size - self._offset), self._offset)
        except FileNotFoundError:
            return b""
        self._offset += len(data)
        return data


async def follow(
    paths: Iterable[Path] | Callable[[], Iterable[Path]],
    ended: Callable[[], bool],
    clock: Clock | None = None,
    from_start: bool = True,
    last: int | None = None,
) -> AsyncIterator[Line]:
    """Yield lines as they come, until ``ended()`` and all has been read.

    ``paths`` may be a function: it is asked again each time, so that logs of later ranks or attempts are
    joined in. A log that is not there yet is waited for. ``last``: begin with so many last lines of each log
    that is there already; not ``from_start``: with none of them.
    """
    clock = clock or RealClock()
    readers: dict[Path, _Reader] = {}
    first = True
    begin = last if from_start else 0
    while True:
        over = ended()  # before reading: what was written before the end is then read
        for path in paths() if callable(paths) else paths:
            if path not in readers:
                readers[path] = _Reader(path, begin if first else None)
        first = False
        for reader in readers.values():
            for text in reader.read():
                yield Line(reader.path, text)
        if over:
            break
        await clock.sleep(FOLLOW_EVERY)
    for reader in readers.values():
        for text in reader.rest():
            yield Line(reader.path, text)
