"""Sorted lanes of job rows, kept up row by row: the ranking of thousands of jobs without sorting them.

A lane is an array of rows, ascending by their key (KEYS numbers, compared left to right; ties by row). Insertion and
removal are a binary search and a shift of 8-byte rows, which for 12,000 of them is two microseconds of memory traffic:
no balanced tree is as fast at this size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haibun.core import vocabulary
from haibun.core.precedence import ahead, precedes
from haibun.core.stages import KEYS, Keys, Rows

NO_LANE, WAITING_LANE, RUNNING_LANE = 0, 1, 2
QUEUED, STARTING, RUNNING = int(vocabulary.QUEUED), int(vocabulary.STARTING), int(vocabulary.RUNNING)


@njit(cache=True)
def _move(
    rows: Any, new_keys: Any, state: Any, preemptible: Any, keys: Any, where: Any, lanes: Any, counts: Any
) -> None:
    """Take each row out of its lane, give it its new key, and put it into the lane of its state."""
    for i in range(len(rows)):
        row = rows[i]
        lane = where[row]
        if lane != NO_LANE:
            n = counts[lane]
            at = ahead(lanes[lane], n, keys, row)
            for j in range(at, n - 1):
                lanes[lane, j] = lanes[lane, j + 1]
            counts[lane] = n - 1
        for k in range(new_keys.shape[1]):
            keys[row, k] = new_keys[i, k]
        lane = NO_LANE
        if state[row] == QUEUED:
            lane = WAITING_LANE
        elif preemptible[row] and (state[row] == STARTING or state[row] == RUNNING):
            lane = RUNNING_LANE
        where[row] = lane
        if lane != NO_LANE:
            n = counts[lane]
            at = ahead(lanes[lane], n, keys, row)
            for j in range(n, at, -1):
                lanes[lane, j] = lanes[lane, j - 1]
            lanes[lane, at] = row
            counts[lane] = n + 1


@njit(cache=True)
def _resort(lane: Any, n: int, keys: Any) -> None:
    """Insertion sort: linear where the order has hardly changed, as among jobs that all run."""
    for i in range(1, n):
        row = lane[i]
        j = i - 1
        while j >= 0 and precedes(keys, row, lane[j]):
            lane[j + 1] = lane[j]
            j -= 1
        lane[j + 1] = row


class Lanes:
    """The waiting and the running lane of one policy, over the rows of the job table."""

    def __init__(self) -> None:
        self.keys: Keys = np.zeros((64, KEYS))
        self._where: NDArray[np.int8] = np.zeros(64, np.int8)
        self._lanes = np.zeros((3, 64), np.int64)
        self._counts = np.zeros(3, np.int64)

    def clear(self) -> None:
        """Empty both lanes."""
        self._where[:] = NO_LANE
        self._counts[:] = 0

    def reserve(self, capacity: int) -> None:
        """Make room for rows up to ``capacity - 1``."""
        old = len(self._where)
        if capacity <= old:
            return
        self.keys = np.concatenate([self.keys, np.zeros((capacity - old, KEYS))])
        self._where = np.concatenate([self._where, np.zeros(capacity - old, np.int8)])
        self._lanes = np.concatenate([self._lanes, np.zeros((3, capacity - old), np.int64)], axis=1)

    def move(self, rows: Rows, keys: Keys, state: Rows, preemptible: NDArray[np.bool_]) -> None:
        """Put each row into the lane of its state under its new key: queued jobs wait, starting and running ones that
        may be preempted run, others are in no lane. A row may come twice."""
        _move(rows, keys, state, preemptible, self.keys, self._where, self._lanes, self._counts)

    def rekey_running(self, keys: Keys) -> None:
        """New keys for all running rows, in the order of ``running``, and the lane put in order again."""
        rows = self.running.copy()
        self.keys[rows] = keys
        _resort(self._lanes[RUNNING_LANE], int(self._counts[RUNNING_LANE]), self.keys)

    @property
    def waiting(self) -> Rows:
        """The waiting lane, best first. A window: it changes with the next ``move``."""
        return self._lanes[WAITING_LANE, : self._counts[WAITING_LANE]]

    @property
    def running(self) -> Rows:
        """The running lane, best first. A window: it changes with the next ``move``."""
        return self._lanes[RUNNING_LANE, : self._counts[RUNNING_LANE]]
