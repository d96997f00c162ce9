"""Growable NumPy columns, declared once, kept together."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class _Column(NamedTuple):
    """How a column is made: its dtype, and the value of a fresh row."""

    dtype: type
    fresh: Any


def ints(fresh: int = 0) -> Ints:
    """Declares a column of whole numbers."""
    return cast(Ints, _Column(np.int64, fresh))


def floats(fresh: float = 0.0) -> Floats:
    """Declares a column of floats."""
    return cast(Floats, _Column(np.float64, fresh))


def bools(fresh: bool = False) -> Bools:
    """Declares a column of truth values."""
    return cast(Bools, _Column(np.bool_, fresh))


class Columns:
    """Columns of equal length. A subclass declares them as ``name: Ints = ints()`` and the like.

    The arrays are longer than ``n``; rows from ``n`` on hold fresh values. ``version`` rises whenever arrays are
    replaced by longer ones, so that whoever keeps a window on them knows to take a new one.
    """

    COLUMNS: ClassVar[dict[str, _Column]] = {}

    def __init_subclass__(cls) -> None:
        cls.COLUMNS = {name: value for name, value in vars(cls).items() if isinstance(value, _Column)}

    def __init__(self, capacity: int = 64) -> None:
        self.n = 0
        self.version = 0
        self._capacity = capacity
        for name, (dtype, fresh) in self.COLUMNS.items():
            setattr(self, name, np.full(capacity, fresh, dtype))

    def add_row(self) -> int:
        """Append a fresh row and return its number; amortised constant time."""
        if self.n == self._capacity:
            self._grow(2 * self._capacity)
        self.n += 1
        return self.n - 1

    def reset_row(self, row: int) -> None:
        """Give every column of the row its fresh value."""
        for name, (_, fresh) in self.COLUMNS.items():
            getattr(self, name)[row] = fresh

    def _grow(self, capacity: int) -> None:
        for name, (dtype, fresh) in self.COLUMNS.items():
            old = getattr(self, name)
            new: NDArray[Any] = np.full(capacity, fresh, dtype)
            new[: self.n] = old[: self.n]
            setattr(self, name, new)
        self._capacity = capacity
        self.version += 1

    def dump(self) -> dict[str, bytes]:
        """The first ``n`` rows of every column, as raw bytes."""
        return {name: getattr(self, name)[: self.n].tobytes() for name in self.COLUMNS}

    def load(self, n: int, columns: dict[str, bytes]) -> None:
        """Take what ``dump`` gave. A column that the dump lacks (it is younger) keeps its fresh value."""
        self._grow(max(64, n))
        self.n = n
        for name, (dtype, _) in self.COLUMNS.items():
            if name in columns:
                getattr(self, name)[:n] = np.frombuffer(columns[name], dtype)
        self.version += 1


class Codes:
    """Strings to small integers and back, in order of first appearance."""

    def __init__(self, names: list[str] | None = None) -> None:
        self.names: list[str] = list(names or [])
        self._codes = {name: i for i, name in enumerate(self.names)}

    def code(self, name: str) -> int:
        """The number of a name, new if need be."""
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self.names)
            self.names.append(name)
        return code

    def get(self, name: str) -> int | None:
        """The number of a name, or None if it was never met."""
        return self._codes.get(name)

    def __len__(self) -> int:
        return len(self.names)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A window on the same memory that cannot be written through."""
    window = array.view()
    window.flags.writeable = False
    return window
