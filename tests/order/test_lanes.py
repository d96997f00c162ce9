"""Lanes kept up row by row are what sorting would give."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from haibun.core.stages import KEYS
from haibun.core.vocabulary import PAUSED, QUEUED, RUNNING, STARTING, STOPPING, SUCCEEDED
from haibun.order.keyed import columns
from haibun.order.lane import Lanes

ROWS = 12
CHANGE = st.tuples(
    st.integers(0, ROWS - 1),
    st.tuples(*[st.integers(-2, 2)] * KEYS),
    st.sampled_from([QUEUED, QUEUED, STARTING, RUNNING, STOPPING, PAUSED, SUCCEEDED]),
    st.booleans(),
)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.lists(CHANGE, min_size=1, max_size=6), max_size=12), st.data())
def test_lanes_are_in_order_of_key_then_row_after_any_changes(rounds: list[list[Any]], data: Any) -> None:
    lanes = Lanes()
    lanes.reserve(ROWS)
    keys = np.zeros((ROWS, KEYS))
    state = np.full(ROWS, SUCCEEDED)
    preemptible = np.ones(ROWS, np.bool_)
    for changes in rounds:
        for row, key, where, may in changes:
            keys[row], state[row], preemptible[row] = key, where, may
        rows = np.array([row for row, *_ in changes], np.int64)
        lanes.move(rows, keys[rows], state, preemptible)
        if data.draw(st.booleans()) and len(lanes.running):
            running = lanes.running.copy()
            keys[running, 0] = data.draw(
                st.lists(st.integers(-2, 2), min_size=len(running), max_size=len(running))
            )
            lanes.rekey_running(keys[running])
        order = sorted(range(ROWS), key=lambda row: (*keys[row], row))
        assert lanes.waiting.tolist() == [r for r in order if state[r] == QUEUED]
        assert lanes.running.tolist() == [
            r for r in order if state[r] in (STARTING, RUNNING) and preemptible[r]
        ]


def test_what_is_not_known_ranks_last() -> None:
    assert columns(np.array([1.0, np.nan])).tolist() == [[1.0, 0, 0, 0], [np.inf, 0, 0, 0]]
