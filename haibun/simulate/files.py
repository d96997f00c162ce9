"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO


class OutputFile:
    """A file to be written later. Making one shows that it can be; leaving its ``with`` block drops what is unfinished.

    Something that is there and no ordinary file (``/dev/stdout``, a pipe) is written to as it is.

    Raises:
        OSError: it cannot be written, when made; the disk is full, when written. What was there before stays.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary: Path | None = None
        if path.is_dir():
            raise IsADirectoryError(21, "is a folder; name a file in it", str(path))
        if path.exists() and not path.is_file():
            return
        target = Path(os.path.realpath(path))  # a link stays one
        if not target.parent.is_dir():
            raise FileNotFoundError(2, "cannot be written: its folder does not exist", str(path))
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(13, "cannot be written: permission denied", str(path))
        try:
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        except OSError as e:
            raise OSError(e.errno, f"cannot be written: {e.strerror}", str(path)) from None
        os.close(handle)
        self._temporary = Path(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.unlink(missing_ok=True)

    def write(self, fill: Callable[[TextIO], object]) -> None:
        """Write it: ``fill`` is given the open file."""

        def filled(path: Path) -> None:
            with open(path, "w", encoding="utf-8", newline="") as f:
                fill(f)

        self.write_at(filled)

    def write_at(self, fill: Callable[[Path], object]) -> None:
        """Write it: ``fill`` is given the path at which it is to be written."""
        try:
            fill(self._temporary or self.path)
            if self._temporary is not None:
                umask = os.umask(0)
                os.umask(umask)
                os.chmod(self._temporary, 0o666 & ~umask)
                os.replace(self._temporary, os.path.realpath(self.path))
                self._temporary = None
        except OSError as e:
            raise OSError(e.errno, f"cannot be written: {e.strerror}", str(self.path)) from e
