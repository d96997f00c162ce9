"""Reasons in words."""

from __future__ import annotations

import pytest

from haibun.core.reasons import Reason, Why


@pytest.mark.parametrize(("walltime", "told"), [(0.5, "0.5"), (3600.0, "3600"), (86_400.0 * 365, "31536000")])
def test_a_walltime_is_told_as_it_was_given(walltime: float, told: str) -> None:
    assert Reason(Why.WALLTIME_OVER, (walltime,)).render() == f"ran for its whole walltime of {told} s"
