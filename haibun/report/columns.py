"""How wide the columns of a table may be, so that it fits into a terminal and what matters most stays whole."""

from __future__ import annotations

from collections.abc import Sequence

GAP = 2  # between columns
ROOM = 24  # for a column that can be shortened, before others are left out for it


def fit(
    natural: Sequence[int],
    width: int,
    *,
    spare: Sequence[int] = (),
    shorten: Sequence[tuple[int, int]] = (),
    last: Sequence[int] = (),
) -> dict[int, int]:
    """The columns to show, by number, with their widths. What is in none of the lists stays whole.

    Args:
        natural: how wide each column would like to be.
        spare: to be left out first, one after the other.
        shorten: then to be shortened in this order, each down to its least width.
        last: to be left out where that is not enough.
    """
    widths = dict(enumerate(natural))

    def excess() -> int:
        return sum(widths.values()) + GAP * (len(widths) - 1) - width

    flexible = natural[shorten[0][0]] if shorten else 0
    for i in spare:
        if excess() > max(0, flexible - ROOM):
            del widths[i]
    for i, least in shorten:
        widths[i] = max(min(widths[i], least), widths[i] - max(0, excess()))
    for i in last:
        if excess() > 0:
            del widths[i]
    return widths
