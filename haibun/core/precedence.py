"""Which of two ranked jobs comes first: compiled, for the inner loops of order and place. Imported by them alone."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(cache=True, inline="always")
def precedes(keys: Any, a: Any, b: Any) -> bool:
    """Whether row ``a`` ranks before row ``b``: by its key, left to right, smaller first; ties by row."""
    for k in range(keys.shape[1]):
        if keys[a, k] < keys[b, k]:
            return True
        if keys[a, k] > keys[b, k]:
            return False
    return bool(a < b)


@njit(cache=True)
def ahead(lane: Any, n: int, keys: Any, row: Any) -> int:
    """How many of the first ``n`` rows of a sorted lane rank before ``row``: its place there, if it is one of them."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if precedes(keys, lane[middle], row):
            low = middle + 1
        else:
            high = middle
    return low
