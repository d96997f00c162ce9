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
